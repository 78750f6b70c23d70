"""The engine for nonlinear equations: Newton's method on the whole grid.

It begins with the solution on a coarser grid, where there is one; else with the harmonic surface over the boundary
data, which lies between their values, and to which residuals are measured.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from mosaicdd.discretisation.coarser import screening, smooth_problem
from mosaicdd.discretisation.system import LinearSystem, NonlinearSystem, flow_system
from mosaicdd.grid.ghosts import GhostNodes
from mosaicdd.parallel.safe_norms import norm
from mosaicdd.problems.operators.jacobian import NotEllipticError
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.solvers.base_engine import BaseEngine, SolveOptions
from mosaicdd.solvers.linear_engine import LinearEngine
from mosaicdd.solvers.measure import require_range
from mosaicdd.solvers.monitor import ResidualMonitor
from mosaicdd.solvers.multigrid.multigrid_system import AROUND
from mosaicdd.solvers.newton.newton import Newton
from mosaicdd.solvers.newton.newton_equations import (
    LinearForm,
    NestedGuess,
    NewtonEquations,
    equations_of,
    nested_start,
)
from mosaicdd.solvers.newton.newton_steps import (
    NewtonContext,
    NodesInside,
    Step,
    multigrid_step,
    sine_step,
)
from mosaicdd.solvers.outcome import PLAUSIBLE, ErrorEstimate, History, Outcome, StatusEvidence
from mosaicdd.solvers.settings import CONVERGED

_LOOSE = 1e-3  # relative update at which a surface is good enough to begin with
_SAME = (
    1.2  # ratio of what conducts at nodes, up to which sine transforms are a good preconditioner
)


class NewtonEngine(BaseEngine[NonlinearSystem]):
    """Solves nonlinear boundary value problems.

    An iteration is a step of Newton's method. The ``rtol`` of the settings bounds the residual, relative
    to the right-hand side of the equation that is linearised at the harmonic surface: for a linear
    equation, to its own.

    `ValueError` if fields are not sound. `TypeError` if the settings ask for
    what this method has not.
    """

    acceleration = "newton"

    def _prepare(self, local_solver: NonlinearSystem) -> None:
        self.settings.require_whole_grid()
        # What multigrid has around a region, and what their conductances and their diagonal need.
        self._place = GhostNodes(self.partition, AROUND + 2)
        self._known: _InitialGuess | None = None
        with self.clock.part("sample"):
            self._make = self._ranks.run_on_all(lambda: equations_of(local_solver, self._place))
        self._steps = NewtonContext(self._place, self.settings, self.clock)
        equations = self._equations(0, Boundary.zeros(self.grid))
        ones = equations.cleared(np.ones([p.stop - p.start for p in self._place.ghosted]))
        active = self._place.at(self.partition.unknowns, ones)
        self._unknowns = int(self._ranks.sum(np.array([active.sum()]))[0])
        whole = local_solver.discretisation is None  # values on all sides of a rectangle
        self._inner = NodesInside(self._place, self.layout) if whole else None

    def _equations(self, number: int, boundary: Boundary) -> NewtonEquations:
        """Return the equations of one of the problems that are solved now."""
        with self.clock.part("sample"):
            return self._ranks.run_on_all(lambda: self._make(number, boundary))

    def _ways(
        self, equations: NewtonEquations, *, transposed: bool = False
    ) -> list[Callable[[np.ndarray], Step]]:
        """Return the ways to find steps, or solutions with the transposed derivative, the fastest first."""
        ways: list[Callable[[np.ndarray], Step]] = []
        inner = self._inner
        if inner is not None and equations.self_adjoint:
            ways.append(lambda u: sine_step(self._steps, inner, equations, u))
        turned = transposed and not equations.self_adjoint
        ways.append(lambda u: multigrid_step(self._steps, equations, u, transposed=turned))
        return ways

    def check(self, boundaries: Sequence[Boundary]) -> None:
        """Raise `NotEllipticError` unless Newton's method can begin with harmonic surfaces."""
        for number, boundary in enumerate(boundaries):
            equations = self._equations(number, boundary)
            known = self._beginning(number, boundary, equations)
            if known.nested is not None:
                self._ranks.run_on_all(known.nested.check)
            elif self._inner is not None:
                known.step = self._elliptic(equations, known.u)

    def _elliptic(self, equations: NewtonEquations, u: np.ndarray) -> Step | None:
        """Check the derivative at values; return the step by it, if that is planned already."""
        way, *others = self._ways(equations)
        if others:
            return way(u)
        self._ranks.run_on_all(lambda: equations.derivative(u, self._place.ghosted))
        return None

    def _beginning(
        self, number: int, boundary: Boundary, equations: NewtonEquations
    ) -> "_InitialGuess":
        """Return the initial guess for boundary data, at which the equation must be sound."""
        sides = self._solver.source.problem.conditions
        data = (sides, number) if self._inner is None else boundary
        if self._known is None or not _same(self._known.data, data):
            u = equations.begun(self._place.with_ghosts(self._harmonic(number, boundary)))
            smooth, residual = self._ranks.run_on_all(lambda: self._linearised(u, equations))
            problem, nested = self._solver.source.problem, self._nested(number, boundary)
            left = 0.0 if nested is None else self._norm(residual, smooth)
            self._known = _InitialGuess(data, u, smooth, (problem, number), left, nested)
        return self._known

    def _harmonic(self, number: int, boundary: Boundary) -> np.ndarray:
        """Return the harmonic surface of a problem over the values on the sides, at the nodes that this rank owns.

        It lies between these values. Where natural sides leave its level open, it is screened, over the width of the domain.
        """
        if self._inner is not None:
            with self.clock.part("start"):
                return self._inner.harmonic(boundary)
        linear, c = self._smooth_system
        smooth = smooth_problem(self._solver.source.problem, self.grid, c)
        linear.source.update(
            smooth if smooth.problems == 1 else smooth.some(range(number, number + 1))
        )
        settings = self.settings.with_changes(rtol=_LOOSE, certify=None)
        field = (
            LinearEngine(self.partition, linear, settings, clock=self.clock).solve(boundary).field
        )
        if field is None:
            raise RuntimeError("the field of a harmonic surface is kept")
        return field.cpu().numpy()

    @cached_property
    def _smooth_system(self) -> tuple[LinearSystem, float]:
        """The equations of harmonic surfaces where values are not given on all sides, and their reaction; all ranks together."""
        problem, grid = self._solver.source.problem, self.grid

        def bound() -> tuple[LinearSystem, float]:
            c = screening(problem, grid)
            return flow_system(smooth_problem(problem, grid, c), grid), c

        return self._ranks.run_on_all(bound)

    def _nested(self, number: int, boundary: Boundary) -> NestedGuess | None:
        """Return the nested guess of a problem, by a coarser grid; None where there is none."""
        if self._inner is None:
            return None
        where = self._solver.source.problem, self.grid, boundary, number
        return self._ranks.run_on_all(lambda: nested_start(*where, self.settings, self._ranks.size))

    def _norm(self, residual: np.ndarray, smooth: LinearForm) -> float:
        """Return the 2-norm of a residual over all ranks, as its rows count."""
        return norm(self._ranks, self._place.without_ghosts(smooth.weights * residual))

    def _linearised(
        self, u: np.ndarray, equations: NewtonEquations
    ) -> tuple[LinearForm, np.ndarray]:
        """Return the equation linearised at values, and the residual there."""
        residual = equations.residual(u)
        if not np.isfinite(residual).all():
            raise NotEllipticError(
                "the equation's residual is not finite for values between those on the sides"
            )
        form = equations.linear_form(u, residual)
        require_range(float(abs(self._place.without_ghosts(form.constant)).max(initial=0.0)))
        return form, residual

    def change(
        self, values: np.ndarray, force: np.ndarray, rtol: float, *, transposed: bool
    ) -> tuple[np.ndarray, str] | None:
        """Solve as for a step of Newton's method; see `BaseEngine.change`."""
        equations = self._equations(0, Boundary.zeros(self.grid))
        u = self._place.with_ghosts(np.nan_to_num(values))  # outside of a shape are none
        wide = equations.cleared(np.array(self._place.with_ghosts(force)))
        ways = self._ways(equations, transposed=transposed)
        if self._inner is not None and self._varies(self._inner, equations, u):
            ways = ways[-1:]
        for way in ways:
            change = way(u)(wide, rtol)
            if change is not None and change.status in CONVERGED:
                break
        if change is None:
            raise RuntimeError("no way leads to a step")
        return change.values, change.status

    def _varies(self, inner: NodesInside, equations: NewtonEquations, u: np.ndarray) -> bool:
        """Say whether conductances vary along a row, in space in a plane, so that multigrid is faster than transforms."""
        rows, *others = inner.part
        middle = (rows.start + rows.stop) // 2
        part = (slice(middle - 1, middle + 2), *others)

        def ends() -> tuple[float, float]:
            derivative = equations.derivative(u, part)
            inside = (slice(1, -1),) * u.ndim
            conducts = (derivative.diagonal() - derivative.reaction)[inside]
            return float(conducts.max()), float(-conducts.min())

        most, least = map(self._ranks.largest, self._ranks.run_on_all(ends))
        return most > _SAME * -least

    @property
    def coarse_solution(self) -> np.ndarray | None:
        """The solution on a grid twice as coarse that the last solve began with, at all nodes; None if it did not."""
        nested = None if self._known is None else self._known.nested
        return nested.solution if nested is not None and nested.apart == 2 else None

    @property
    def unknowns(self) -> int:
        """Nodes of the whole domain that have an unknown."""
        return self._unknowns

    def _solve_many(self, boundaries: Sequence[Boundary], options: SolveOptions) -> list[Outcome]:
        seconds = {"iterate": 0.0, "estimate": 0.0}
        solves: list[tuple[Newton, ErrorEstimate, StatusEvidence]] = []
        fields: list[np.ndarray] = []
        for i, boundary in enumerate(boundaries):
            begun = time.perf_counter()
            equations = self._equations(i, boundary)
            beginning = self._beginning(i, boundary, equations)
            first, beginning.step = beginning.step, None  # it may be large
            start = options.begun(i)
            residual: np.ndarray | None = None
            if start is not None:
                begin, first = self._begun(start[i], equations), None
            else:
                begin, residual = self._nearer(i, boundary, beginning, equations)
            solve = Newton(
                self._steps,
                equations,
                self._ways(equations),
                beginning.smooth,
                self._monitor(i, options),
            )
            solve.run(begin, first, residual)
            iterated = time.perf_counter()
            evidence = solve.evidence  # while the values are as the residual has them
            estimate = solve.estimate()
            evidence = dataclasses.replace(
                evidence,
                error=estimate.rms,
                max_error_share=max(PLAUSIBLE, 10 * self.settings.rtol),
            )
            solves.append((solve, estimate, evidence))
            fields.append(equations.completed(solve.u, beyond=self.request.beyond))
            seconds["iterate"] += iterated - begun
            seconds["estimate"] += time.perf_counter() - iterated
        begun = time.perf_counter()
        kept = self._delivered(iter([self._place.strip(fields, **self._tensors)]), options.sink)
        seconds["assemble"] = time.perf_counter() - begun
        return [
            self._outcome(
                solve.status or "stagnated",
                evidence,
                estimate,
                solve.u,
                solve.history,
                failure=solve.failure,
                certificate=solve.certificate,
                field=None if kept is None else kept[i],
                seconds=dict(seconds),
            )
            for i, (solve, estimate, evidence) in enumerate(solves)
        ]

    def _monitor(self, number: int, options: SolveOptions) -> ResidualMonitor:
        """Return the convergence monitor of a problem."""
        watch = options.watch

        def save(u: np.ndarray, history: History) -> None:
            if watch is not None:
                strip = self._place.strip([u], **self._tensors)
                watch.keep(None, [history], [strip], [None], number)

        rule, history = self._residual_rule(options), options.history(number)
        return ResidualMonitor(rule, history, options.progress, watch, save)

    def _nearer(
        self,
        number: int,
        boundary: Boundary,
        beginning: "_InitialGuess",
        equations: NewtonEquations,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return values to begin with, and their residual, if it is known: those of a coarser grid, if they leave less of one."""
        problem = self._solver.source.problem
        if beginning.of[0] is not problem or beginning.of[1] != number:  # of another source
            beginning.nested = self._nested(number, boundary)
            if beginning.nested is not None:
                other = self._ranks.run_on_all(lambda: equations.residual(beginning.u))
                beginning.left = self._norm(other, beginning.smooth)
            beginning.of = problem, number
        if beginning.nested is None:
            return beginning.u, None
        with self.clock.part("start"):
            values = beginning.nested(self._place.ghosted)
        if self._ranks.any(values is None) or values is None:
            return beginning.u, None
        # Each rank has solved alone, and may have rounded otherwise: what it has of others' nodes is theirs.
        start = equations.begun(self._place.with_ghosts(self._place.without_ghosts(values)))
        residual = self._ranks.run_on_all(lambda: equations.residual(start))
        if self._norm(residual, beginning.smooth) < beginning.left:
            return start, residual
        return beginning.u, None

    def _begun(self, start: torch.Tensor, equations: NewtonEquations) -> np.ndarray:
        """Return the ghosted values from which a problem's solve begins, from those that this rank owns."""
        return equations.begun(self._place.with_ghosts(start.cpu().numpy().copy()))


@dataclass
class _InitialGuess:
    """The initial guess of a solve for some data."""

    data: "_Data"
    u: np.ndarray  # the smooth surface, at the nodes that are held here
    smooth: LinearForm  # the equation linearised there
    of: tuple[Problem, int]  # which of several problems the next two are of
    left: float  # 2-norm of the residual there over all ranks
    nested: NestedGuess | None = None  # what finds the solution on a coarser grid
    step: Step | None = None  # by the derivative at ``u``, if it has been taken


_Data = Boundary | tuple[Sides, int]  # values on the edges; or conditions, and of which problem


def _same(known: _Data, data: _Data) -> bool:
    if isinstance(known, Boundary) and isinstance(data, Boundary):
        pairs = zip(known.edges.values(), data.edges.values(), strict=True)
        return known is data or all(np.array_equal(*pair) for pair in pairs)
    if isinstance(known, tuple) and isinstance(data, tuple):
        return known[0] is data[0] and known[1] == data[1]
    return False
