"""Problems whose data change with time: coefficients, sources and values on the sides as they are at an instant.

What depends on the time: the text of an expression in which ``t`` stands, wells with such strengths, a function ``f(x, y, t)``, in space
``f(x, y, z, t)``, as `takes_time` reads it, and node values with a leading axis, one for each of equally long intervals and one for the begin; before that
one for several problems. All else stays as it is.

The source of a problem in time, as node values at an instant.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mosaicdd.axes import coordinates, letters, spelled
from mosaicdd.discretisation.embedded_boundary import covered_cells
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.evaluated import Sliced, evaluate
from mosaicdd.problems.fields.expressions import Expression, OfPlace, at_instant, takes_time
from mosaicdd.problems.fields.fields import Field, Part
from mosaicdd.problems.fields.given import is_one_each, one_corner
from mosaicdd.problems.limits import exact
from mosaicdd.problems.problem import Problem, common_count
from mosaicdd.problems.shapes.apertures import Apertures
from mosaicdd.problems.shapes.outline import OutlinePiece
from mosaicdd.problems.shapes.sampling import sample_near
from mosaicdd.problems.shapes.shape import Shape, inside_ring
from mosaicdd.problems.sides.boundary import Boundary, BoundarySpec
from mosaicdd.problems.sides.conditions import Condition
from mosaicdd.problems.sides.parts import is_outline
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.settings import argument, concerning

_KEPT = 2  # samples of a source that may jump: at the end of a step, where the next one begins, and between


class SourceInTime:
    """The source of a problem, sampled at an instant.

    ``interval``: between the node values of a source that has a leading axis, from the time 0 on; between them it is
    interpolated linearly.

    ``may_jump``: whether it may jump in time.
    """

    def __init__(self, problem: Problem, grid: Grid, interval: float):
        source = problem.source
        self._grid, self._shape = grid, problem.domain.shape
        self._covering = covered_cells(problem, grid)
        self._axes, self._interval = len(grid.shape), interval
        self._source: Any = None if source is None else source.values
        self._frames = 0
        if source is not None and source.times is not None:  # of this problem alone, here
            self._source = Sliced.of_time(self._source, 0)
            self._frames = source.times
            if self._frames == 1:  # at all times
                self._source, self._frames = Sliced.of_time(self._source, 0), 0
        elif source is not None and source.problems > 1:
            self._frames = source.problems
        with argument("the field f"):
            known = None if self._frames else in_time(self._source, self._axes)
        self._at_time = known and known[0]
        self.may_jump = known is not None and known[1]
        self._fixed = not self._frames and known is None
        self._sampled: list[tuple[float, Part, np.ndarray]] = []  # the last ones

    def require_until(self, end: float) -> None:
        """Check that the source has node values up to a time; else raise `ValueError`."""
        last = (self._frames - 1) * self._interval
        if self._frames and last < end * (1 - 1e-9):
            raise ValueError(
                f"the field f has values at {self._frames} times, the last at {last:g}; steps to {end:g} "
                f"need {round(end / self._interval) + 1}"
            )

    def __call__(self, t: float, part: Part) -> np.ndarray | None:
        """Return the values at the nodes of a part, ``(rows, columns)``, not to be changed; None if zero."""
        if self._source is None:
            return None
        if not (self._fixed or self.may_jump):
            return self._at(t, part)
        t = 0.0 if self._fixed else t
        for known, place, values in self._sampled:
            if (known, place) == (t, part):
                return values
        values = self._at(t, part)
        self._sampled = [(t, part, values), *self._sampled][: 1 if self._fixed else _KEPT]
        return values

    def _at(self, t: float, part: Part) -> np.ndarray:
        if not self._frames:
            now = self._source if self._at_time is None else self._at_time(t)
            return self._sampled_of("f", now, part)
        position = exact(t) / self._interval
        before = max(0, min(int(position * (1 + 1e-12)), self._frames - 2))
        earlier, later = (self._frame(number, part) for number in (before, before + 1))
        return earlier + (position - before) * (later - earlier)

    def _frame(self, number: int, part: Part) -> np.ndarray:
        """Return the node values of one time."""
        frame = Sliced.of_time(self._source, number)
        return self._sampled_of(f"f at time {number * self._interval:g}", frame, part)

    def _sampled_of(self, name: str, values: Any, part: Part) -> np.ndarray:
        field = Field(name, values, self._axes)
        return sampled(field, self._shape, self._grid, part, self._covering)


def sampled(
    field: Field,
    shape: Shape | None,
    grid: Grid,
    part: Part,
    covering: Callable[[Part], Apertures] | None = None,
) -> np.ndarray:
    """Return values of one problem at the nodes of a part, ``(rows, columns)``.

    Beside a domain that is no rectangle they are as `sample_near` has them, further out zero; of values per cell the
    means over volumes, by a ``covering``.
    """
    if covering is not None and shape is not None and field.per_cell(grid):
        cover = covering(part)
    else:
        cover = Apertures(inside=inside_ring(shape, grid, part))
    return sample_near(field, grid, part, cover, fill=0.0)[0]


def initial_values(field: Field, problem: Problem, part: Part) -> np.ndarray:
    """Return the initial values of one problem at the nodes of a part, ``(rows, columns)``.

    Beside a domain that is no rectangle as `sampled` has them. Of two periodic nodes the first has the value of the last
    where its own is not finite, as where the cells of a mask are inside at the last alone.

    `ValueError` if a value inside is not finite.
    """
    grid, shape = problem.domain.grid(), problem.domain.shape
    values = sampled(field, shape, grid, part)
    if shape is None or field.number is not None:
        return values
    samples = np.array(field.sample_as_given(grid, part, checked=False)[0])
    lacking = ~np.isfinite(samples)
    for axis, around in enumerate(problem.conditions.periodic):
        if around and part[axis].start == 0 and part[axis].stop == grid.nodes[axis]:
            along = np.moveaxis(samples, axis, 0)
            along[0] = np.where(np.isfinite(along[0]), along[0], along[-1])
    return np.where(lacking & np.isfinite(samples), samples, values)


def in_time(values: Any, axes: int) -> tuple[Callable[[float], Any], bool] | None:
    """Return a function of time for values, and whether it may jump; None if they stay.

    ``values``: a number, a text, a function, an array, wells or foils, or a list of these. The time may be a `TimeLimit`.
    """
    if isinstance(values, str) and not values.startswith("lognormal:"):
        text, variables = values.removeprefix("expr:"), (*reversed(letters(axes)), "pi")
        known = Expression(text, variables, t=0.0)
        if not known.uses("t"):
            return None
        if known.may_jump("t"):
            return lambda t: Expression(text, variables, t=t), True
        return lambda t: Expression(text, variables, t=exact(t)), False
    if is_one_each(values):
        each = [in_time(value, axes) for value in values]
        if not any(each):
            return None
        both = list(zip(values, each, strict=True))
        jumps = any(known[1] for known in each if known)
        return lambda t: [known[0](t) if known else value for value, known in both], jumps
    if hasattr(values, "beside"):  # of wells, and of foils
        beside = in_time(values.beside, axes)
        if beside is None and values.at_time(0.0, values.beside) is values:
            return None
        at, jumps = beside or (lambda t: values.beside, False)
        jumps |= getattr(values, "may_jump", False)
        return lambda t: values.at_time(t, at(t)), jumps
    if callable(values) and (takes := takes_time(values, axes)):
        return lambda t: at_instant(values, takes, float(t)), True
    return None


def at_time(values: Any, t: float, axes: int) -> Any:
    """Return values as they are at a time; themselves if they stay."""
    known = in_time(values, axes)
    return values if known is None else known[0](t)


def varies(values: Any, axes: int) -> bool:
    """Say whether values depend on the time."""
    return in_time(values, axes) is not None


def may_jump(values: Any, axes: int) -> bool:
    """Say whether values may jump in time, as far as is known; of node values at times nothing is."""
    known = in_time(values, axes)
    return known is not None and known[1]


def problems_in_time(problem: Problem, initial: Field) -> int:
    """Return the number of problems in time of initial values, sides and source.

    `ValueError` if they are of different numbers. `TypeError` if those at the begin are a function of the time.
    """
    _require_at_begin(initial, problem)
    counts = {"the field initial": initial.problems} | problem.conditions.counts
    source = problem.source
    if source is not None and source.times is not None:
        counts["the field f"] = source.problems
    return common_count(counts)


def _require_at_begin(initial: Field, problem: Problem) -> None:
    """Check that initial values are of one time, and lie where the domain does; else raise `ValueError` or `TypeError`."""
    values, axes = initial.values, initial.axes
    if callable(values) and takes_time(values, axes) == "after":
        raise TypeError(
            f"initial is of the time 0: give a function of ({coordinates(axes)}) without the time"
        )
    times = getattr(values, "times", None)  # of a file
    if "time" in getattr(values, "dims", ()):
        times = values.sizes["time"]
    if getattr(values, "name", None) == "/solution" and "time" in getattr(values, "file", ()):
        times = len(values)  # of h5py
    if times is not None:
        raise ValueError(
            f"initial has {times} times, of which one is needed: give the field at one, as series[-1], or by a "
            "command line FILE.h5 for the last and FILE.h5:K for the time number K"
        )
    corner, place = (
        one_corner({"initial": values}, problem.domain.cells, None),
        problem.domain.grid(),
    )
    if corner is not None and not np.allclose(
        corner, place.origin[::-1], rtol=1e-12, atol=1e-3 * min(place.steps)
    ):
        raise ValueError(
            f"initial begins at ({spelled(corner)}) by its coordinates, the domain at ({spelled(place.origin[::-1])}): "
            f"give the domain the origin {spelled(corner)}"
        )


def one_in_time(problem: Problem, number: int) -> Problem:
    """Return one of several problems in time; sources are not read yet."""
    fields, source, which = dict(problem.fields), problem.source, range(number, number + 1)
    if source is not None and source.times is not None and source.problems > 1:
        fields["f"] = Sliced.some(source.values, which)
    return dataclasses.replace(problem, fields=fields, sides=problem.conditions.some(which))


def snapshots_of(field: Field) -> list[Field]:
    """Return a field at two times, the first two that it has node values of; of one that stays as it is it alone."""
    values, axes = field.values, field.axes
    if field.times is not None:
        still = Sliced.of_time(values, 0)
        return snapshots_of(Field(field.name, still, axes))
    if field.problems > 1:
        stills = [Sliced.of_time(values, number) for number in (0, 1)]
    elif varies(values, axes):
        stills = [at_time(values, t, axes) for t in (0.0, 1.0)]
    else:
        return [field]
    return [Field(field.name, field.among_foils(still), axes) for still in stills]


class CoefficientsInTime:
    """The coefficients of a problem at an instant, exchange with them; those that depend on the solution do not on the time.

    `ValueError` if a text is no expression, with the field's name.

    ``names``: of those that depend on the time; ``vary``: whether one does, or an exchange.
    """

    def __init__(self, problem: Problem):
        self._problem, self._axes = problem, len(problem.domain.cells)
        self.names: list[str] = []
        for name, values in problem.fields.items():
            if name == "f" or name in problem.functions:
                continue
            with argument(f"the field {name}"):
                if varies(values, self._axes):
                    self.names.append(name)
        self._exchange = _alphas_vary(problem.conditions)
        self.vary = bool(self.names) or self._exchange

    def __call__(self, t: float) -> Problem:
        """Return the problem with its coefficients at a time."""
        if not self.vary:
            return self._problem
        fields, problem = self._problem.fields, self._problem
        if self._exchange:
            problem = problem.with_sides(exchange_at(problem.conditions, problem.conditions, t))
        return problem.with_fields(
            **{name: at_time(fields[name], t, self._axes) for name in self.names}
        )


def _alphas_vary(sides: Sides) -> bool:
    """Say whether ``alpha`` of a Robin condition depends on the time."""
    return any(varies(part.alpha, sides.axes) for part in sides.parts)


def exchange_at(sides: Sides, before: Sides, t: float) -> Sides:
    """Return conditions with the ``alpha`` of others as it is at a time."""
    alphas = {part.as_given: at_time(part.alpha, t, before.axes) for part in before.parts}
    conditions = {
        part.as_given: dataclasses.replace(part.condition, alpha=alphas[part.as_given])
        if part.condition.exchanges
        else part.condition
        for part in sides.parts
    }
    return Sides(conditions, sides.data, sides.axes)


class SidesInTime:
    """The conditions of a problem at an instant."""

    def __init__(self, sides: Sides):
        self._sides = sides
        data = sides.data
        axes = sides.axes
        self._moving_data = isinstance(data, BoundarySpec) and data.at_time(0.0, axes) is not data
        with concerning("sides"), argument("alpha"):
            self._exchange = _alphas_vary(sides)
        self.vary = self._moving_data or self._exchange
        for part in sides.parts:
            with concerning("sides"), argument(part.called):
                self.vary |= varies(part.values, axes)

    def __call__(self, t: float) -> Sides:
        """Return the conditions at a time."""
        if not self.vary:
            return self._sides
        conditions, data, axes = {}, self._sides.data, self._sides.axes
        at = {id(part.values): at_time(part.values, t, axes) for part in self._sides.parts}
        for part in self._sides.parts:
            condition = part.condition
            if not condition.periodic:
                condition = dataclasses.replace(condition, values=at[id(part.values)])
            conditions[part.as_given] = condition
        if isinstance(data, BoundarySpec):
            data = data.at_time(t, axes)
        sides = Sides(conditions, data, axes)
        return exchange_at(sides, self._sides, t) if self._exchange else sides

    def between(
        self, t: float, later: float, share: float, grid: Grid, pieces: Mapping[str, OutlinePiece]
    ) -> Sides:
        """Return conditions whose values are ``share`` of those at a later time and the rest at ``t``.

        ``pieces``: what the domain has of the sides of the rectangle.
        """
        if not self.vary or share == 1.0:
            return self(later)
        begin, end = self(t), self(later)
        conditions: dict[str, Condition] = {}
        sides = zip(begin.evaluated(grid, pieces), end.evaluated(grid, pieces), strict=True)
        for old, new in sides:
            values = (1.0 - share) * np.asarray(old.values) + share * np.asarray(new.values)
            conditions[new.name] = dataclasses.replace(new, values=values).condition(0)
        for before, after in zip(begin.parts, end.parts, strict=True):
            condition: Any = after.condition
            if is_outline(after.name) and not condition.periodic:
                mixed = _interpolated(before.values, after.values, share)
                conditions[str(after)] = dataclasses.replace(condition, values=mixed)
        edges = zip(begin.edge_values(grid), end.edge_values(grid), strict=True)
        data = [
            Boundary({k: (1.0 - share) * old.edges[k] + share * new.edges[k] for k in old.edges})
            for old, new in edges
        ]
        return Sides(conditions, data[0] if data else None, len(grid.shape))


def _interpolated(before: Any, after: Any, share: float) -> OfPlace:
    """Return values between those at two times, as a function of coordinates."""

    def values(*places: np.ndarray) -> np.ndarray:
        first, last = (evaluate(each, places[::-1], "a side") for each in (before, after))
        return (1.0 - share) * first + share * last

    return OfPlace(values)
