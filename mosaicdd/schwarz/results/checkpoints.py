"""Checkpoints of an iteration, beside its solution file."""

import functools
import hashlib
import math
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from mosaicdd.grid.strips import Strip
from mosaicdd.lattice.axes import times
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.interface import Interface
from mosaicdd.parallel.collect import collect
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.discretisation.given_conditions import conditions_of
from mosaicdd.problems.fields.checksum import checksum_of
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.base_engine import BaseEngine
from mosaicdd.schwarz.results.earlier import Begin, Earlier, stacked
from mosaicdd.schwarz.results.output import SolutionOutput, write_lines
from mosaicdd.schwarz.results.report import Result
from mosaicdd.schwarz.settings import RESUMABLE, SolveSettings
from mosaicdd.schwarz.stopping import History
from mosaicdd.storage import checkpoint_file

_SAMPLES = 2**20  # values of a field that are read at once


_KINDS = "begun", "ended"  # of files of several problems
_SOON = 5.0  # seconds of work that a job that is killed may do anew, of problems that had ended


class Checkpoints:
    """The checkpoint of the problems of a solver: a file, of several a folder; all ranks call its methods together.

    Parameters
    ----------
    output
        The solution file; the checkpoint is ``OUTPUT.checkpoint``.
    ranks
        Of this rank's group.
    local_solver
        Its name.
    world
        All ranks, of all groups; by default those of the only one.
    seconds
        Between two checkpoints of an iteration.
    """

    def __init__(
        self,
        output: str,
        ranks: Ranks,
        engine: BaseEngine,
        problem: Problem,
        local_solver: str,
        settings: SolveSettings,
        world: Ranks | None = None,
        seconds: float = math.inf,
    ):
        self.path = Path(f"{output}.checkpoint")
        self.first = 0  # of the problems of a batch, by which the engine counts
        self.earlier: Earlier | None = None
        self.problems = problem.problems
        self._world, self._ranks, self._engine = world or ranks, ranks, engine
        self._dtype = settings.dtype
        self._problem = problem
        self._pending: dict[int, Result] = {}  # that have ended, and are in the solution file only
        self._kept_at, self._seconds = time.monotonic(), seconds
        several = {"problems": problem.problems} if problem.problems > 1 else {}
        self._told = {
            "cells": times(problem.domain.cells),
            "pde": problem.equation.name,
            "local solver": local_solver,
            "levels": settings.levels,
            "sweep": settings.sweep,
            "dtype": settings.dtype,
            **several,
        } | ({"parameters": problem.described} if problem.described else {})

    @cached_property
    def _identity(self) -> dict:
        """Of what the checkpoint is: what was told, and of all that varies over the domain a checksum.

        That is the same for any process grid. All ranks must ask for it together.
        """
        grid = self._engine.grid
        told = self._told | {"boundary": self._ranks.on_root(lambda: _digest(self._problem, grid))}
        sums = self._ranks.agree(self._checksums)
        total = sum(
            (Counter(sums_of_rank) for sums_of_rank in self._ranks.allgather(sums)), Counter()
        )
        return told | {f"field {name}": f"{total[name] % 2**64:016x}" for name in sums}

    def _checksums(self) -> dict[str, int]:
        """Return those of fields, and of the domain, at this rank's nodes."""
        grid, own = self._engine.grid, self._engine.owned
        sums = {
            name: checksum_of(
                functools.partial(field.sample_as_given, grid, checked=False), own, strip=_SAMPLES
            )
            for name, field in self._problem.arrays.items()
        }
        if (shape := self._problem.domain.shape) is not None:
            sums["domain"] = checksum_of(lambda part: shape.level(grid, part)[None], own)
        return sums

    def _file(self, kind: str, number: int) -> Path:
        """Return the file of problems from a number on; of a single problem there is only one."""
        return self.path if self.problems == 1 else self.path / f"{kind}-{number:06d}"

    def _group(self, number: int) -> str:
        return checkpoint_file.group_of(None if self.problems == 1 else number)

    def begin(self) -> None:
        """Begin anew, or go on: what is left of another run with several problems is of no use."""
        self._pending, self._kept_at = {}, time.monotonic()
        if self.earlier is None and self.problems > 1:
            self.remove()

    def save(
        self,
        v: Interface | None,
        histories: Sequence[History],
        field: Iterable[Strip] | None = None,
        statuses: Sequence[str | None] = (),
        number: int = 0,
    ) -> None:
        """Write the interface of problems of a batch, or of one on the whole grid its field; on success it replaces the checkpoint before.

        Parameters
        ----------
        field
            What this rank has of it, where there is no interface; of one problem.
        statuses
            Of those that have ended.
        number
            Of the first of them, in the batch.
        """
        identity, first = self._identity, self.first + number
        path = self._file("begun", first)

        def writing() -> AbstractContextManager[checkpoint_file.CheckpointWriter]:
            self._make_room()
            return checkpoint_file.writing_checkpoint(path, identity)

        with self._ranks.held_by_root(writing) as writer:
            for i, history in enumerate(histories):
                group = self._group(first + i)
                if v is not None:
                    flat = v.flat.view(v.problems, -1)[i].contiguous()
                    lines = Interface(v.block, flat=flat, **v.tensors)
                    lines.rings = v.rings
                    movement = self._engine.movement
                    write_lines(self._ranks, movement, lines, writer, self._dtype, group)
                if field is not None:
                    parts = ((strip.owned[0].cpu().numpy(), strip.place) for strip in field)
                    name = group + checkpoint_file.FIELD
                    nodes = self._engine.grid.nodes
                    self._ranks.only_root(functools.partial(_create, writer, name, nodes))
                    into = (lambda *_: None) if writer is None else writer.into(name)
                    collect(self._ranks, parts, np.float64, len(nodes), into)
                status = statuses[i] if statuses else None
                status = None if status in RESUMABLE else status
                self._ranks.only_root(
                    functools.partial(self._describe, writer, history, group, status)
                )

    def _describe(
        self,
        writer: checkpoint_file.CheckpointWriter | None,
        history: History,
        group: str,
        status: str | None,
    ) -> None:
        """Write the history of a problem by the writer that the root has, and of several how it has ended."""
        if writer is not None:
            writer.history(asdict(history), group)
            if self.problems > 1:
                writer.told(group, status=status)

    def ended(
        self, file: SolutionOutput, results: dict[int, Result], *, last: bool = False
    ) -> None:
        """Keep problems that have ended, and are in the solution file; all ranks of all groups together.

        ``results``: of this rank's group. ``last``: whether nothing more is to come, and the run has not ended well.
        """
        if self.problems == 1:
            return
        parts = self._world.allgather(results if self._ranks.is_root else {})
        for part in parts:
            done = {n: r for n, r in part.items() if r.report["status"] not in RESUMABLE}
            self._pending.update(done)
        due = self._world.bcast(
            last or time.monotonic() - self._kept_at >= min(_SOON, self._seconds)
        )
        if not due or not self._pending:
            return
        identity, pending = self._identity, self._pending

        def write() -> None:
            self._make_room()
            with checkpoint_file.writing_checkpoint(
                self._file("ended", min(pending)), identity
            ) as writer:
                for number, result in pending.items():
                    group = checkpoint_file.group_of(number)
                    writer.arrays(f"{group}{checkpoint_file.ROWS}", file.rows(number))
                    writer.history(asdict(result.history), group)
                    writer.told(group, report=result.report)

        self._world.on_root(write)
        self._pending, self._kept_at = {}, time.monotonic()

    def _make_room(self) -> None:
        """Make the folder of several problems, or remove one that is in the way of a file."""
        if self.problems > 1:
            self.path.mkdir(exist_ok=True)
        elif self.path.is_dir():
            shutil.rmtree(self.path)

    def read(self) -> Earlier:
        """Read what there is of a checkpoint, but for the values, from which `start` is to go on.

        `FileNotFoundError` or `ValueError` on all ranks, if there is none, it is damaged, or belongs to other
        problems.
        """
        identity = self._identity

        def read() -> Earlier:
            if self.problems == 1:
                checkpoint_file.read_checkpoint(self.path, identity)
                return Earlier({}, {}, {0: self.path}, {})
            if self.path.is_file():
                checkpoint_file.read_told(self.path, identity)
            # What was not written to its end when a job was killed has another name.
            files = sorted(file for kind in _KINDS for file in self.path.glob(f"{kind}-*"))
            if not files:
                raise FileNotFoundError(f"{self.path}: the checkpoint is missing")
            told = {path: checkpoint_file.read_told(path, identity) for path in files}
            ended = {n: path for path, each in told.items() for n in each if "report" in each[n]}
            begun = {
                n: p
                for p, each in told.items()
                for n in each
                if "report" not in each[n] and n not in ended
            }
            for number, path in begun.items():
                checkpoint_file.read_checkpoint(path, identity, checkpoint_file.group_of(number))
            results = {
                n: Result(told[p][n]["report"], History(**told[p][n]["history"]))
                for n, p in ended.items()
            }
            return Earlier(
                results, ended, begun, {n: told[p][n]["status"] for n, p in begun.items()}
            )

        self.earlier = self._world.on_root(read)
        return self.earlier

    def start(self, members: range, engine: BaseEngine) -> Begin | None:
        """Return where an earlier run stopped with problems of a batch, None if none of them had been begun."""
        earlier = self.earlier
        if earlier is None or not set(members) & earlier.begun.keys():
            return None
        flats: dict[int, torch.Tensor] = {}
        histories, fields = [History() for _ in members], {}
        for i, member in enumerate(members):
            if member in earlier.begun:
                lines, histories[i], fields[i] = self._values(earlier.begun[member], member)
                if engine.has_lines:
                    each = engine.interface_of_lines(lines)
                    flats[i] = each.flat.view(each.problems, -1)[i]
        statuses = [earlier.statuses.get(member) for member in members]
        if not engine.has_lines:
            return Begin(stacked(fields, len(members)), histories, statuses)
        zeros = torch.zeros_like(each.flat.view(each.problems, -1)[0])
        v = each.like(torch.cat([flats.get(i, zeros) for i in range(len(members))]))
        return Begin(v, histories, statuses)

    def _values(
        self, path: Path, member: int
    ) -> tuple[tuple[np.ndarray, ...] | None, History, np.ndarray | None]:
        """Read the lines of a problem on the root, its history, and this rank's part of the field, if there is one."""
        lines, group, identity = None, self._group(member), self._identity

        def read() -> dict:
            nonlocal lines
            lines, history = checkpoint_file.read_checkpoint(path, identity, group)
            return history

        history = History(**self._ranks.on_root(read))
        own = self._engine.owned
        return (
            lines,
            history,
            self._ranks.agree(lambda: checkpoint_file.read_field(path, own, group)),
        )

    def remove(self) -> None:
        """Remove the checkpoint of a run that has ended."""

        def on_root() -> None:
            if self.path.is_dir():
                shutil.rmtree(self.path)
            else:
                self.path.unlink(missing_ok=True)

        self._world.on_root(on_root)


def _create(
    writer: checkpoint_file.CheckpointWriter | None, name: str, nodes: tuple[int, ...]
) -> None:
    """Create the array of a field by the writer that the root has."""
    if writer is not None:
        writer.create(name, nodes, "float64")


def _digest(problem: Problem, grid: Grid) -> str:
    """Return what tells data on the outline from others."""
    if problem.plain:
        content = [
            edge.tobytes()
            for boundary in problem.boundaries(grid)
            for edge in boundary.edges.values()
        ]
    else:
        content = [condition.told() for condition in conditions_of(problem, grid)]
    return hashlib.sha256(b"".join(content)).hexdigest()[:16]
