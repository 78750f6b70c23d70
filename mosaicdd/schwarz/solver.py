"""The solver: everything planned once for a lattice, a process grid and a local solver."""

import time
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.block import Block, Slices
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.base import LocalSolver
from mosaicdd.parallel.collect import distribute
from mosaicdd.parallel.process_grid import ProcessGrid
from mosaicdd.problems.boundary import Boundary
from mosaicdd.schwarz.acceleration import gmres, stationary
from mosaicdd.schwarz.coarse_space import CoarseSpace, TwoLevel
from mosaicdd.schwarz.error_estimate import ErrorEstimate, ErrorEstimator
from mosaicdd.schwarz.fill import Fill
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import History, Monitor
from mosaicdd.schwarz.sweep import AdditiveSweep, PhaseSweep

_FILL_BATCH = 4  # a filled subdomain takes about 8 times the memory of a swept one


@dataclass(frozen=True)
class Solution:
    """What a solve returns on every rank.

    Parameters
    ----------
    status
        One of ``converged_rtol``, ``converged_atol``, ``diverged_max_iterations``,
        ``diverged_tolerance``, ``diverged_nan``, ``stagnated``.
    update, residual
        Root mean square over the interface of the last change, and of ``T v - v`` at the result.
        On the lattice lines, the field is ``T v``.
    error_estimate
        Distance to the discrete solution, the local solver's own error included.
    interface, field
        This rank's interface, and its part of the field; ``place`` says where that belongs.
    seconds
        Of this rank: ``iterate``, ``estimate`` and ``assemble``.
    """

    status: str
    sweeps: int
    update: float
    residual: float
    error_estimate: ErrorEstimate
    history: History
    interface: Interface
    field: torch.Tensor
    place: Slices
    seconds: dict[str, float]

    @property
    def converged(self) -> bool:
        """Whether the stopping rule was met."""
        return self.status.startswith("converged")

    @property
    def iterations(self) -> int:
        """Iterations done."""
        return len(self.history.update)


class SchwarzSolver:
    """Solves boundary value problems on one lattice.

    Parameters
    ----------
    grid
        The ranks; every rank constructs its own solver with the same arguments.

    Raises
    ------
    ValueError
        If the ranks do not fit the lattice.
    TypeError
        If GMRES is asked for with a local solver that is not linear.
    """

    def __init__(
        self,
        grid: ProcessGrid,
        lattice: Lattice,
        local_solver: LocalSolver,
        settings: SolveSettings,
    ):
        if settings.accelerate == "gmres" and not local_solver.linear:
            raise TypeError(
                f"gmres needs a local solver that is linear in the boundary values; "
                f"{local_solver.name} is not: use --accelerate none"
            )
        self.block = self._block_of(grid, lattice, grid.rank)
        self.settings = settings
        self._grid = grid
        self._tensors = {"device": settings.device, "dtype": settings.dtype}
        plan = local_solver.plan(lattice.subdomain.centre_lines, **self._tensors)
        buffers = {"batch_subdomains": settings.batch_subdomains, **self._tensors}
        if settings.sweep == "phases":
            self._sweep = PhaseSweep(grid, self.block, plan, sync=settings.sync, **buffers)
        else:
            self._sweep = AdditiveSweep(grid, self.block, plan, **buffers)
        self.iterate = self._sweep
        if settings.levels == 2:
            coarse_space = CoarseSpace(grid, self.block, plan, **self._tensors)
            self.iterate = TwoLevel(self._sweep, coarse_space)
        self._estimate = ErrorEstimator(grid, self.block, local_solver.equation, **buffers)
        buffers["batch_subdomains"] = max(1, settings.batch_subdomains // _FILL_BATCH)
        inside = local_solver.plan(lattice.subdomain.interior, **self._tensors)
        self._fill = Fill(grid, self.block, inside, **buffers)

    @staticmethod
    def _block_of(grid: ProcessGrid, lattice: Lattice, rank: int) -> Block:
        start, stop = grid.partition(lattice.subdomains, rank)
        return Block(lattice, tuple(a + 1 for a in start), tuple(b + 1 for b in stop))

    def reference(self, field: np.ndarray | None) -> Interface:
        """Hand every rank its part of a reference field, which the root alone needs to have."""
        lattice = self.block.lattice
        values = distribute(
            self._grid,
            lambda rank: Interface.values_of_field(
                self._block_of(self._grid, lattice, rank), field
            ),
        )
        return Interface(
            self.block, **self._tensors, flat=torch.as_tensor(values).to(**self._tensors)
        )

    def solve(
        self, boundary: Boundary, *, reference: Interface | None = None, progress=None
    ) -> Solution:
        """Solve for boundary data, starting from zero.

        Parameters
        ----------
        reference
            The true interface values, for a stopping rule with ``mae``.
        progress
            ``progress(iteration, update, size, mae)``, called after every iteration.
        """
        clock = [time.perf_counter()]
        v = Interface(self.block, **self._tensors)
        v.impose(boundary)
        rule = self.settings.stopping
        monitor = Monitor(self._grid, rule, v, reference=reference, progress=progress)
        drive = gmres if self.settings.accelerate == "gmres" else stationary
        v, status = drive(self.iterate, v, monitor)
        clock.append(time.perf_counter())
        error_estimate = self._estimate(v, monitor)
        clock.append(time.perf_counter())
        field = self._fill(v)
        if field.is_cuda:
            torch.cuda.synchronize()
        clock.append(time.perf_counter())
        history = monitor.history
        return Solution(
            status=status,
            sweeps=monitor.iterations,
            update=history.update[-1],
            residual=monitor.distance(v, self._fill.on_lines(v)),
            error_estimate=error_estimate,
            history=history,
            interface=v,
            field=field,
            place=self.block.owned_nodes()[1],
            seconds=dict(
                zip(("iterate", "estimate", "assemble"), np.diff(clock).tolist(), strict=True)
            ),
        )
