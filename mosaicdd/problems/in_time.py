"""Problems whose data change with time: coefficients, sources and values on the sides as they are at an instant.

What depends on the time: the text of an expression in which ``t`` stands, wells with such strengths, a function ``f(x, y, t)``, in space
``f(x, y, z, t)``, and node values with a leading axis, one for each of equally long intervals and one for the begin. All else
stays as it is.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mosaicdd.lattice.axes import ends, letters
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.evaluated import Sliced, evaluate
from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.fields.fields import Field, Part
from mosaicdd.problems.fields.given import real_array
from mosaicdd.problems.operators.edge_means import require_sign
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.outline import OutlinePiece
from mosaicdd.problems.shapes.sample_near import sample_near
from mosaicdd.problems.shapes.shape import Shape, inside_ring
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.problems.sides.conditions import Condition, Periodic
from mosaicdd.problems.sides.edge_data import BoundarySpec
from mosaicdd.problems.sides.parts import is_outline
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.settings import argument
from mosaicdd.unsupported import Unsupported


def at_time(values: Any, t: float, axes: int) -> Any:
    """Return values, given as a number, a text, a function or an array, as they are at a time."""
    if isinstance(values, str) and not values.startswith("lognormal:"):
        variables = (*reversed(letters(axes)), "pi")
        expression = Expression(values.removeprefix("expr:"), variables, t=t)
        return expression if expression.uses("t") else values
    if hasattr(values, "beside"):  # of wells, and of foils
        return values.at_time(t, at_time(values.beside, t, axes))
    if callable(values) and _takes_time(values, axes):
        return lambda *places: values(*places, t)
    return values


def varies(values: Any, axes: int) -> bool:
    """Say whether values depend on the time."""
    return at_time(values, 0.0, axes) is not values


def _takes_time(function: Callable, axes: int) -> bool:
    """Say whether a function has an argument more than there are coordinates."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):  # of a library that does not say
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in parameters) == axes + 1


class SourceInTime:
    """The source of a problem, sampled at an instant.

    ``interval``: between the node values of a source that has a leading axis, from the time 0 on; between them it is
    interpolated linearly.
    """

    def __init__(self, problem: Problem, grid: Grid, interval: float):
        source = problem.source
        self._grid, self._shape = grid, problem.domain.shape
        self._axes, self._interval = len(grid.shape), interval
        self._source: Any = None if source is None else source.values
        self._frames = 0 if source is None or source.problems == 1 else source.problems
        self._fixed = not (self._frames or varies(self._source, self._axes))
        self._sampled: tuple[Part, np.ndarray | None] | None = None

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
        if not self._fixed:
            return self._at(t, part)
        if self._sampled is None or self._sampled[0] != part:
            self._sampled = part, self._at(t, part)
        return self._sampled[1]

    def _at(self, t: float, part: Part) -> np.ndarray:
        if not self._frames:
            return self._sampled_of("f", at_time(self._source, t, self._axes), part)
        position = t / self._interval
        before = max(0, min(int(position * (1 + 1e-12)), self._frames - 2))
        earlier, later = (self._frame(number, part) for number in (before, before + 1))
        return earlier + (position - before) * (later - earlier)

    def _frame(self, number: int, part: Part) -> np.ndarray:
        """Return the node values of one time."""
        frame = Sliced.of_time(self._source, number)
        return self._sampled_of(f"f at time {number * self._interval:g}", frame, part)

    def _sampled_of(self, name: str, values: Any, part: Part) -> np.ndarray:
        return sampled(Field(name, values, self._axes), self._shape, self._grid, part)


def stills_of(field: Field) -> list[Field]:
    """Return a field at two times, the first two that it has node values of; of one that stays as it is it alone."""
    values, axes = field.values, field.axes
    if field.problems > 1:
        stills = [Sliced.of_time(values, number) for number in (0, 1)]
    elif varies(values, axes):
        stills = [at_time(values, t, axes) for t in (0.0, 1.0)]
    else:
        return [field]
    return [Field(field.name, field.among_foils(still), axes) for still in stills]


def sampled(field: Field, shape: Shape | None, grid: Grid, part: Part) -> np.ndarray:
    """Return values of one problem at the nodes of a part, ``(rows, columns)``.

    Beside a domain that is no rectangle they are as `sample_near` has them, further out zero.
    """
    inside = inside_ring(shape, grid, part)
    values = field.sample(grid, part) if inside is None else None
    if values is None:
        values = sample_near(field, grid, part, inside, fill=0.0)
    return values[0]


class CoefficientsInTime:
    """The coefficients of a problem at an instant; those that depend on the solution do not on the time.

    `ValueError` if a text is no expression, with the field's name.

    Attributes
    ----------
    vary
        Whether one depends on the time.
    """

    def __init__(self, problem: Problem):
        self._problem, self._axes = problem, len(problem.domain.cells)
        self._names: list[str] = []
        for name, values in problem.fields.items():
            if name == "f" or name in problem.functions:
                continue
            with argument(f"the field {name}"):
                if varies(values, self._axes):
                    self._names.append(name)
        self.vary = bool(self._names)

    def __call__(self, t: float) -> Problem:
        """Return the problem with its coefficients at a time."""
        if not self.vary:
            return self._problem
        fields = self._problem.fields
        return self._problem.with_fields(
            **{name: at_time(fields[name], t, self._axes) for name in self._names}
        )


