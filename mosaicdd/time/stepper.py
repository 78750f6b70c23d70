"""One step in time: a problem with more reaction and the last values in its source, solved on all ranks.

The problem of an implicit step of an equation in time, and what multiplies ``du/dt`` in it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.axes import Slices, within
from mosaicdd.discretisation.crossings import BoundaryTerms
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.embedded_boundary import covered_cells
from mosaicdd.grid.ghosts import FieldStart, GhostNodes
from mosaicdd.grid.partition import Partition
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.fields.evaluated import Sliced, evaluate
from mosaicdd.problems.fields.expressions import OfPlace
from mosaicdd.problems.fields.fields import Field, Part, require_sign
from mosaicdd.problems.fields.given import real_array
from mosaicdd.problems.limits import just_after, just_before, stage_time
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.sampling import sample_near
from mosaicdd.problems.shapes.shape import inside_ring
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.quantities.balance import Balance
from mosaicdd.settings import argument
from mosaicdd.solution.solver import AnyLocalSolver, Solver
from mosaicdd.solvers.settings import SolveSettings
from mosaicdd.time import data as in_time
from mosaicdd.time.data import SidesInTime, SourceInTime, initial_values, sampled
from mosaicdd.time.jumps import data_that_may_jump, jump_at
from mosaicdd.time.levels import PreviousSteps, StepPlan
from mosaicdd.time.settings import ImplicitStep, TimeSettings
from mosaicdd.unsupported import Unsupported


def step_problem(problem: Problem, rate: float) -> Problem:
    """Return the problem of an implicit step of ``s du/dt + A u = f``: ``rate s u + A u = f``.

    Its source is that of zeros at the nodes, to be replaced; the values on its sides are those at time 0.
    ``rate``: one over the length of a step, times a weight of the method.

    `ValueError` if the equation has no reaction.
    """
    equation = problem.equation.steady or problem.equation
    if equation.reaction is None:
        raise Unsupported(
            f"{equation.name} has no parameter that multiplies u, through which it could be solved in "
            "time; heat, advection-diffusion and others have: see the equations' page"
        )
    name, storage = equation.reaction, Storage(problem)
    reaction = Field(name, problem.fields.get(name, 0.0), len(problem.domain.cells))
    total: Any
    if storage.number is None:
        total = storage.raised(reaction, rate)
    else:
        more = storage.number * rate
        total = _raised(reaction, more) if reaction.number is None else reaction.number + more
    nodes = tuple(cells + 1 for cells in problem.domain.cells)
    fields = {**problem.fields, name: total, "f": np.broadcast_to(0.0, nodes)}
    fields.pop(storage.name, None)
    return Problem(problem.domain, equation, fields, SidesInTime(problem.conditions)(0.0))


def _raised(field: Field, number: float) -> Any:
    """Return the values of a field with a number added."""
    what, shape = f"the field {field.name}", tuple(getattr(field.values, "shape", ()))
    if shape:
        return Sliced(shape, lambda place: real_array(field.values[place], what) + number)
    return OfPlace(lambda *places: evaluate(field.values, places[::-1], what) + number)


class Storage:
    """The storage coefficient of ``du/dt``: 1, a number, or a field at the nodes or per cell.

    Where it is given per cell a node has the mean over its control volume.

    `ValueError` if the values are of another grid.

    Attributes
    ----------
    name
        Of the equation's parameter; empty if it has none.
    number
        Its value; None if it is a field.
    """

    def __init__(self, problem: Problem):
        self.name = problem.equation.storage or ""
        self._grid, self._shape = problem.domain.grid(), problem.domain.shape
        self._covering = covered_cells(problem, self._grid)
        values = problem.fields.get(self.name, problem.equation.parameters.get(self.name, 1.0))
        self._field = Field(self.name, values, len(problem.domain.cells))
        self.number = self._field.number
        self._field.require_shape(self._grid, cells=True)

    def at(self, part: Part) -> np.ndarray | float:
        """Return the values at the nodes of a part; `ValueError` if they are not positive, or not finite."""
        if self.number is not None:
            return self.number
        if self._shape is None or self._field.per_cell(self._grid):
            cover = None if self._shape is None else self._covering(part)
            return sample_near(self._field, self._grid, part, cover, fill=1.0, positive=True)[0]
        values = sampled(self._field, self._shape, self._grid, part)
        inside = inside_ring(self._shape, self._grid, part)
        if inside is not None:  # what is zero further out counts nowhere
            within = (slice(1, -1),) * values.ndim
            values = np.where(inside[within] | (values != 0), values, 1.0)
        return require_sign(values, self._field, self._grid, part, positive=True)

    def raised(self, reaction: Field, rate: float) -> Sliced:
        """Return the values of a reaction at the nodes with ``rate`` times these added."""

        def read(place: tuple) -> np.ndarray:
            part = tuple(p for p in place if p is not Ellipsis)
            values = sampled(reaction, self._shape, self._grid, part, self._covering)
            return values + rate * self.at(part)

        return Sliced(self._grid.nodes, read)


# Lengths of steps whose plans are kept: this one, half and twice as long; where coefficients change, this one
_PLANNED, _PLANNED_ANEW = 3, 1


@dataclass(frozen=True)
class StepResult:
    """A step that was taken."""

    values: np.ndarray  # the new ones, at the nodes that this rank holds
    size: float  # their root mean square
    # Of the unknowns to what was extrapolated from the last values, root mean square
    difference: float
    solver_error: float  # the same of its solve
    report: dict  # what the solver says of that
    balance: Balance | None  # per time, at its stage; None where the equation has none
    step: ImplicitStep


class DataError(ValueError):
    """The source or the values on the sides are not sound at some time."""


class TimeIntegrator:
    """Takes steps of any length; a solver is planned once for each.

    `ValueError` or `TypeError` if the equation cannot be solved in time, or the problem or the settings are not
    sound; the same on all ranks.

    Parameters
    ----------
    problem
        One or several, whose sources and values on sides may depend on the time.
    initial
        Values at time 0: anything that a field may be.

    Attributes
    ----------
    problems
        Their number; the steps are those of the one that `begin` was called for.
    solver
        Of steps of the length that was asked for.
    share
        How fields lie over the ranks.
    """

    def __init__(
        self,
        problem: Problem,
        initial: Any,
        time: TimeSettings,
        local_solver: AnyLocalSolver,
        ranks: Ranks,
        settings: SolveSettings,
    ):
        _require_method(settings)
        self._ranks, self._time = ranks, time
        self._local_solver, self._settings = local_solver, settings
        self._method = time.scheme
        with argument("initial"):
            self._initial = Field("initial", initial, len(problem.domain.cells))
        self.problems = in_time.problems_in_time(problem, self._initial)
        self._every, self._problem = problem, self._one(problem, 0)
        self._sides = in_time.SidesInTime(self._problem.conditions)
        self._shape = shape = problem.domain.shape
        with argument("field"):
            self._coefficients = in_time.CoefficientsInTime(self._problem)
            self._source = SourceInTime(self._problem, problem.domain.grid(), time.dt)
        self._planned: dict[tuple[float, float], StepPlan] = {}
        first = stage_time(0.0, time.dt, self._method.step(1).share)
        self.solver = self._plan(time.dt, first).solver
        boxes, cuts = self.solver.partition.boxes, self.solver.partition.ranks.cuts
        placed = Ranks.of(ranks, settings.dims).fitted(boxes.counts, cuts)
        width = self.solver.source_ghosts
        self.share = GhostNodes(Partition(boxes, placed), width, beyond=False)
        self._pieces = problem.pieces(self.share.grid)
        self._outside: np.ndarray | None = None  # nodes that are not inside
        self._shown: np.ndarray | None = (
            None  # those that have values in a field; None of a rectangle
        )
        if shape is not None:
            level = ranks.run_on_all(lambda: shape.level(self.share.grid, self.share.owned))
            self._outside = level >= 0
        held, owned = (
            [p.stop - p.start for p in part] for part in (self.share.ghosted, self.share.owned)
        )
        self._force, self._expected = np.empty(held), np.empty(held)
        self._difference = np.empty(owned)
        self._fixed: np.ndarray | None = None
        # On a shape: what the discretisation gives values at, of the nodes that this rank holds and one more around
        self._on_shape: tuple[Discretisation, BoundaryTerms | None] | None = None
        if self._shape is not None or self._sides.vary:
            active, self._shown = ranks.run_on_all(self._nodes)
            self._fixed = np.flatnonzero(~active)  # there a change is no error of a step
        with argument("field"):
            self._storage = ranks.run_on_all(lambda: self._stored(0.0))

    def close(self) -> None:
        """Free what was planned."""
        for planned in self._planned.values():
            planned.solver.close()

    def _one(self, problem: Problem, number: int) -> Problem:
        return problem if self.problems == 1 else in_time.one_in_time(problem, number)

    def begin(self, number: int) -> np.ndarray:
        """Begin the steps of one of the problems.

        Returns its initial values at the nodes that this rank holds, with those given on the sides.

        `ValueError` or `TypeError` on all ranks, if they, or its source, are not sound.
        """
        share, grid, initial = self.share, self.share.grid, self._initial
        self._problem = problem = self._one(self._every, number)
        self._sides = in_time.SidesInTime(problem.conditions)
        self._coefficients = in_time.CoefficientsInTime(problem)
        self._source = SourceInTime(problem, grid, self._time.dt)
        self._jumping = data_that_may_jump(problem, grid, share.ghosted, self._source)

        def begun() -> np.ndarray:
            initial.require_shape(grid)
            several = initial.problems > 1
            own = Sliced.some(initial.values, range(number, number + 1)) if several else None
            field = initial if own is None else Field("initial", own, initial.axes)
            return self._with_given(initial_values(field, problem, share.ghosted), 0.0)

        with argument("field"):
            self._source.require_until(self._time.end)
            self._ranks.run_on_all(lambda: self._source(0.0, share.ghosted))
        with argument("initial"):
            return self._ranks.run_on_all(begun)

    def jumps(self, t: float, later: float) -> bool:
        """Say whether data jump at a time, from which on a step goes; or all ranks raise `DataError`."""
        ranks = self._ranks
        try:
            return jump_at(
                self._jumping, t, later, lambda look: ranks.allgather(ranks.run_on_all(look))
            )
        except ValueError as error:
            raise DataError(f"at the time {t:g}: {error}") from error

    def _with_given(self, values: np.ndarray, t: float) -> np.ndarray:
        """Return values with those prescribed at a time, equal on both of a pair of periodic sides."""
        sides, u = self._sides(t), values.copy()
        outline = sides.values(self.share.grid, self._pieces)
        place, prescribed = (
            outline.known - [part.start for part in self.share.ghosted],
            outline.values,
        )
        if self._on_shape is not None:
            discretisation, outlines = self._on_shape
            which = self._problem.with_sides(sides), outline, _ring(self.share.ghosted), outlines
            places, prescribed = discretisation.given(*which)
            place = np.stack(places, axis=1) - 1
        held = ((place >= 0) & (place < values.shape)).all(axis=1)
        u[tuple(place[held].T)] = prescribed[0, held]
        for axis, around in enumerate(sides.periodic):
            if around and self.share.ghosted[axis].stop == self.share.grid.nodes[axis]:
                along = np.moveaxis(u, axis, 0)  # the ranks at both ends hold all along it
                along[-1] = along[0]
        return u

    def _nodes(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the owned nodes with unknowns, and those with values in a field, None of a rectangle."""
        faces, own = Medium({"a": Field("a", 1.0), "c": Field("c", 1.0)}), self.share.owned
        begun = self._problem.with_sides(self._sides(0.0))
        ring, discretisation = _ring(own), Discretisation(begun, faces, self.share.grid)
        equations = discretisation.equations(ring)
        inner, outlines = within(own, ring), equations.outlines
        if self._shape is not None:
            wide = discretisation.equations(_ring(self.share.ghosted)).outlines
            self._on_shape = discretisation, wide
        return equations.active[inner], None if outlines is None else outlines.reported[inner]

    def shown(self, values: np.ndarray) -> np.ndarray:
        """Return the owned nodes of values as a field has them: NaN outside of a shape."""
        own = self.share.without_ghosts(values)
        return own if self._shown is None else np.where(self._shown, own, np.nan)

    def _stored(self, t: float) -> np.ndarray | float:
        """Return the storage at a time at the nodes that this rank holds."""
        return Storage(self._coefficients(t)).at(self.share.ghosted)

    def __call__(
        self,
        levels: PreviousSteps,
        t: float,
        later: float,
        length: float,
        atol: float,
        *,
        anew: bool,
    ) -> StepResult:
        """Take a step of a length from the last values, at a time to a later one.

        `DataError` on all ranks, if the problem's data are not sound then.
        ``atol``: last change, root mean square, with which its solve is good enough; ``anew``: whether it is the first one
        after a jump.
        """
        method, share = self._method, self.share
        step = method.anew if anew else method.step(len(levels.values))
        # A coefficient counts as the source does: at the time of the stage.
        stage_at = stage_time(t, later, step.share)
        planned = self._planned_at(stage_at, length * method.weight / step.weight)
        problem, rest = planned.problem, 1.0 - step.share
        f, sides, newest = self._data(levels.newest, t, later, step.share)
        force = levels.weighted(tuple(weight / length for weight in step.past), self._force)
        if newest is not levels.newest:
            # Where values jump that are given, they are stored within the step: what is left of ``u_n`` in the
            # stage is the new one.
            force += step.past[0] / length * rest * (newest - levels.newest)
        if np.ndim(self._storage) or self._storage != 1.0:
            force *= self._storage
        if f is not None:
            force += f
        if sides is not None:  # of which an exchange counts as a coefficient
            problem = problem.with_sides(in_time.exchange_at(sides, problem.conditions, t))
        expected = levels.next(self._expected)
        start = step.share * expected + rest * newest if rest else expected
        problem = problem.with_fields(f=Sliced.on_part(share.grid.nodes, force, share.ghosted))
        solution = planned.solver(problem, start=FieldStart(share, start), atol=atol)
        new = np.asarray(solution.kept.local[0])  # which is not read-only
        if self._outside is not None:
            new = np.where(self._outside & np.isnan(new), 0.0, new)
        if rest:
            new = (new - rest * share.without_ghosts(newest)) / step.share
        difference = np.subtract(new, share.without_ghosts(expected), out=self._difference)
        if self._fixed is not None:
            difference.reshape(-1)[self._fixed] = 0.0
        size, far = (share.rms(values) for values in (new, difference))
        wide = share.with_ghosts(new)
        stage = step.share * wide + rest * newest if rest else wide
        stored = step.weight / length * self._storage, force
        balance = planned.balance(share, problem, stage, stored, f)
        error = solution.error_estimate / step.share
        return StepResult(wide, size, far, error, solution.report, balance, step)

    def _data(
        self, newest: np.ndarray, t: float, later: float, share: float
    ) -> tuple[np.ndarray | None, Sides | None, np.ndarray]:
        """Return the source within a step, its conditions on sides, and the last values with those prescribed at its begin.

        `DataError` on all ranks.
        """
        first, last = just_after(t, later - t), just_before(later, later - t)

        def evaluated() -> tuple[np.ndarray | None, Sides | None, np.ndarray]:
            f = self._source(stage_time(t, later, share), self.share.ghosted)
            if not self._sides.vary:
                # A plan has the sides of the problem that it was made for.
                return f, self._sides(0.0) if self.problems > 1 else None, newest
            sides = self._sides.between(first, last, share, self.share.grid, self._pieces)
            sides.boundaries(self.share.grid)  # checks the values
            return f, sides, newest if share == 1.0 else self._with_given(newest, first)

        try:
            return self._ranks.run_on_all(evaluated)
        except ValueError as error:
            raise DataError(f"between the times {t:g} and {later:g}: {error}") from error

    def _planned_at(self, stage: float, length: float) -> StepPlan:
        """Return the plan of a step with its stage at a time; or all ranks raise `DataError`."""
        if not self._coefficients.vary:
            return self._plan(length, stage)
        try:
            self._storage = self._ranks.run_on_all(lambda: self._stored(stage))
            return self._plan(length, stage)
        except ValueError as error:
            raise DataError(f"at the time {stage:g}: {error}") from error

    def _plan(self, length: float, stage: float) -> StepPlan:
        """Return the plan of steps of a length; coefficients are those of a stage."""
        kept = _PLANNED_ANEW if self._coefficients.vary else _PLANNED
        key = length, stage if self._coefficients.vary else 0.0
        planned = self._planned.pop(key, None)
        if planned is None:
            while len(self._planned) >= kept:
                oldest = next(iter(self._planned))
                self._planned.pop(oldest).solver.close()
            stepped = self._coefficients(stage)
            problem = step_problem(stepped, self._method.weight / length)
            how: dict[str, Any] = {"ranks": self._ranks, "settings": self._settings}
            solver = Solver(problem, self._local_solver, keep="unknowns", **how)
            planned = StepPlan(solver, problem, stepped)
        self._planned[key] = planned
        return planned


def _ring(part: Slices) -> Slices:
    """Return the nodes of a part and those around it."""
    return tuple(slice(p.start - 1, p.stop + 1) for p in part)


def _require_method(settings: SolveSettings) -> None:
    """Raise `Unsupported` where something is asked for that steps in time do not have."""
    unlike = {
        "dtype='float32'": settings.dtype != "float64",
        f"replicas={settings.replicas}": settings.replicas > 1,
        f"halo_depth={settings.halo_depth}": settings.halo_depth > 1,
        "until_mae": settings.until_mae is not None,
    }
    for name, is_given in unlike.items():
        if is_given:
            raise Unsupported(f"{name} is not for equations in time: leave it out")
