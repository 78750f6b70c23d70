"""The problem of an implicit step of an equation in time, and what multiplies ``du/dt`` in it."""

from typing import Any

import numpy as np

from mosaicdd.discretisation.covering import CoveredCells
from mosaicdd.problems.fields.evaluated import Sliced, evaluate
from mosaicdd.problems.fields.expressions import OfPlace
from mosaicdd.problems.fields.fields import Field, Part, require_sign, sample_signed
from mosaicdd.problems.fields.given import real_array
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.in_volumes import means_in_volumes
from mosaicdd.problems.shapes.shape import inside_ring
from mosaicdd.time.data import SidesInTime, sampled
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
    if getattr(field.values, "shape", None):
        what = f"the field {field.name}"
        shape = tuple(field.values.shape)
        return Sliced(shape, lambda place: real_array(field.values[place], what) + number)
    return _Raised(field, number)


class _Raised(OfPlace):
    """The function, or expression, of a field with a number added."""

    def __init__(self, field: Field, number: float):
        self._field, self._number = field, number

    def __call__(self, *places: np.ndarray) -> np.ndarray:
        """Return its values at coordinates, x first."""
        what = f"the field {self._field.name}"
        return evaluate(self._field.values, places[::-1], what) + self._number


class Storage:
    """What multiplies ``du/dt`` in an equation: 1, a number, or a field at the nodes or per cell.

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
        self._covering = CoveredCells(problem, self._grid)
        values = problem.fields.get(self.name, problem.equation.parameters.get(self.name, 1.0))
        self._field = Field(self.name, values, len(problem.domain.cells))
        self.number = self._field.number
        self._field.require_shape(self._grid, cells=True)

    def at(self, part: Part) -> np.ndarray | float:
        """Return the values at the nodes of a part; `ValueError` if they are not positive, or not finite."""
        if self.number is not None:
            return self.number
        if self._shape is None:
            return sample_signed(self._field, self._grid, part, positive=True)
        if self._field.per_cell(self._grid):
            around = self._field, self._grid, part, self._covering(part)
            return means_in_volumes(*around, fill=1.0, positive=True)[0]
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
            if reaction.per_cell(self._grid):
                values = sampled(reaction, self._shape, self._grid, part, self._covering)
            else:
                values = reaction.sample_as_given(self._grid, part, checked=False)[0]
            return values + rate * self.at(part)

        return Sliced(self._grid.nodes, read)
