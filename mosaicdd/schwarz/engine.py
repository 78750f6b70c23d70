"""The engine: everything planned once for a lattice, ranks and a local solver."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from mosaicdd.grid.ghosts import FieldStart, GhostNodes
from mosaicdd.grid.partition import SampleNodes
from mosaicdd.grid.window import Strip
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.block import part_in_window
from mosaicdd.schwarz.drivers import anderson, gmres, quasi_newton, stationary
from mosaicdd.schwarz.error_estimate import (
    Driver,
    certify,
    estimate_errors,
    plan_edge_error,
    updates_from_zero,
)
from mosaicdd.schwarz.fill import FILL_HALO, InteriorReconstruction, PointValues
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.layouts import InterfaceMovement, block_of
from mosaicdd.schwarz.local_solvers.bound import SharedSolver
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.network_solver import subdomains_outside
from mosaicdd.schwarz.method import plan_fill, plan_iteration, scheme_of
from mosaicdd.schwarz.monitor import Monitor
from mosaicdd.schwarz.residuals import DiscreteResidual, NodeResidual
from mosaicdd.schwarz.sweep import SweepContext
from mosaicdd.solvers.base_engine import BaseEngine, Sink, SolveOptions
from mosaicdd.solvers.measure import powers_of
from mosaicdd.solvers.outcome import (
    EARNED,
    PLAUSIBLE,
    ROUNDINGS,
    Certificate,
    ErrorEstimate,
    History,
    Outcome,
    StatusEvidence,
)
from mosaicdd.solvers.settings import StoppingRule
from mosaicdd.unsupported import Unsupported

_PLAIN = (1.0,) * 4  # inner steps of the quasi-Newton method without relaxation


class Engine(BaseEngine[SharedSolver]):
    """Solves by one operator for all subdomains, or by a network.

    `ValueError` if the ranks do not fit the lattice. `Unsupported` if GMRES is asked for with a local solver that is
    not linear, or several problems are to be solved by what takes one only.
    """

    def _prepare(self, local_solver: SharedSolver) -> None:
        settings, problems, ranks = self.settings, self.problems, self._ranks
        lattice = local_solver.lattice(self.grid)
        self.halo = settings.halo_depth
        self.block = block_of(ranks, lattice, ranks.rank, settings.halo_depth)
        self.movement = InterfaceMovement(ranks, lattice, settings.halo_depth)
        if settings.accelerate == "gmres" and not local_solver.linear:
            raise Unsupported(
                f"gmres needs a local solver that is linear in the boundary values; "
                f"{local_solver.name} is not: use accelerate='none'"
            )
        if problems > 1 and (not settings.takes_many or settings.until_mae is not None):
            raise Unsupported(
                f"{problems} problems at once are for iterations other than Anderson's, and without an aim for the MAE: "
                "use batch=1"
            )
        # By measured numbers, which other processors may round to another choice.
        of, points = (local_solver.operator, local_solver.subdomain), settings.coarse_points
        self._scheme = ranks.on_root(lambda: scheme_of(*of, points))
        self.acceleration = settings.accelerate or self._default_acceleration(local_solver)
        self._outside_range = local_solver.outside_range(**self._tensors)
        self._task = SweepContext(ranks, self.block, settings, problems, self.clock)
        self.iterate = plan_iteration(self._task, local_solver, self._scheme.points)
        # The two-level iteration with the exact local solver, by which errors are estimated.
        exact, self._exact_iterate = local_solver, self.iterate
        two_levels = dataclasses.replace(settings, levels=2, sweep="additive")
        if not local_solver.exact or two_levels != settings:
            exact = ExactSolver(local_solver.operator, local_solver.subdomain, local_solver.source)
            task = dataclasses.replace(self._task, settings=two_levels)
            self._exact_iterate = plan_iteration(task, exact, self._scheme.points)
        self._filling = local_solver if settings.certify is None else exact
        if self._filling.between_nodes:
            self.interpolant = self._filling
        self._fill: InteriorReconstruction | None = None
        self._window_fill: InteriorReconstruction | None = None  # of what this rank has of it
        window = self.request.window if self.request.fill else None
        if settings.certify is not None or self.request.whole:
            self._fill = plan_fill(self._task, self._filling)
        if window is not None and (part := part_in_window(self.block, window)):
            self._window_fill = plan_fill(self._task, self._filling, part)
        self._discrete_residual = DiscreteResidual(
            self._ranks, lattice.grid, local_solver.operator, local_solver.source, problems
        )
        self._edge_error = plan_edge_error(ranks, self.block, self._filling, exact, **self._tensors)

    @property
    def unknowns(self) -> int:
        """Interface nodes of the whole domain that have an unknown."""
        return self.block.lattice.unknowns

    @property
    def samples(self) -> SampleNodes:
        """The lattice nodes."""
        lattice = self.block.lattice
        return SampleNodes((0,) * len(lattice.cells), lattice.spacing, lattice.lines)

    def interface_of_lines(self, lines: tuple[np.ndarray, ...] | None) -> Interface:
        """Scatter the whole domain's lines, which the root alone needs, to the ranks."""
        v = Interface(self.block, problems=self.problems, **self._tensors)
        self.movement.scatter(lines, v)
        return v

    def start_of(
        self, start: Any, members: range, fields: Callable[[], torch.Tensor | None]
    ) -> Interface:
        """Return the values of a start on the lattice lines; see `BaseEngine.start_of`."""
        if not isinstance(start, FieldStart):
            return start.start(members, **self._tensors)
        v = Interface(self.block, **self._tensors)
        ghosts = GhostNodes(self.partition, self.block.halo * self.block.lattice.spacing)
        ghosted = ghosts.with_ghosts(start.start_fields(range(1))[0].numpy())
        v.take([torch.from_numpy(ghosts.at(self.block.nodes, ghosted))])
        return v

    def reference(self, field: np.ndarray | None) -> Interface:
        """Scatter a reference field, which the root alone needs, to the interfaces of the ranks."""
        s = self.block.lattice.spacing
        lines = None if field is None else (field[::s], field[:, ::s].T)
        return self.interface_of_lines(lines)

    def plan_points(self, points: np.ndarray) -> PointValues:
        """Plan the evaluation of solutions at points ``(q, 2)``, (y, x) in cells of the grid.

        `Unsupported` if the local solver that the field is filled by has values at grid nodes only, or a source.
        """
        solver = self._filling
        return PointValues(self._ranks, solver, self.movement, points, **self._tensors)

    def _default_acceleration(self, local_solver: SharedSolver) -> str:
        """Return the fastest acceleration that the local solver allows."""
        settings = self.settings
        krylov = self._scheme.acceleration == "gmres"
        if settings.levels == 1 or (
            krylov and not (local_solver.linear and settings.stopping.mae is None)
        ):
            return "none"
        if krylov:
            return "gmres"
        if not local_solver.linear:
            return "quasi-newton"
        return "chebyshev" if self._relaxed else "none"

    @property
    def _relaxed(self) -> bool:
        """Whether relaxation pays.

        Factors above 1 magnify rounding, too. In float32 that is what ends large solves, after few
        iterations with or without them.
        """
        return self.settings.dtype == "float64"

    def _driver(self, acceleration: str) -> Driver:
        relaxed = functools.partial(stationary, relaxation=self._scheme.factors)
        drivers: dict[str, Driver] = {
            "none": stationary,
            "chebyshev": relaxed,
            "gmres": gmres,
            "anderson": anderson,
            "quasi-newton": functools.partial(
                quasi_newton,
                linear=self._exact_iterate,
                relaxation=self._scheme.factors if self._relaxed else _PLAIN,
            ),
        }
        return drivers[acceleration]

    def _solve_many(self, boundaries: Sequence[Boundary], options: SolveOptions) -> list[Outcome]:
        clock, rule = [time.perf_counter()], self._rule(options)
        source = self._solver.source
        unit = self._discrete_residual.scale, self.settings.dtype
        powers = powers_of(self._ranks, boundaries, source, self.owned, *unit)
        boundaries = list(map(Boundary.times, boundaries, powers.tolist()))
        if source is not None:
            source.multiply(powers)
        # Before there are other values, so that never more than two interfaces are held.
        from_zero = self._updates_from_zero(boundaries)
        v = options.start or Interface(self.block, problems=self.problems, **self._tensors)
        v, reference = v.times(powers), options.reference and options.reference.times(powers)
        v.impose(boundaries)
        watched: dict[str, Any] = {
            "progress": options.progress,
            "watch": options.watch,
            "powers": powers,
        }
        monitor = Monitor(self._ranks, rule, v, reference=reference, **watched)
        if options.histories:
            earlier = list(map(History.times, options.histories, powers.tolist()))
            monitor.go_on(v, earlier, options.statuses)
        statuses = monitor.final_statuses
        if not monitor.ended:
            v, statuses = self._driver(self.acceleration)(self.iterate, v, monitor)
        histories = monitor.histories
        certificates: Sequence[Certificate | None] = [None] * self.problems
        if (
            self.settings.certify is not None
            and self._fill is not None
            and "interrupted" not in statuses
        ):
            monitor = Monitor(self._ranks, rule, v, **watched)
            exactly = self._scheme.acceleration
            if exactly == "chebyshev" and not self._relaxed:
                exactly = "none"
            v, statuses, certificates = certify(
                v,
                self.settings.certify,
                monitor,
                from_zero,
                iterate=self._exact_iterate,
                drive=self._driver(exactly),
                discrete_residual=functools.partial(self._residual_of_fill, self._fill, boundaries),
            )
            histories = [
                before.followed_by(after)
                for before, after in zip(histories, monitor.histories, strict=True)
            ]
        clock.append(time.perf_counter())
        safety = self._scheme.safety
        estimates = estimate_errors(
            *(self._exact_iterate, v, monitor, self._edge_error, safety),
            exact=self._filling.exact,
        )
        clock.append(time.perf_counter())
        fields, residuals, discrete = self._assemble(v, boundaries, options.sink, powers)
        evidence = [
            self._evidence(dataclasses.replace(rule, atol=power * rule.atol), *problem)
            for power, *problem in zip(
                powers.tolist(),
                estimates,
                monitor.sizes.tolist(),
                *discrete,
                strict=True,
            )
        ]
        outside = None
        if self._outside_range is not None:
            batch = self.settings.batch_subdomains
            outside = subdomains_outside(v, self.block, self._outside_range, batch)
        v = v.times(1 / powers)
        clock.append(time.perf_counter())
        values = v.flat.view(v.problems, -1)
        parts = ("iterate", "estimate", "assemble")
        seconds = dict(zip(parts, np.diff(clock).tolist(), strict=True))
        return [
            self._outcome(
                statuses[i],
                evidence[i],
                estimates[i],
                values[i],
                histories[i],
                power,
                residual=None if residual is None else residual / power,
                certificate=certificates[i],
                outside=None if outside is None else outside[i],
                interface=v.of_problem(i),
                field=None if fields is None else fields[i],
                seconds=dict(seconds),
            )
            for i, (power, residual) in enumerate(zip(powers.tolist(), residuals, strict=True))
        ]

    def _updates_from_zero(self, boundaries: Sequence[Boundary]) -> Sequence[Sequence[float]]:
        """Return the sizes of the exact iteration's first updates from zero, for a certificate."""
        if self.settings.certify is None:
            return ()
        zero = Interface(self.block, problems=self.problems, **self._tensors)
        zero.impose(boundaries)
        monitor = Monitor(self._ranks, self.settings.stopping, zero)
        return updates_from_zero(zero, monitor, self._exact_iterate)

    def _evidence(
        self,
        rule: StoppingRule,
        estimate: ErrorEstimate,
        size: float,
        residual: float | None,
        norm: float,
        driven: bool,
    ) -> StatusEvidence:
        """Return the evidence for the status of a field, from its relative residual; see `verdict`.

        ``driven``: whether the norm is that of a right-hand side.
        """
        settings, lattice = self.settings, self.block.lattice
        largest = self._discrete_residual.scale / norm
        everywhere = math.sqrt(math.prod(n - 1 for n in lattice.grid.shape))
        # What is strongest between the lattice lines, as beside a well, is no less there: |b| = |A u|.
        scale = max(size, 1 / (largest * everywhere)) if driven else size
        error, nodes = estimate.rms, everywhere
        if self._solver.exact:
            nodes = math.sqrt(lattice.unknowns)
            if rule.mae is None:
                error = EARNED * max(rule.rtol * scale, rule.atol)
        promised = largest * error * nodes
        eps = max(np.finfo(dtype).eps for dtype in (settings.dtype, settings.halo_dtype))
        rounding = float(eps) * largest * scale * everywhere
        if eps > np.finfo(float).eps:  # float32 hides errors that are smooth
            promised, rounding = promised + ROUNDINGS * rounding, 0.0
        if settings.certify is not None:
            promised, rounding = settings.certify, 0.0
        max_error_share = math.inf if rule.mae is not None else max(PLAUSIBLE, 10 * rule.rtol)
        return StatusEvidence(
            estimate.interface, size, residual, promised, rounding, max_error_share
        )

    def _assemble(
        self,
        v: Interface,
        boundaries: Sequence[Boundary],
        sink: Sink | None,
        powers: np.ndarray,
    ) -> tuple[torch.Tensor | None, Sequence[float | None], tuple[Any, ...]]:
        """Fill the field; return it if it is kept, and both residuals, if measured.

        ``powers``: what the data were multiplied by; fields are divided by them. The discrete residual comes as of
        `DiscreteResidual.relative`.
        """
        unknown, count = [None] * self.problems, self.problems
        unmeasured = unknown, (unknown, [1.0] * count, [False] * count)
        if self.request.window is not None and self.request.fill:
            wide, fill = self.movement.widen(v, FILL_HALO), self._window_fill
            strips = iter(()) if fill is None else fill.strips(wide.part(fill.block))
            fields = self._delivered((strip.times(1 / powers) for strip in strips), sink)
            return fields, *unmeasured
        fill = self._fill
        if not self.request.fill or fill is None:
            return None, *unmeasured
        node_residual, fields = NodeResidual(self._ranks, v), None
        if sink is None:
            block = fill.block
            region = torch.empty(self.problems, *(n + 1 for n in block.cells), **self._tensors)
            for _ in self._strips(fill, v, node_residual, region):
                pass
            fields = region[:, *block.owned_nodes()[0]]
            if (powers != 1.0).any():
                fields /= torch.from_numpy(powers).view(-1, *[1] * len(self.owned)).to(fields)
        else:
            sink(strip.times(1 / powers) for strip in self._strips(fill, v, node_residual))
        residual, norms, driven = self._discrete_residual.relative(boundaries)
        return fields, node_residual.root_mean_square().tolist(), (residual.tolist(), norms, driven)

    def _strips(
        self,
        fill: InteriorReconstruction,
        v: Interface,
        node_residual: NodeResidual | None = None,
        region: torch.Tensor | None = None,
    ) -> Iterator[Strip]:
        """Fill the field strip by strip, and measure it by the way."""
        measuring = self.clock.part("check")
        for strip in fill.strips(self.movement.widen(v, FILL_HALO), region):
            with measuring:
                self._discrete_residual.add(strip)
                if node_residual is not None:
                    node_residual.add(strip)
            yield strip

    def _residual_of_fill(
        self, fill: InteriorReconstruction, boundaries: Sequence[Boundary], v: Interface
    ) -> np.ndarray:
        """Return the relative discrete residual of each problem's field."""
        for _ in self._strips(fill, v):
            pass
        residual, *_ = self._discrete_residual.relative(boundaries)
        return residual
