"""The engine for media by multigrid: conjugate gradients on all nodes under a cycle of operator-made hats."""

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.axes import Slices, even, within
from mosaicdd.discretisation.given_conditions import Points, points_on
from mosaicdd.discretisation.system import LinearSystem
from mosaicdd.grid.window import Strip
from mosaicdd.parallel.safe_norms import is_safe, largest_of, power_for
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.base_engine import BaseEngine, SolveOptions
from mosaicdd.solvers.field_residual import BoundaryLifting, FieldResidual
from mosaicdd.solvers.measure import EdgeValues, NodeSource
from mosaicdd.solvers.multigrid.iteration import ResidualMonitor
from mosaicdd.solvers.multigrid.multigrid_system import MultigridSystem, Room
from mosaicdd.solvers.outcome import (
    PLAUSIBLE,
    ROUNDINGS,
    Certificate,
    ErrorEstimate,
    History,
    Outcome,
    StatusEvidence,
    needs_rounding,
    progress_times,
)
from mosaicdd.solvers.settings import StoppingRule

_STRIP = 2**17  # values of the field that are handed out at once


# The residual of a field is that of its values on the lines but for rounding, up to 1e-8 of it where both are near 1e-8.
_SAME = 1 + 1e-6


@dataclass
class _Iterated:
    """What the iteration of a problem ended with."""

    status: str
    size: float  # the root mean square of its values
    history: History
    estimate: ErrorEstimate


