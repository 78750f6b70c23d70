"""What a problem was given, by name, as arrays that one can differentiate by."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from mosaicdd.problems.discretisation.discretisation import Discretisation
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.operators.medium import medium_of
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.conditions import Dirichlet, Robin
from mosaicdd.problems.sides.side_values import evaluated
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.settings import unknown
from mosaicdd.unsupported import Unsupported

_ALPHA = ".alpha"


class Parameters:
    """The coefficients, source, values and fluxes of a linear self-adjoint problem on a rectangle.

    Names are those of fields, of sides and their parts as they were given, and ``left.alpha`` of a Robin condition.

    `Unsupported` if gradients of the problem are not known.
    """

    def __init__(self, problem: Problem):
        require_differentiable(problem)
        self.problem, self.grid = problem, problem.domain.grid()
        self.fields = _fields(problem)
        sides = problem.conditions
        self.parts = {
            str(part): part for part in sides.parts if part.name in problem.pieces(self.grid)
        }
        if sides.data is None:
            whole = {part.name for part in self.parts.values() if part.whole}
            more = {name: Dirichlet() for name in problem.pieces(self.grid) if name not in whole}
            self.parts |= {str(part): part for part in Sides(more).parts}
        alphas = [n + _ALPHA for n, p in self.parts.items() if isinstance(p.condition, Robin)]
        self.names = (*self.fields, *self.parts, *alphas)

    def require(self, names: Any) -> None:
        """Raise `ValueError` for a name that is none of them."""
        for name in names:
            if name not in self.names:
                raise ValueError(unknown("derivative by", name, self.names))

    def values(self) -> dict[str, np.ndarray]:
        """Return all of them: of the whole domain, numbers as arrays of no axes."""
        every: dict[str, Any] = {}
        whole = tuple(slice(0, nodes) for nodes in self.grid.nodes)
        for name, field in self.fields.items():
            if field.number is not None:
                every[name] = field.number
            elif name.startswith("a") and field.per_cell(self.grid):
                every[name] = field.values
            else:
                every[name] = field.sample(self.grid, whole)[0]
        pieces = self.problem.pieces(self.grid)
        for name, part in self.parts.items():
            every[name] = evaluated(part, pieces[part.name], self.grid)[0]
            if name + _ALPHA in self.names:
                every[name + _ALPHA] = part.alpha
        return {name: np.array(values, float) for name, values in every.items()}

    def with_values(self, values: Mapping[str, np.ndarray]) -> Problem:
        """Return the problem with other values of some of them, conditions of the same kinds."""
        fields = {n: _plain(v) for n, v in values.items() if n in self.fields}
        conditions = {}
        for name, part in self.parts.items():
            changed: dict[str, Any] = {}
            if name in values:
                changed["values"] = values[name]
            if name + _ALPHA in values:
                changed["alpha"] = float(values[name + _ALPHA])
            conditions[name] = dataclasses.replace(part.condition, **changed)
        return self.problem.with_fields(**fields).with_sides(conditions or self.problem.sides)

    def with_source_only(self, source: np.ndarray) -> Problem:
        """Return the problem with another source, and zero on all sides."""
        zeros = {name: np.zeros(len(self._piece(name).nodes)) for name in self.parts}
        return self.with_values({**zeros, "f": source})

    def _piece(self, name: str) -> Any:
        return self.problem.pieces(self.grid)[self.parts[name].name]

    def acting(self, name: str) -> tuple[np.ndarray, ...]:
        """Return how the values of a side's part act: which of them, on which nodes ``(T, 2)``, with which weight.

        Weights of given values are the part that they have of a node's value, of others lengths, in cells.
        """
        probe = {other: np.zeros(len(self._piece(other).nodes)) for other in self.parts}
        probe[name] = np.ones_like(probe[name])
        values = self.with_values(probe).conditions.values(
            self.grid, self.problem.pieces(self.grid)
        )
        held = isinstance(self.parts[name].condition, Dirichlet)
        nodes, weights = (
            (values.known, values.values[0]) if held else (values.natural, values.fluxes[0])
        )
        nodes, weights = nodes[weights != 0], weights[weights != 0]
        flat, own = (
            np.ravel_multi_index(tuple(at.T), self.grid.nodes)
            for at in (nodes, self._piece(name).nodes)
        )
        order = np.argsort(own)
        return order[np.searchsorted(own[order], flat)], nodes, weights


def _plain(value: np.ndarray) -> Any:
    return float(value) if value.ndim == 0 else value


def _fields(problem: Problem) -> dict[str, Field]:
    """Return the coefficients that may vary, and the source, by name."""
    fields = {}
    for name in problem.equation.fields:
        if name in problem.arrays:
            fields[name] = problem.arrays[name]
        elif name in problem.parameters and name in getattr(problem.equation, "varying", ()):
            fields[name] = Field(name, problem.parameters[name])
    several = getattr(problem.equation, "instead", {}).get("a", {})
    instead = [*several] if {*several} & {*problem.fields} else []
    for name in instead:
        fields[name] = problem.arrays.get(name) or Field(name, problem.parameters[name])
    fields = {name: field for name, field in fields.items() if not name.startswith("b")}
    if "axy" in fields and not medium_of(problem.operator).couples_corners:
        del fields["axy"]  # with five points there is none
    fields["f"] = problem.source or Field("f", 0.0)
    return fields


def _floats(problem: Problem) -> bool:
    """Say whether solutions are known up to a constant."""
    return Discretisation(problem, medium_of(problem.operator), problem.domain.grid()).floating


def require_differentiable(problem: Problem) -> None:
    """Raise `Unsupported` unless the gradients of a problem are known."""
    operator, why = problem.operator, ""
    if problem.equation.steady is not None:
        why = f"{problem.equation.name} is an equation in time"
    elif isinstance(operator, Nonlinear):
        why = f"{problem.equation.name} is not linear"
    elif len(problem.domain.cells) != 2:
        why = "the domain is a box"
    elif problem.domain.shape is not None:
        why = "the domain is no rectangle"
    elif problem.domain.grid().aspect:
        why = f"cells are no squares, but {problem.domain.grid().cell}"
    elif any(problem.conditions.periodic):
        why = "sides are periodic"
    elif problem.problems > 1:
        why = f"there are {problem.problems} problems"
    elif not medium_of(operator).self_adjoint:
        why = f"{problem.equation.name} has a velocity"
    elif not problem.plain and _floats(problem):
        why = "no side and no reaction holds the level of the solution"
    elif "f" not in problem.equation.fields:
        why = f"{problem.equation.name} has no source, as the adjoint solve has (poisson does)"
    if why:
        raise Unsupported(
            f"{why}: gradients are of single linear self-adjoint problems on rectangles of square cells without periodic sides"
        )