class SidesInTime:
    """The conditions of a problem at an instant."""

    def __init__(self, sides: Sides):
        self._sides = sides
        data = sides.data
        axes = sides.axes
        self._moving_data = isinstance(data, BoundarySpec) and data.at_time(0.0, axes) is not data
        self.vary = self._moving_data or any(varies(part.values, axes) for part in sides.parts)

    def __call__(self, t: float) -> Sides:
        """Return the conditions at a time."""
        if not self.vary:
            return self._sides
        conditions, data, axes = {}, self._sides.data, self._sides.axes
        at = {id(part.values): at_time(part.values, t, axes) for part in self._sides.parts}
        for part in self._sides.parts:
            condition = part.condition
            if not isinstance(condition, Periodic):
                condition = dataclasses.replace(condition, values=at[id(part.values)])
            conditions[str(part)] = condition
        if isinstance(data, BoundarySpec):
            data = data.at_time(t, axes)
        return Sides(conditions, data, axes)

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
            condition = after.condition
            if is_outline(after.name) and not isinstance(condition, Periodic):
                mixed = _Mixed(before.values, after.values, share)
                conditions[str(after)] = dataclasses.replace(condition, values=mixed)
        edges = zip(begin.edge_values(grid), end.edge_values(grid), strict=True)
        data = [
            Boundary({k: (1.0 - share) * old.edges[k] + share * new.edges[k] for k in old.edges})
            for old, new in edges
        ]
        return Sides(conditions, data[0] if data else None, len(grid.shape))


class _Mixed:
    """Values between those at two times, as a function of ``x`` and ``y``."""

    def __init__(self, before: Any, after: Any, share: float):
        self._before, self._after, self._share = before, after, share

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return them at points."""
        before, after = (
            evaluate(values, (y, x), "a side") for values in (self._before, self._after)
        )
        return (1.0 - self._share) * before + self._share * after


def step_problem(problem: Problem, rate: float) -> Problem:
    """Return the problem of an implicit step of ``s du/dt + A u = f``: ``rate s u + A u = f``.

    Its source is that of zeros at the nodes, to be replaced; the values on its sides are those at time 0.
    ``rate``: one over the length of a step, times a weight of the method.

    `ValueError` if the equation has no reaction, or there are several problems.
    """
    equation = problem.equation.steady or problem.equation
    if equation.reaction is None:
        raise Unsupported(
            f"{equation.name} has no parameter that multiplies u, through which it could be solved in "
            "time; heat, advection-diffusion and others have: see the equations' page"
        )
    if max(problem.conditions.counts.values(), default=1) > 1:
        raise Unsupported(
            f"an equation in time is solved for one problem, the sides are of {problem.problems}; solve "
            "them one by one"
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
    what = f"the field {field.name}"
    if getattr(field.values, "shape", None):
        shape = tuple(field.values.shape)
        return Sliced(shape, lambda place: real_array(field.values[place], what) + number)
    return lambda *places: evaluate(field.values, places[::-1], what) + number


class Storage:
    """What multiplies ``du/dt`` in an equation: 1, a number, or a field at the nodes or per cell.

    Where it is given per cell a node has the mean of the cells around it, of which its control volume consists.

    Attributes
    ----------
    name
        Of the equation's parameter; empty if it has none.
    number
        Its value; None if it is a field.

    Raises
    ------
    ValueError
        If the values are of another grid.
    Unsupported
        If they are per cell, and the domain no rectangle.
    """

    def __init__(self, problem: Problem):
        self.name = getattr(problem.equation, "storage", None) or ""
        self._grid, self._shape = problem.domain.grid(), problem.domain.shape
        values = problem.fields.get(self.name, problem.equation.parameters.get(self.name, 1.0))
        self._field = Field(self.name, values, len(problem.domain.cells))
        self.number = self._field.number
        self._per_cell = self._field.per_cell(self._grid)
        if self._per_cell and self._shape is not None:
            raise Unsupported(
                f"the field {self.name} is given per cell, and the domain is no rectangle: give it at the nodes"
            )
        if not self._per_cell:
            self._field.require_shape(self._grid)

    def at(self, part: Part) -> np.ndarray | float:
        """Return the values at the nodes of a part; `ValueError` if they are not positive, or not finite."""
        if self.number is not None:
            return self.number
        if not self._per_cell:
            values = sampled(self._field, self._shape, self._grid, part)
            inside = inside_ring(self._shape, self._grid, part)
            if inside is not None:  # what is zero further out counts nowhere
                within = (slice(1, -1),) * values.ndim
                values = np.where(inside[within] | (values != 0), values, 1.0)
            return require_sign(values, self._field, self._grid, part, positive=True)
        cells = tuple(
            slice(max(p.start - 1, 0), min(p.stop, count))
            for p, count in zip(part, self._grid.shape, strict=True)
        )
        values = self._field.sample_cells(cells)
        self._field.require_finite(values, self._grid, cells)
        require_sign(values, self._field, self._grid, cells, positive=True)
        beyond = [
            (int(p.start == 0), int(p.stop == nodes))
            for p, nodes in zip(part, self._grid.nodes, strict=True)
        ]
        total, count = np.pad(values, beyond), np.pad(np.ones_like(values), beyond)
        for axis in range(values.ndim):  # sums of neighbours, whose axis gets shorter by one
            low, high = ends(axis, values.ndim)
            total, count = (sums[low] + sums[high] for sums in (total, count))
        return total / count

    def raised(self, reaction: Field, rate: float) -> Sliced:
        """Return the values of a reaction at the nodes with ``rate`` times these added."""

        def read(place: tuple) -> np.ndarray:
            part = tuple(p for p in place if p is not Ellipsis)
            values = reaction.sample_as_given(self._grid, part, checked=False)[0]
            return values + rate * self.at(part)

        return Sliced(self._grid.nodes, read)
