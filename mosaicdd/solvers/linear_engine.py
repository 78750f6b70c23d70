"""The engine of linear equations on the whole grid: multigrid, or transforms where these are the same at all nodes."""

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import Slices, within
from mosaicdd.discretisation.given_conditions import Points, points_on
from mosaicdd.discretisation.system import LinearSystem
from mosaicdd.grid.window import Strip
from mosaicdd.parallel.safe_norms import is_safe
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.base_engine import BaseEngine, SolveOptions
from mosaicdd.solvers.field_residual import BoundaryLifting, FieldResidual
from mosaicdd.solvers.measure import EdgeValues, NodeSource
from mosaicdd.solvers.monitor import ResidualMonitor
from mosaicdd.solvers.outcome import (
    PLAUSIBLE,
    Certificate,
    ErrorEstimate,
    History,
    Outcome,
    StatusEvidence,
    needs_rounding,
    progress_times,
)
from mosaicdd.solvers.prepared_system import (
    PreparedSystem,
    power_of,
    prepare,
    solve_at_nodes,
    strips_of,
)
from mosaicdd.solvers.settings import StoppingRule

# The residual of a field is that of its values on the lines but for rounding, up to 1e-8 of it where both are near 1e-8.
_SAME = 1 + 1e-6


class LinearEngine(BaseEngine[LinearSystem]):
    """Solves linear equations on all nodes, one problem after another.

    What depends on the coefficients alone is prepared once and kept by the system. The residuals of the answers are
    taken in the equations that the user's coefficients make.

    Raises
    ------
    ValueError
        If the coefficients are not sound.
    Unsupported
        If the settings ask for what this method has not.
    """

    def _prepare(self, local_solver: LinearSystem) -> None:
        self.settings.require_whole_grid()
        self._system = self._prepared(transposed=False)
        self.acceleration, self.begins = self._system.name, self._system.iterates

    def _prepared(self, *, transposed: bool) -> PreparedSystem:
        device = self._tensors["device"]
        return prepare(self._solver, self.partition, self.clock, device, transposed=transposed)

    @property
    def unknowns(self) -> int:
        """Nodes of the whole domain that have an unknown."""
        return self._system.unknowns

    def change(
        self, values: np.ndarray, force: np.ndarray, rtol: float, *, transposed: bool
    ) -> tuple[np.ndarray, str]:
        """Return the solution for a force, whatever the values; see `BaseEngine.change`."""
        system = self._prepared(transposed=transposed and self._system.directed)
        rule = StoppingRule(rtol, 0.0, self.settings.max_iterations)
        with self.clock.part("multigrid"):
            solved = solve_at_nodes(system, self.partition, force, rule)
        return solved.values, solved.status

    def _solve_many(self, boundaries: Sequence[Boundary], options: SolveOptions) -> list[Outcome]:
        rule, system = self._residual_rule(options), self._system
        edges, source, embedded = self._data(boundaries)
        measures, constants = system.measure(self._ranks, edges, source, rule.rtol)
        powers, unscaled = np.ones(self.problems), edges
        if not all(is_safe(size) and is_safe(size / system.scale) for size in measures):
            largest = system.measure.largest(self._ranks, edges, source)
            pairs = zip(measures, largest, strict=True)
            powers = np.array([power_of(system, *sizes) for sizes in pairs])
            edges = edges.times(powers)
            source = None if source is None else source.times(powers)
            measures, constants = system.measure(self._ranks, edges, source, rule.rtol)
        residual = FieldResidual(self._ranks, system, source, measures)
        seconds = {"iterate": 0.0, "estimate": 0.0}
        solves: list[tuple[str, float, History, ErrorEstimate]] = []
        x: Any = None  # of the last problem
        b: Any = None
        for i, power in enumerate(powers.tolist()):
            begun = time.perf_counter()
            monitor = self._monitor(edges, i, rule, options, power)
            x = self._begun(i, float(constants[i]), options, x, power)
            b, size = system.right_hand_side(edges, source, i, b), float(measures[i]) or 1.0
            with self.clock.part("multigrid"):
                status = system.solve(b, x, size, monitor)
            iterated = time.perf_counter()
            b = b if i < self.problems - 1 else None  # the next one takes its place
            with self.clock.part("estimate"):
                estimate = system.estimate()
            solves.append((status, system.rms(x), monitor.history, estimate))
            if i == 0:  # not before the iteration, whose vectors are the most memory
                fields = np.empty((self.problems, *system.region.shape))
            system.field(x, edges, i, fields[i])
            seconds["iterate"] += iterated - begun
            seconds["estimate"] += time.perf_counter() - iterated
        x = None
        begun = time.perf_counter()
        if self.request.whole:
            with self.clock.part("check"):
                for strip in self._in_strips(fields):
                    residual.add(strip)
        evidence = self._evidence(rule.rtol, solves, fields, residual)
        for i in np.flatnonzero(powers != 1.0).tolist():
            with np.errstate(over="ignore"):
                fields[i] /= powers[i]
            unscaled.impose(fields[i], i)
        if embedded is None and self._is_wanted(fields, options.sink):
            those = fields[:, *within(self.place, system.region.nodes)]
            wanted: torch.Tensor | None = torch.from_numpy(those)
        else:
            wanted = self._delivered(self._strips(fields, embedded), options.sink)
        seconds["assemble"] = time.perf_counter() - begun
        certify = self.settings.certify
        imbalance = None if embedded is None else embedded.imbalance
        return [
            self._outcome(
                status,
                evidence[i],
                estimate,
                fields[i],
                history,
                float(powers[i]),
                imbalance=None if imbalance is None else imbalance[i].item(),
                certificate=certify and Certificate(certify, len(history.update), 0.0, 0.0),
                field=None if wanted is None else wanted[i],
                seconds=dict(seconds),
            )
            for i, (status, _, history, estimate) in enumerate(solves)
        ]

    def _data(
        self, boundaries: Sequence[Boundary]
    ) -> tuple[EdgeValues, NodeSource | None, BoundaryLifting | None]:
        """Return values on the edge of the grid, the source at the region's nodes, and the lifting of other data."""
        region, equations, source = self._system.region, self._system.equations, self._solver.source
        edges = EdgeValues.of(region, boundaries)
        if equations is not None:
            where, beyond = (self._ranks, region, self._solver.discretisation), self.request.beyond
            with self.clock.part("sample"):
                embedded = BoundaryLifting(*where, source.problem, equations, beyond=beyond)
            b = torch.from_numpy(embedded.right_hand_side).to(**self._tensors)
            return edges, NodeSource(b), embedded
        if source.problem.source is None:
            return edges, None, None
        with self.clock.part("sample"):
            values = self._ranks.run_on_all(
                lambda: source.problem.source_at(self.grid, region.nodes)
            )
            f = torch.as_tensor(values).to(**self._tensors)
        scale = self.grid.spacing**2
        return edges, NodeSource(f.expand(self.problems, *f.shape[1:]), scale), None

    def _monitor(
        self,
        edges: EdgeValues,
        number: int,
        rule: StoppingRule,
        options: SolveOptions,
        power: float,
    ) -> ResidualMonitor:
        """Return the monitor of a problem whose data were multiplied by a power."""
        watch, system = options.watch, self._system

        def save(x: Any, history: History) -> None:
            field = system.field(x, edges, number) / power
            # This rank's nodes, copies along periodic axes included.
            inner = within(self.owned, system.region.nodes)
            strip = Strip(torch.from_numpy(field[None]), inner, self.owned)
            if watch is not None:
                watch.keep(None, [history.times(1 / power)], iter([strip]), [None], number)

        return ResidualMonitor(
            dataclasses.replace(rule, atol=power * rule.atol),
            options.history(number).times(power),
            progress_times(options.progress, 1 / power),
            watch,
            save,
            system.size_here,
        )

    def _begun(
        self, number: int, constant: float, options: SolveOptions, room: Any, power: float
    ) -> Any:
        """Return the vector that the iteration of a problem begins with; for its room see `PreparedSystem`."""
        own, start = self._system.region.owned, options.begun(number)
        if start is not None:
            values = start[number].double().cpu().numpy()[within(own, self.owned)]
            return self._system.start(power * np.where(np.isnan(values), 0.0, values), room)
        return self._system.start(np.full((1,) * len(own), constant), room)

    def _strips(self, fields: np.ndarray, embedded: BoundaryLifting | None) -> Iterator[Strip]:
        """Hand out fields strip by strip, with what is given."""
        if embedded is not None and embedded.imbalance is not None:
            embedded.centre(self._in_strips(fields))
        for strip in self._in_strips(fields):
            if embedded is not None:
                own = Strip(strip.values.clone(), strip.inner, strip.place)
                strip = embedded.completed(own)
            yield strip

    def _in_strips(self, fields: np.ndarray) -> Iterator[Strip]:
        return strips_of(fields, self._system.region, self._tensors["device"])

    def _evidence(
        self,
        rtol: float,
        solves: Sequence[tuple[str, float, History, ErrorEstimate]],
        fields: np.ndarray,
        field_residual: FieldResidual,
    ) -> list[StatusEvidence]:
        """Return the evidence of each field; where rounding may matter, it is measured by another pass."""
        certify = self.settings.certify
        statuses, sizes, histories, estimates = zip(*solves, strict=True)
        reached = [history.residual[-1] for history in histories]
        residuals = field_residual.relative().tolist() if self.request.whole else reached
        promised = [
            max(rtol, _SAME * left) if status == "converged_atol" and certify is None else rtol
            for status, left in zip(statuses, reached, strict=True)
        ]
        rounding = np.zeros(self.problems)
        if certify is None and any(map(needs_rounding, statuses, residuals, promised)):
            for strip in self._in_strips(fields):
                field_residual.add_rounding(strip)
            rounding = field_residual.rounding()
        # Beside a right-hand side that is zero there is no answer to be a share of.
        max_error_share = np.where(field_residual.measures > 0, max(PLAUSIBLE, 10 * rtol), np.inf)
        errors = [estimate.rms for estimate in estimates]
        each = errors, sizes, residuals, promised, rounding.tolist(), max_error_share.tolist()
        # The estimate is made from a residual in differences: rounding excuses any.
        return [
            dataclasses.replace(StatusEvidence(*known), visible=math.inf)
            for known in zip(*each, strict=True)
        ]

    def inside_shape(self, nodes: Slices) -> int | None:
        """Count the nodes inside a domain that is no rectangle; see `BaseEngine`."""
        equations = self._system.equations
        around = any(self.partition.periodic)  # then the last nodes are copies
        if equations is None or equations.outlines is None or around:
            return None
        place = within(nodes, self._system.region.nodes)
        return int(equations.outlines.reported[place].sum())

    def outline_points(self) -> Points | None:
        """Return the points of conditions on outlines; see `BaseEngine`."""
        equations, discretisation = self._system.equations, self._solver.discretisation
        outline = None if discretisation is None else discretisation.outline
        around = any(self.partition.periodic)  # then some nodes are copies
        if equations is None or equations.outlines is None or outline is None or around:
            return None
        region = self._system.region
        own = within(region.owned, region.nodes)
        return points_on(equations.outlines.part(*own), outline.names)
