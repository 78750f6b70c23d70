"""Checkpoints of an iteration, beside its solution file."""

import hashlib
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from mosaicdd.lattice.interface import Interface
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.condensed_engine import CondensedEngine
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.newton_engine import NewtonEngine
from mosaicdd.schwarz.output import write_lines
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import History
from mosaicdd.storage.checkpoint_file import read_checkpoint, writing_checkpoint


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
        engine: Engine | CondensedEngine | NewtonEngine,
        problem: Problem,
        boundary: Boundary,
        local_solver: str,
        settings: SolveSettings,
    ):
        self.path = Path(f"{output}.checkpoint")
        self._ranks = ranks
        self._engine = engine
        self._dtype = settings.dtype
        ny, nx = problem.domain.cells
        edges = hashlib.sha256(b"".join(getattr(boundary, e).tobytes() for e in boundary.EDGES))
        self._identity = {
            "cells": f"{nx}x{ny}",
            "pde": problem.equation.name,
            "local solver": local_solver,
            "levels": settings.levels,
            "sweep": settings.sweep,
            "dtype": settings.dtype,
            "boundary": edges.hexdigest()[:16],
        } | ({"parameters": problem.described} if problem.described else {})

    def save(self, v: Interface, history: History) -> None:
        """Write the interface; on success it replaces the checkpoint before."""
        root = self._ranks.is_root
        writing = writing_checkpoint(self.path, self._identity) if root else nullcontext()
        with writing as writer:
            write_lines(self._engine.movement, v, writer, self._dtype)
            if writer is not None:
                writer.history(asdict(history))

    def read(self) -> tuple[Interface, History]:
        """Read the checkpoint on the root and hand every rank its part.

        Raises
        ------
        FileNotFoundError, ValueError
            On all ranks, if there is none, it is damaged, or belongs to another problem.
        """
        lines = None

        def read() -> dict:
            nonlocal lines
            lines, history = read_checkpoint(self.path, self._identity)
            return history

        history = self._ranks.on_root(read)
        return self._engine.interface_of_lines(lines), History(**history)

    def remove(self) -> None:
        """Remove the checkpoint of a run that has ended."""
        if self._ranks.is_root:
            self.path.unlink(missing_ok=True)
