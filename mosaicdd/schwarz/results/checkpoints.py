"""Checkpoints of an iteration, beside its solution file."""

import functools
import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from mosaicdd.lattice.axes import times
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.interface import Interface
from mosaicdd.parallel.collect import collect
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.discretisation.given_conditions import conditions_of
from mosaicdd.problems.fields.checksum import checksum_of
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.base_engine import BaseEngine
from mosaicdd.schwarz.fill import Strip
from mosaicdd.schwarz.results.output import write_lines
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import History
from mosaicdd.storage.checkpoint_file import FIELD, read_checkpoint, read_field, writing_checkpoint

_SAMPLES = 2**20  # values of a field that are read at once


@dataclass(frozen=True)
class Earlier:
    """Where an earlier run stopped, and how it had gone.

    ``field``: this rank's part of it, ``(rows, columns)``, if the interface leaves it open.
    """

    interface: Interface
    history: History
    field: np.ndarray | None

    def start_fields(self) -> torch.Tensor | None:
        """Return the field as `BaseEngine.begin_with` takes it."""
        return None if self.field is None else torch.from_numpy(self.field[None])


class Checkpoints:
    """The checkpoint file of one problem; all ranks call its methods together.

    Parameters
    ----------
    output
        The solution file; the checkpoint is ``OUTPUT.checkpoint``.
    local_solver
        Its name.
    """

    def __init__(
        self,
        output: str,
        ranks: Ranks,
        engine: BaseEngine,
        problem: Problem,
        local_solver: str,
        settings: SolveSettings,
    ):
        self.path = Path(f"{output}.checkpoint")
        self._ranks = ranks
        self._engine = engine
        self._dtype = settings.dtype
        self._problem = problem
        self._told = {
            "cells": times(problem.domain.cells),
            "pde": problem.equation.name,
            "local solver": local_solver,
            "levels": settings.levels,
            "sweep": settings.sweep,
            "dtype": settings.dtype,
        } | ({"parameters": problem.described} if problem.described else {})

    @cached_property
    def _identity(self) -> dict:
        """Of what the checkpoint is: what was told, and of all that varies over the domain a checksum.

        That is the same for any process grid. All ranks must ask for it together.
        """
        grid = self._engine.block.lattice.grid
        told = self._told | {"boundary": self._ranks.on_root(lambda: _digest(self._problem, grid))}
        sums = self._ranks.agree(self._checksums)
        total = sum(
            (Counter(sums_of_rank) for sums_of_rank in self._ranks.allgather(sums)), Counter()
        )
        return told | {f"field {name}": f"{total[name] % 2**64:016x}" for name in sums}

    def _checksums(self) -> dict[str, int]:
        """Return those of fields, and of the domain, at this rank's nodes."""
        grid, own = self._engine.block.lattice.grid, self._engine.block.owned_nodes()[1]
        sums = {
            name: checksum_of(
                functools.partial(field.sample_as_given, grid, checked=False), own, strip=_SAMPLES
            )
            for name, field in self._problem.arrays.items()
        }
        if (shape := self._problem.domain.shape) is not None:
            sums["domain"] = checksum_of(lambda part: shape.level(grid, part)[None], own)
        return sums

    def save(self, v: Interface, history: History, field: Iterable[Strip] | None = None) -> None:
        """Write the interface; on success it replaces the checkpoint before.

        ``field``: what this rank has of it, if the interface leaves it open.
        """
        identity = self._identity
        with self._ranks.held_by_root(lambda: writing_checkpoint(self.path, identity)) as writer:
            write_lines(self._engine.movement, v, writer, self._dtype)
            if field is not None:
                parts = ((strip.owned[0].cpu().numpy(), strip.place) for strip in field)
                if writer is not None:
                    writer.create(FIELD, v.block.lattice.grid.nodes, "float64")
                into = (lambda *_: None) if writer is None else writer.into(FIELD)
                collect(self._ranks, parts, np.float64, len(v.lines), into)
            if writer is not None:
                writer.history(asdict(history))

    def read(self) -> Earlier:
        """Read the checkpoint on the root and hand every rank its part.

        `FileNotFoundError` or `ValueError` on all ranks, if there is none, it is damaged, or belongs to another
        problem.
        """
        lines, identity = None, self._identity

        def read() -> dict:
            nonlocal lines
            lines, history = read_checkpoint(self.path, identity)
            return history

        history = self._ranks.on_root(read)
        own = self._engine.block.owned_nodes()[1]
        field = self._ranks.agree(lambda: read_field(self.path, own))
        return Earlier(self._engine.interface_of_lines(lines), History(**history), field)

    def remove(self) -> None:
        """Remove the checkpoint of a run that has ended."""
        self._ranks.on_root(lambda: self.path.unlink(missing_ok=True))


def _digest(problem: Problem, grid: Grid) -> str:
    """Return what tells data on the outline from others."""
    if problem.plain:
        (boundary,) = problem.boundaries(grid)
        content = [edge.tobytes() for edge in boundary.edges.values()]
    else:
        content = [condition.told() for condition in conditions_of(problem, grid)]
    return hashlib.sha256(b"".join(content)).hexdigest()[:16]
