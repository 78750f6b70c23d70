"""Checkpoints of ``solve``."""

import hashlib
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from mosaicdd.cli.parts import write_lines
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.bound import LocalSolver
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.boundary import Boundary
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.layouts import InterfaceMovement
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import History
from mosaicdd.storage.checkpoint_file import read_checkpoint, writing_checkpoint


class Checkpoints:
    """The checkpoint file beside a solution file; all ranks call its methods together.

    Parameters
    ----------
    output
        The solution file; the checkpoint is ``OUTPUT.checkpoint``.
    """

    def __init__(
        self,
        output: str,
        ranks: Ranks,
        lattice: Lattice,
        settings: SolveSettings,
        local_solver: LocalSolver,
        boundary: Boundary,
    ):
        self._path = Path(f"{output}.checkpoint")
        self._ranks = ranks
        self._movement = InterfaceMovement(ranks, lattice, settings.halo_depth)
        ny, nx = lattice.grid.shape
        edges = hashlib.sha256(b"".join(getattr(boundary, e).tobytes() for e in boundary.EDGES))
        self._problem = {
            "cells": f"{nx}x{ny}",
            "pde": "laplace",
            "local solver": local_solver.name,
            "levels": settings.levels,
            "sweep": settings.sweep,
            "dtype": settings.dtype,
            "boundary": edges.hexdigest()[:16],
        }

    def save(self, v: Interface, history: History) -> None:
        """Write the interface; on success it replaces the checkpoint before."""
        root = self._ranks.is_root
        writing = writing_checkpoint(self._path, self._problem) if root else nullcontext()
        with writing as writer:
            write_lines(self._movement, v, writer, self._problem["dtype"])
            if root:
                writer.history(asdict(history))

    def read(self, solver: Engine) -> tuple[Interface, History]:
        """Read the checkpoint on the root and hand every rank its part.

        Raises
        ------
        FileNotFoundError, ValueError
            On all ranks, if there is none, it is damaged, or belongs to another problem.
        """
        lines = None

        def read() -> dict:
            nonlocal lines
            lines, history = read_checkpoint(self._path, self._problem)
            return history

        history = self._ranks.on_root(read)
        return solver.interface_of_lines(lines), History(**history)

    def remove(self) -> None:
        """Remove the checkpoint of a run that has ended."""
        if self._ranks.is_root:
            self._path.unlink(missing_ok=True)
