"""The solver: everything planned once for a lattice, a process grid and a local solver."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.block import Block, Slices
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.base import LocalSolver
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.parallel.collect import distribute
from mosaicdd.parallel.process_grid import ProcessGrid
from mosaicdd.parallel.watch import Watch
from mosaicdd.problems.boundary import Boundary
from mosaicdd.schwarz.acceleration import gmres, stationary
from mosaicdd.schwarz.anderson import anderson
from mosaicdd.schwarz.certify import Certificate, Certifier
from mosaicdd.schwarz.discrete_residual import DiscreteResidual
from mosaicdd.schwarz.edge_error import EdgeError
from mosaicdd.schwarz.error_estimate import ErrorEstimate, estimate_error
from mosaicdd.schwarz.method import Method
from mosaicdd.schwarz.range_check import subdomains_outside
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import History, Monitor

_DRIVERS = {"none": stationary, "gmres": gmres, "anderson": anderson}
_PLAUSIBLE = 0.1  # share of the solution's size above which an error is no convergence


@dataclass(frozen=True)
class Solution:
    """What a solve returns on every rank.

    Parameters
    ----------
    status
        One of ``converged_rtol``, ``converged_atol``, ``diverged_max_iterations``,
        ``diverged_tolerance``, ``diverged_nan``, ``interrupted``, ``stagnated``; the last also for
        an iteration that has converged, but to something whose estimated error is a tenth of its
        size.
    update, residual
        Root mean square over the interface of the last change, and of ``T v - v`` at the result.
        On the lattice lines, the field is ``T v``.
    discrete_residual
        Relative residual of the discrete equation, ``|A u| / |b|``, in the 2-norm.
    error_estimate
        Distance to the discrete solution, the local solver's own error included.
    certificate
        In certified mode, how the result was certified.
    outside
        Owned subdomains, ``(rows, columns)``, whose data are outside of the training range; None if
        the local solver has no such range. ``error_estimate.place`` says where they belong.
    interface, field
        This rank's interface, and its part of the field; ``place`` says where that belongs.
    seconds
        Of this rank: ``iterate``, ``estimate`` and ``assemble``.
    """

    status: str
    update: float
    residual: float
    discrete_residual: float
    error_estimate: ErrorEstimate
    certificate: Certificate | None
    outside: torch.Tensor | None
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
        """Iterations done, those of a certificate included."""
        return len(self.history.update)

    @property
    def sweeps(self) -> int:
        """Sweeps done in these iterations: one in each."""
        return self.iterations


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
        self._outside_range = local_solver.outside_range(**self._tensors)
        self.method = Method(grid, self.block, local_solver, settings)
        self._exact = self._exact_method(local_solver)
        certified = settings.certify is not None
        self._fill = (self._exact if certified else self.method).plan_fill()
        filling = self._exact.local_solver if certified else local_solver
        self._discrete_residual = DiscreteResidual(
            grid, self.block, local_solver.equation, self._fill.region
        )
        self._edge_error = EdgeError(grid, self.block, filling, **self._tensors)
        self._certify = Certifier(self._exact.iterate, self._fill, self._discrete_residual)

    def _exact_method(self, local_solver: LocalSolver) -> Method:
        """Plan the two-level method with the exact local solver, if it is not planned yet."""
        settings = dataclasses.replace(self.settings, levels=2, sweep="additive")
        if type(local_solver) is ExactSolver and settings == self.settings:
            return self.method
        exact = ExactSolver(local_solver.equation, local_solver.subdomain)
        return Method(self._grid, self.block, exact, settings)

    @staticmethod
    def _block_of(grid: ProcessGrid, lattice: Lattice, rank: int) -> Block:
        start, stop = grid.partition(lattice.subdomains, rank)
        return Block(lattice, tuple(a + 1 for a in start), tuple(b + 1 for b in stop))

    def reference(self, field: np.ndarray | None) -> Interface:
        """Hand every rank its part of a reference field, which the root alone needs to have."""
        return self._hand_out(lambda block: Interface.values_of_field(block, field))

    def interface_of_lines(self, lines: tuple[np.ndarray, np.ndarray] | None) -> Interface:
        """Hand every rank its part of the whole domain's lines, which the root alone needs."""
        return self._hand_out(lambda block: Interface.values_of_lines(block, lines))

    def _hand_out(self, values_of: Callable[[Block], np.ndarray]) -> Interface:
        """Let the root cut out the values of every rank's block; return this rank's."""
        lattice = self.block.lattice
        values = distribute(
            self._grid, lambda rank: values_of(self._block_of(self._grid, lattice, rank))
        )
        return Interface(
            self.block, **self._tensors, flat=torch.as_tensor(values).to(**self._tensors)
        )

    def solve(
        self,
        boundary: Boundary,
        *,
        start: Interface | None = None,
        history: History | None = None,
        reference: Interface | None = None,
        progress=None,
        watch: Watch | None = None,
    ) -> Solution:
        """Solve for boundary data.

        Parameters
        ----------
        start, history
            Where an earlier run was interrupted; by default zeros. ``start`` is overwritten.
        reference
            The true interface values, for a stopping rule with ``mae``.
        progress
            ``progress(iteration, update, size, mae)``, called after every iteration.
        watch
            What may interrupt the iteration, and keeps checkpoints of it.
        """
        clock = [time.perf_counter()]
        v = Interface(self.block, **self._tensors) if start is None else start
        v.impose(boundary)
        observers = {"progress": progress, "watch": watch}
        monitor = Monitor(self._grid, self.settings.stopping, v, reference=reference, **observers)
        if history is not None:
            monitor.history = history.followed_by(History())
        drive = _DRIVERS[self.settings.accelerate]
        v, status = drive(self.method.iterate, v, monitor)
        history, certificate = monitor.history, None
        if self.settings.certify is not None and status != "interrupted":
            monitor = Monitor(self._grid, self.settings.stopping, v, **observers)
            v, status, certificate = self._certify(v, boundary, self.settings.certify, monitor)
            history = history.followed_by(monitor.history)
        clock.append(time.perf_counter())
        error_estimate = estimate_error(self._exact.iterate, v, monitor, self._edge_error)
        aimed_at_truth = self.settings.stopping.mae is not None
        converged = status.startswith("converged")
        if converged and not aimed_at_truth and not self._plausible(error_estimate, monitor):
            status = "stagnated"
        clock.append(time.perf_counter())
        field = self._fill(v)
        residual = monitor.distance(v, self._fill.on_lines(v))
        discrete_residual = self._discrete_residual(self._fill.region, boundary)
        clock.append(time.perf_counter())
        return Solution(
            status=status,
            update=history.update[-1],
            residual=residual,
            discrete_residual=discrete_residual,
            error_estimate=error_estimate,
            certificate=certificate,
            outside=self._subdomains_outside(v),
            history=history,
            interface=v,
            field=field,
            place=self.block.owned_nodes()[1],
            seconds=dict(
                zip(("iterate", "estimate", "assemble"), np.diff(clock).tolist(), strict=True)
            ),
        )

    def _subdomains_outside(self, v: Interface) -> torch.Tensor | None:
        if self._outside_range is None:
            return None
        batch = self.settings.batch_subdomains
        return subdomains_outside(v, self.block, self._outside_range, batch)

    def _plausible(self, error_estimate: ErrorEstimate, monitor: Monitor) -> bool:
        """Say whether an iteration that stands still does so near the solution."""
        tolerance = max(_PLAUSIBLE, 10 * self.settings.stopping.rtol)
        return error_estimate.interface <= tolerance * monitor.size