class MultigridEngine(BaseEngine[LinearSystem]):
    """Solves in one medium on all nodes, one problem after another.

    What depends on the medium alone is planned once and kept by the local solver. The residuals of the answers are
    taken in the equations that the user's coefficients make.

    Raises
    ------
    ValueError
        If the coefficients are not sound.
    Unsupported
        If the settings ask for what this method has not.
    """

    acceleration = "multigrid"

    def _prepare(self, local_solver: LinearSystem) -> None:
        self.settings.require_whole_grid()
        self._system = self._planned(transposed=False)

    def _planned(self, *, transposed: bool) -> MultigridSystem:
        """Return what is planned for the medium; see `MultigridSystem`."""
        solver, key = self._solver, (MultigridSystem, self.partition, transposed)
        if key not in solver.planned:
            solver.planned[key] = MultigridSystem(
                self.partition,
                solver.operator,
                solver.discretisation,
                self.clock,
                device=self._tensors["device"],
                transposed=transposed,
            )
        system: MultigridSystem = solver.planned[key]
        return system

    @property
    def unknowns(self) -> int:
        """Nodes of the whole domain that have an unknown."""
        return self._system.nodes.unknowns

    def change(
        self, values: np.ndarray, force: np.ndarray, rtol: float, *, transposed: bool
    ) -> tuple[np.ndarray, str]:
        """Return what a force makes of zero, whatever the values, by what is planned; see `BaseEngine.change`."""
        system = self._planned(transposed=transposed and self._system.nodes.directed)
        here = within(system.region.owned, self.owned)  # without copies along periodic axes
        largest = self._ranks.largest(largest_of(force[here]))
        power = self._power(largest, largest)
        b, x = system.start(power * force[here]), system.nodes.vector()
        rule = StoppingRule(rtol, 0.0, self.settings.max_iterations)
        judge = ResidualMonitor(
            rule, None, None, None, lambda x, history: None, system.nodes.size_here
        )
        size = system.gradients.norm(b)
        status = "converged_rtol"
        if size:  # else nothing acts but at nodes with given values
            with self.clock.part("multigrid"):
                status = system.gradients(b, x, size, judge)
        field = system.field(x, EdgeValues(system.region), 0)
        if status == "stagnated":
            made, sizes = self._system, np.array([size])
            which = self._ranks, made.region, made.conductances, None, made.measure.weights, sizes
            rounding = FieldResidual(*which)
            for strip in self._in_strips(field[None]):
                rounding.add_rounding(strip)
            if judge.history.residual[-1] <= ROUNDINGS * float(rounding.rounding()[0]):
                status = "converged_rounding"
        return field[within(self.owned, self._system.region.nodes)] / power, status

    def _power(self, size: float, largest: float) -> float:
        """Return what multiplies right-hand sides of a size, where squares of them or of their solutions need it."""
        scale = self._system.nodes.scale
        safe = is_safe(size) and is_safe(size / scale)
        return 1.0 if safe else power_for(largest, math.sqrt(scale))

    def _solve_many(self, boundaries: Sequence[Boundary], options: SolveOptions) -> list[Outcome]:
        rule, system = self._rule(options), self._system
        edges, source, embedded = self._data(boundaries, options)
        measures, constants = system.measure(self._ranks, edges, source, rule.rtol)
        powers, unscaled = np.ones(self.problems), edges
        if not all(is_safe(size) and is_safe(size / system.nodes.scale) for size in measures):
            largest = system.measure.largest(self._ranks, edges, source)
            powers = np.array(list(map(self._power, measures, largest)))
            edges = edges.times(powers)
            source = None if source is None else source.times(powers)
            measures, constants = system.measure(self._ranks, edges, source, rule.rtol)
        residual = FieldResidual(
            self._ranks,
            system.region,
            system.conductances,
            source,
            system.measure.weights,
            measures,
        )
        seconds = {"iterate": 0.0, "estimate": 0.0}
        solves: list[_Iterated] = []
        x: Room = None  # of the last problem
        b: Room = None
        for i in range(self.problems):
            begun = time.perf_counter()
            judge = self._judge(edges, i, rule, options, float(powers[i]))
            x = self._begun(i, float(constants[i]), options, x, float(powers[i]))
            b, size = system.right_hand_side(edges, source, i, b), float(measures[i]) or 1.0
            with self.clock.part("multigrid"):
                status = system.gradients(b, x, size, judge)
            iterated = time.perf_counter()
            b = b if i < self.problems - 1 else None  # the next one takes its place
            with self.clock.part("estimate"):
                estimate = system.estimate()
            solves.append(_Iterated(status, system.nodes.rms(x), judge.history, estimate))
            if i == 0:  # not before the iteration, whose vectors are the most memory
                fields = np.empty((self.problems, *system.region.shape))
            system.field(x, edges, i, fields[i])
            seconds["iterate"] += iterated - begun
            seconds["estimate"] += time.perf_counter() - iterated
        x = None
        begun = time.perf_counter()
        if self._wanted and self._window is None:
            with self.clock.part("check"):
                for strip in self._in_strips(fields):
                    residual.add(strip)
        evidence = self._evidence(rule.rtol, solves, fields, residual)
        for i in np.flatnonzero(powers != 1.0):
            with np.errstate(over="ignore"):
                fields[i] /= powers[i]
            unscaled.impose(fields[i], i)
        if embedded is None and self._is_wanted(fields, options.sink):
            those = fields[:, *within(self.place, self._system.region.nodes)]
            wanted: torch.Tensor | None = torch.from_numpy(those)
        else:
            wanted = self._delivered(self._strips(fields, embedded), options.sink)
        seconds["assemble"] = time.perf_counter() - begun
        certify = self.settings.certify
        imbalance = None if embedded is None else embedded.imbalance
        return [
            self._outcome(
                solved.status,
                evidence[i],
                solved.estimate,
                vanishes=not fields[i].any(),
                finite=bool(np.isfinite(fields[i]).all()),
                power=float(powers[i]),
                imbalance=None if imbalance is None else imbalance[i].item(),
                certificate=None
                if certify is None
                else Certificate(certify, len(solved.history.update), 0.0, 0.0),
                history=solved.history,
                field=None if wanted is None else wanted[i],
                seconds=dict(seconds),
            )
            for i, solved in enumerate(solves)
        ]

    def _data(
        self, boundaries: Sequence[Boundary], options: SolveOptions
    ) -> tuple[EdgeValues, NodeSource | None, BoundaryLifting | None]:
        """Return the values on the edge of the grid, the source at the region's nodes, and what else is given."""
        region, equations, source = self._system.region, self._system.equations, self._solver.source
        edges = EdgeValues(region, boundaries)
        if equations is not None:
            where = self._ranks, region, self._solver.discretisation
            with self.clock.part("sample"):
                embedded = BoundaryLifting(*where, source.problem, equations, beyond=self._beyond)
            b = torch.from_numpy(embedded.right_hand_side).to(**self._tensors)
            return edges, NodeSource(b, nodes=embedded.driven), embedded
        if source.problem.source is None:
            return edges, None, None
        with self.clock.part("sample"):
            values = self._ranks.run_on_all(
                lambda: source.problem.source_at(self.grid, region.nodes)
            )
            f = torch.as_tensor(values).to(**self._tensors)
        scale = self.grid.spacing**2
        return edges, NodeSource(f.expand(self.problems, *f.shape[1:]), scale), None

    def _judge(
        self,
        edges: EdgeValues,
        number: int,
        rule: StoppingRule,
        options: SolveOptions,
        power: float,
    ) -> ResidualMonitor:
        """Return what judges the iterations of a problem whose data were multiplied."""
        watch = options.watch

        def save(x: torch.Tensor, history: History) -> None:
            field = self._system.field(x, edges, number)[None] / power
            if watch is not None:
                kept = history.times(1 / power)
                watch.keep(None, [kept], self._shown_strips(field), [None], number)

        earlier, nodes = options.history(number).times(power), self._system.nodes
        rule = dataclasses.replace(rule, atol=power * rule.atol)
        progress = progress_times(options.progress, 1 / power)
        return ResidualMonitor(rule, earlier, progress, watch, save, nodes.size_here)

    def _begun(
        self, number: int, constant: float, options: SolveOptions, room: Room, power: float
    ) -> torch.Tensor:
        """Return the vector that the iteration of a problem begins with; for its room see `MultigridSystem`."""
        own, start = self._system.region.owned, options.begun(number)
        if start is not None:
            values = start[number].double().cpu().numpy()[within(own, self.owned)]
            return self._system.start(power * np.where(np.isnan(values), 0.0, values), room)
        return self._system.start(np.full((1,) * len(own), constant), room)

    def _rule(self, options: SolveOptions) -> StoppingRule:
        """Return the rule, whose tolerance bounds the residual here, as a certificate's does."""
        rule, certify = super()._rule(options), self.settings.certify
        rtol = rule.rtol if certify is None else min(rule.rtol, certify)
        return StoppingRule(rtol, rule.atol, rule.max_iterations)

    def _strips(self, fields: np.ndarray, embedded: BoundaryLifting | None) -> Iterator[Strip]:
        """Hand out fields strip by strip, with what is given."""
        if embedded is not None and embedded.imbalance is not None:
            embedded.centre(self._in_strips(fields))
        for strip in self._in_strips(fields):
            if embedded is not None:
                own = Strip(strip.values.clone(), strip.inner, strip.place)
                strip = embedded.completed(own)
            yield strip

    def _evidence(
        self,
        rtol: float,
        solves: Sequence[_Iterated],
        fields: np.ndarray,
        field_residual: FieldResidual,
    ) -> list[StatusEvidence]:
        """Return what is known of the fields; where rounding may matter, they are gone over again to measure it."""
        certify = self.settings.certify
        reached = [solved.history.residual[-1] for solved in solves]
        in_all = self._wanted and self._window is None
        residuals = field_residual.relative().tolist() if in_all else reached
        promised = [
            max(rtol, _SAME * left)
            if solved.status == "converged_atol" and certify is None
            else rtol
            for solved, left in zip(solves, reached, strict=True)
        ]
        rounding, statuses = np.zeros(self.problems), [solved.status for solved in solves]
        if certify is None and any(map(needs_rounding, statuses, residuals, promised)):
            for strip in self._in_strips(fields):
                field_residual.add_rounding(strip)
            rounding = field_residual.rounding()
        # Beside a right-hand side that is zero there is no answer to be a share of.
        max_error_share = np.where(field_residual.measures > 0, max(PLAUSIBLE, 10 * rtol), np.inf)
        return [
            StatusEvidence(
                solved.estimate.rms,
                solved.size,
                residuals[i],
                promised[i],
                float(rounding[i]),
                float(max_error_share[i]),
                visible=math.inf,  # the estimate is made from a residual in differences
            )
            for i, solved in enumerate(solves)
        ]

    def _shown_strips(self, fields: np.ndarray) -> Iterator[Strip]:
        """Return this rank's nodes of fields, copies along periodic axes included, as one strip."""
        inner = within(self.owned, self._system.region.nodes)
        yield Strip(torch.from_numpy(fields), inner, self.owned)

    def _in_strips(self, fields: np.ndarray) -> Iterator[Strip]:
        """Yield this rank's part of fields from below, with a node more all around; views of them, if these are as wanted."""
        own, around = self._system.region.owned, self._system.region.nodes
        inner = within(own, around)
        rows = max(1, _STRIP // (len(fields) * fields[0][0].size))
        for part in even(own[0].stop - own[0].start, rows):
            low, high = own[0].start + part.start, own[0].start + part.stop
            first = max(low - 1, around[0].start) - around[0].start
            last = min(high + 1, around[0].stop) - around[0].start
            start = low - around[0].start - first
            yield Strip(
                torch.from_numpy(fields[:, first:last]).to(**self._tensors),
                (slice(start, start + high - low), *inner[1:]),
                (slice(low, high), *own[1:]),
            )

    def inside_shape(self, nodes: Slices) -> int | None:
        """Count the nodes inside a domain that is no rectangle; see `BaseEngine`."""
        equations = self._system.equations
        around = any(self.partition.periodic)  # then the last nodes are copies
        if equations is None or equations.outlines is None or around:
            return None
        place = within(nodes, self._system.region.nodes)
        return int(equations.outlines.reported[place].sum())

    def outline_points(self) -> Points | None:
        """Return where conditions on outlines act on this rank's nodes; see `BaseEngine`."""
        equations, discretisation = self._system.equations, self._solver.discretisation
        outline = None if discretisation is None else discretisation.outline
        around = any(self.partition.periodic)  # then some nodes are copies
        if equations is None or equations.outlines is None or outline is None or around:
            return None
        region = self._system.region
        own = within(region.owned, region.nodes)
        return points_on(equations.outlines.part(*own), outline.names)
