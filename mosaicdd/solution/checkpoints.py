"""Checkpoints of an iteration, beside its solution file."""

import functools
import math
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import Slices, times
from mosaicdd.grid.window import Strip
from mosaicdd.parallel.launcher import Watch
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fields.evaluated import checksum_of, over_ranks
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.layouts import InterfaceMovement
from mosaicdd.solution.report import Result
from mosaicdd.solvers.base_engine import BaseEngine
from mosaicdd.solvers.outcome import History
from mosaicdd.solvers.settings import RESUMABLE
from mosaicdd.storage.atomic import remove_checkpoint
from mosaicdd.storage.checkpoint_file import (
    SOLVE,
    digest_of_sides,
    read_array,
    read_arrays,
    read_state,
    writing_checkpoint,
)
from mosaicdd.storage.hdf5 import line_name
from mosaicdd.storage.shards import SharedFile

_SAMPLES = 2**20  # values of a field that are sampled at once
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

    Attributes
    ----------
    results
        Of an earlier run, the results of the problems that had ended, by their numbers.
    """

    def __init__(
        self,
        output: str,
        ranks: Ranks,
        engine: Any,  # a `BaseEngine`, perhaps one of subdomains
        problem: Problem,
        local_solver: str,
        world: Ranks | None = None,
        seconds: float = math.inf,
    ):
        self.path = Path(f"{output}.checkpoint")
        self.problems = problem.problems
        self._world, self._ranks, self._engine = world or ranks, ranks, engine
        self._dtype = engine.settings.dtype
        self._problem, self._local_solver = problem, local_solver
        self._pending: dict[int, Result] = {}  # that have ended, and are in the solution file only
        self._kept_at, self._seconds = time.monotonic(), seconds
        self.forget()

    def forget(self) -> None:
        """Forget where an earlier run stopped."""
        self.results: dict[int, Result] = {}
        self._ended: dict[int, Path] = {}  # the files of problems that had ended
        # The file, the history and the status of those at work: of problems solved at once some may have ended.
        self._begun: dict[int, tuple[Path, History, str | None]] = {}

    @cached_property
    def _identity(self) -> dict:
        """The identity of a checkpoint: names, numbers, and checksums of fields over the domain.

        That is the same for any process grid. All ranks must ask for it together.
        """
        problem, grid, own = self._problem, self._engine.grid, self._engine.owned
        settings = self._engine.settings

        def checksums() -> dict[str, int]:
            sums = {}
            for name, field in problem.arrays.items():
                sample = functools.partial(field.sample_as_given, grid, checked=False)
                sums[f"field {name}"] = checksum_of(sample, own, strip=_SAMPLES)
            if (shape := problem.domain.shape) is not None:
                sums["field domain"] = checksum_of(lambda part: shape.level(grid, part)[None], own)
            return sums

        known = {
            "cells": times(problem.domain.cells),
            "pde": problem.equation.name,
            "local solver": self._local_solver,
            "levels": settings.levels,
            "sweep": settings.sweep,
            "dtype": settings.dtype,
        }
        known |= {"problems": problem.problems} if problem.problems > 1 else {}
        known |= {"parameters": problem.described} if problem.described else {}
        known["boundary"] = self._ranks.on_root(lambda: digest_of_sides([problem], grid))
        return known | over_ranks(self._ranks.run_on_all(checksums), self._ranks.allgather)

    def begin(self) -> None:
        """Begin anew, or go on: what is left of another run with several problems is of no use."""
        self._pending, self._kept_at = {}, time.monotonic()
        if not (self.results or self._begun) and self.problems > 1:
            self.remove()

    def watch(self, interrupts: Watch, first: int) -> Watch:
        """Return a watch that keeps checkpoints of problems, numbered from a first one on, and hears interrupts."""

        def save(
            v: Interface | None, histories: Any, field: Any, statuses: Any, number: int
        ) -> None:
            self.save(v, histories, field, statuses, first + number)

        return interrupts.saving(save, self._seconds)

    def _path(self, ranks: Ranks, kind: str, number: int) -> Path:
        """Return the file of problems from a number on, whose place is free; of a single one there is one file."""

        def make_room() -> None:
            if self.problems > 1:
                self.path.mkdir(exist_ok=True)
            elif self.path.is_dir():
                shutil.rmtree(self.path)

        ranks.on_root(make_room)
        return self.path if self.problems == 1 else self.path / f"{kind}-{number:06d}"

    def save(
        self,
        v: Interface | None,
        histories: Sequence[History],
        field: Iterable[Strip] | None = None,
        statuses: Sequence[str | None] = (),
        number: int = 0,
    ) -> None:
        """Write the interface of problems, or of one on the whole grid its field; it replaces the checkpoint before.

        Parameters
        ----------
        field
            What this rank has of it, where there is no interface; of one problem.
        statuses
            Of those that have ended.
        number
            Of the first of them.
        """
        state = {}
        for i, history in enumerate(histories):
            status = statuses[i] if statuses else None
            left = None if status in RESUMABLE else status
            state[number + i] = {"history": asdict(history), "status": left}
        path = self._path(self._ranks, "begun", number)
        what = self._ranks, SOLVE, self._identity, {"problems": state}
        with writing_checkpoint(path, *what) as file:
            for i in range(len(histories)):
                if v is not None:
                    lines = v.of_problem(i), self._dtype, f"problems/{number + i}/"
                    write_lines(file, self._engine.movement, *lines)
            if field is not None:
                name, nodes = f"problems/{number}/field", self._engine.grid.nodes
                file.create(name, nodes, "float64")
                file.fill(name, ((s.owned[0].cpu().numpy(), s.place) for s in field))

    def ended(
        self,
        rows_of: Callable[[int], Mapping[str, np.ndarray]],
        results: dict[int, Result],
        *,
        last: bool = False,
    ) -> None:
        """Keep problems that have ended, and are in the solution file; all ranks of all groups together.

        ``rows_of``: returns, on the root, what the solution file has of a problem. ``results``: of this rank's group.
        ``last``: whether nothing more is to come, and the run has not ended well.
        """
        if self.problems == 1:
            return
        for part in self._world.allgather(results if self._ranks.is_root else {}):
            done = {n: r for n, r in part.items() if r.report["status"] not in RESUMABLE}
            self._pending.update(done)
        due = last or time.monotonic() - self._kept_at >= min(_SOON, self._seconds)
        if not self._world.bcast(due) or not self._pending:
            return
        pending = self._pending
        state = {n: {"history": asdict(r.history), "report": r.report} for n, r in pending.items()}
        path = self._path(self._world, "ended", min(pending))
        what = self._world, SOLVE, self._identity, {"problems": state}
        with writing_checkpoint(path, *what) as checkpoint:
            for number in pending:
                checkpoint.add(f"problems/{number}/rows/", rows_of(number))
        self._pending, self._kept_at = {}, time.monotonic()

    def read(self) -> None:
        """Read what there is of a checkpoint, but for the values, from which `start` is to go on.

        `FileNotFoundError` or `ValueError` on all ranks, if there is none, it is damaged, or belongs to other
        problems.
        """
        identity = self._identity

        def read() -> tuple[dict, dict, dict]:
            files = [self.path]
            if self.problems > 1 and not self.path.is_file():
                # What was not written to its end when a job was killed has another name.
                files = sorted(file for kind in _KINDS for file in self.path.glob(f"{kind}-*"))
            if not files:
                raise FileNotFoundError(f"{self.path}: the checkpoint is missing")
            results, ended, begun = {}, {}, {}
            for path in files:
                for name, each in read_state(path, SOLVE, identity)["problems"].items():
                    number, history = int(name), History(**each["history"])
                    if "report" in each:
                        results[number], ended[number] = Result(each["report"], history), path
                    else:
                        begun[number] = path, history, each["status"]
            begun = {number: each for number, each in begun.items() if number not in ended}
            for number, (path, *_) in begun.items():
                _read_lines(path, f"problems/{number}")
            return results, ended, begun

        self.results, self._ended, self._begun = self._world.on_root(read)

    def rows(self, number: int) -> dict[str, np.ndarray]:
        """Read the part of the solution file of a problem that had ended."""
        return read_arrays(self._ended[number], f"problems/{number}/rows")

    def start(self, members: range, engine: Any) -> dict[str, Any]:
        """Return the state in which an earlier run left problems of a batch, as `SolveOptions` has it.

        Nothing, if none of them had been begun.
        """
        begun = {i: self._begun[n] for i, n in enumerate(members) if n in self._begun}
        if not begun:
            return {}
        places = {i: (path, f"problems/{members[i]}") for i, (path, *_) in begun.items()}
        start = _fields if engine.halo is None else _lines
        unknown = None, History(), None
        return {
            "start": start(places, len(members), engine, self._ranks),
            "histories": [begun.get(i, unknown)[1] for i in range(len(members))],
            "statuses": [begun.get(i, unknown)[2] for i in range(len(members))],
        }

    def remove(self) -> None:
        """Remove the checkpoint of a run that has ended."""

        def on_root() -> None:
            if self.path.is_dir():
                shutil.rmtree(self.path)
            else:
                remove_checkpoint(self.path)

        self._world.on_root(on_root)


def write_lines(
    file: SharedFile, movement: InterfaceMovement, v: Interface, dtype: str, group: str = ""
) -> None:
    """Write the lines of one problem in the whole domain, in a group of a file."""
    for axis in range(len(v.lines)):
        name = group + line_name(axis)
        file.create(name, v.block.lattice.line_shape(axis), dtype)
        movement.gather(v, axis, file.into(name))


Places = dict[int, tuple[Path, str]]
"""The file and the group of some problems of a batch, by their number in it."""


def _lines(places: Places, count: int, engine: Any, ranks: Ranks) -> Interface:
    """Read the interface of some of so many problems, zero of the others."""
    rows: dict[int, torch.Tensor] = {}
    for i, place in places.items():
        read: Callable[[], Any] = functools.partial(_read_lines, *place)
        lines = ranks.run_on_all(read if ranks.is_root else lambda: None)
        each = engine.interface_of_lines(lines)
        rows[i] = each.flat.view(each.problems, -1)[i]
    zeros = torch.zeros_like(rows[i])
    return each.like(torch.cat([rows.get(i, zeros) for i in range(count)]))


def _fields(places: Places, count: int, engine: BaseEngine, ranks: Ranks) -> torch.Tensor | None:
    """Read this rank's part of the fields of some of so many problems, zero of the others; None if there are none."""
    fields: torch.Tensor | None = None
    own: Slices = engine.owned
    for i, (path, group) in places.items():
        values = ranks.run_on_all(functools.partial(read_array, path, f"{group}/field", own))
        if values is not None:
            if fields is None:
                fields = torch.zeros(count, *values.shape, dtype=torch.float64)
            fields[i] = torch.from_numpy(values)
    return fields


def _read_lines(path: Path, group: str) -> tuple[np.ndarray, ...]:
    """Read the values on the lattice lines of a problem, none of a method on the whole grid; they must be finite."""
    lines: list[np.ndarray] = []
    while (values := read_array(path, f"{group}/{line_name(len(lines))}")) is not None:
        lines.append(values)
    if not all(np.isfinite(part).all() for part in lines):
        raise ValueError(f"{path} holds values that are not finite; start without resume=True")
    return tuple(lines)
