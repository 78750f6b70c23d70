"""The data of a problem by name, as arrays to differentiate by, and calls of solves with tensors."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch.autograd.forward_ad import unpack_dual

from mosaicdd.axes import all_of
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.embedded_boundary import EmbeddedBoundary, embedded_boundary
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.fields.fields import Field, Part
from mosaicdd.problems.fields.given import is_number
from mosaicdd.problems.operators.jacobian import only_reacts
from mosaicdd.problems.operators.medium import medium_of
from mosaicdd.problems.operators.tensors import MIXED
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.problems.sides.conditions import Condition, Dirichlet
from mosaicdd.problems.sides.parts import SidePart, is_outline
from mosaicdd.problems.sides.side_values import evaluated
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.settings import unknown
from mosaicdd.torch_defaults import on_processor
from mosaicdd.unsupported import Unsupported

Call = TypeVar("Call", bound=Callable[..., torch.Tensor])


def untraced(call: Call) -> Call:
    """Let a method's calls be run as they are: a solve is no graph of torch's.

    `Unsupported` within transforms of torch.func, and of tensors that have tangents (torch.autograd.forward_ad).
    """

    @functools.wraps(call)
    def run(*arguments: Any, **named: Any) -> torch.Tensor:
        if torch._C._functorch.maybe_current_level() is not None:
            raise Unsupported(
                "torch.func transforms no solves: take torch.autograd's functions, as grad or functional.jvp, "
                "and give a batch as one more axis in front"
            )
        tensors = (of for of in named.values() if isinstance(of, torch.Tensor))
        if any(unpack_dual(of).tangent is not None for of in tensors):
            raise Unsupported(
                "solves are differentiated backwards, and forward_ad asks for tangents: take torch.autograd.functional.jvp, "
                "which makes them of two derivatives backwards"
            )
        # Imported by whoever compiles, and by nobody else: it takes a second.
        alone = torch.compiler.disable(call) if "torch._dynamo" in sys.modules else call
        with on_processor():
            return alone(*arguments, **named)

    return run  # type: ignore[return-value]


def require_names(unnamed: Sequence[object], wrt: Sequence[str]) -> None:
    """Raise `TypeError` for tensors that are given without a name."""
    if unnamed:
        raise TypeError(f"tensors are given by name, as solve({wrt[0]}=...); wrt: {', '.join(wrt)}")


_ALPHA = ".alpha"


class Parameters:
    """The coefficients, source, values and fluxes of a problem.

    Names are those of fields, of sides, outlines and parts of them as they were given, ``left.alpha`` of a Robin
    condition, and those of the domain's parameters.

    `Unsupported` if gradients of the problem are not known; `ValueError` if two have one name.

    Attributes
    ----------
    of_shape
        By name, the numbers in the distance of the domain.
    numbers
        By name, what is one number for the whole domain, of an equation that is not linear.
    parts
        By name, all but periodic sides, insulated staircases, and sides that the outline of a shape replaces.
    """

    def __init__(self, problem: Problem):
        require_differentiable(problem)
        self.problem, self.grid = problem, problem.domain.grid()
        self.pieces = problem.pieces(self.grid)
        self.fields = _fields(problem)
        conditions = _conditions(problem, self.grid)
        all_parts = Sides(conditions, axes=len(self.grid.shape)).parts
        self._fixed = {p.as_given: p.condition for p in all_parts if _is_fixed(p, problem)}
        self._replaced = [
            part.as_given
            for part in problem.conditions.parts
            if part.name in self.pieces and self.pieces[part.name].replaced
        ]
        self.parts = {part.as_given: part for part in all_parts if part.as_given not in self._fixed}
        alphas = [
            name + _ALPHA
            for name, part in self.parts.items()
            if part.condition.exchanges and (is_number(part.alpha) or not is_outline(part.name))
        ]
        operator = problem.operator
        self.numbers = {} if operator.linear else operator.numbers
        self.of_shape = problem.domain.parameters
        names = (*self.fields, *self.numbers, *self.parts, *alphas)
        for name in self.of_shape:
            if name in names:
                raise ValueError(
                    f"{name} is a parameter of the domain and of the problem: call that of the domain otherwise"
                )
        self.names = (*names, *self.of_shape)
        self._acting: dict[str, Sequence[tuple[np.ndarray, ...]]] = {}

    @property
    def linear(self) -> bool:
        """Whether the equation is linear."""
        return self.problem.operator.linear

    @property
    def shifted(self) -> list[str]:
        """The outlines whose values are no numbers, and so not among `values`."""
        return [
            name
            for name, part in self.parts.items()
            if is_outline(part.name) and not is_number(part.values)
        ]

    def shapes_of(self, name: str) -> list[tuple[int, ...]]:
        """Return the shapes of arrays that a field may be given as: at the nodes, per cell, or both."""
        operator, nodes, cells = self.problem.operator, self.grid.nodes, tuple(self.grid.shape)
        if operator.linear or name == "f":
            return [nodes] if name.startswith("b") else [nodes, cells]
        if name == operator.factor:  # which is what makes it one
            return [nodes, cells] if operator.two_point_flux else [cells]
        if only_reacts(operator, name):
            return [nodes, cells]
        return [nodes]

    @property
    def whole(self) -> Part:
        """All nodes of the grid."""
        return all_of(self.grid.nodes)

    def require(self, names: Any) -> None:
        """Raise `ValueError` for a name that is none of them."""
        for name in names:
            if name not in self.names:
                raise ValueError(unknown("derivative by", name, self.names))

    def values(self) -> dict[str, np.ndarray]:
        """Return all data of the domain by name; numbers as arrays of no axes, of outlines these alone.

        Beside a shape they may be none.
        """
        data: dict[str, Any] = {**self.numbers, **self.of_shape}
        checked = self.problem.domain.shape is None
        for name, field in self.fields.items():
            data[name] = field.number
            if field.number is None:
                data[name] = field.sample_as_given(self.grid, self.whole, checked=checked)[0]
        for name, part in self.parts.items():
            if not is_outline(part.name):
                piece = self.pieces[part.name]
                data[name] = piece.as_side(evaluated(part, piece, self.grid)[0], self.grid)
            elif is_number(part.values):
                data[name] = part.values
            if name + _ALPHA in self.names:
                data[name + _ALPHA] = part.alpha
                if not is_number(part.alpha):
                    piece = self.pieces[part.name]
                    at_nodes = evaluated(part.exchanging, piece, self.grid)[0]
                    data[name + _ALPHA] = piece.as_side(at_nodes, self.grid)
        return {name: np.array(values, float) for name, values in data.items()}

    def with_values(self, values: Mapping[str, np.ndarray]) -> Problem:
        """Return the problem with other values of some of them, conditions of the same kinds."""
        mine = {n: v for n, v in values.items() if n in self.fields}
        fields = {n: self.fields[n].among_foils(_plain(v)) for n, v in mine.items()}
        fields |= {n: _plain(v) for n, v in values.items() if n in self.numbers}
        problem = self.problem.with_fields(**fields).with_sides(self._sides(values))
        return problem.with_domain(self.domain_of(values))

    def domain_of(self, values: Mapping[str, Any]) -> Domain:
        """Return the domain with other values of its parameters."""
        moved = {n: float(v) for n, v in values.items() if n in self.of_shape}
        same = all(self.of_shape[n] == v for n, v in moved.items())
        return self.problem.domain if same else self.problem.domain.with_parameters(**moved)

    def _sides(self, values: Mapping[str, np.ndarray]) -> Sides:
        conditions: dict[str, Condition] = dict(self._fixed)
        for name, part in self.parts.items():
            changed: dict[str, Any] = {}
            if name in values:
                changed["values"] = _plain(values[name])
            if name + _ALPHA in values:
                changed["alpha"] = _plain(values[name + _ALPHA])
            condition: Any = part.condition
            conditions[name] = dataclasses.replace(condition, **changed)
        if "outline" in conditions:  # whose condition these have
            conditions |= dict.fromkeys(self._replaced, conditions["outline"])
        return Sides(conditions, axes=len(self.grid.shape))

    def held(self, name: str) -> bool:
        """Say whether a side has given values of the solution."""
        return self.parts[name].condition.fixed

    @functools.cached_property
    def known(self) -> np.ndarray:
        """The nodes where values are given on sides or inside, ``(T, axes)``."""
        return self.problem.conditions.values(self.grid, self.pieces).known

    @functools.cached_property
    def outline(self) -> EmbeddedBoundary | None:
        """The outline of the domain; None of a rectangle."""
        return embedded_boundary(self.problem, self.grid)

    def acting(self, name: str) -> Sequence[tuple[np.ndarray, ...]]:
        """Return flat indices of a side's values, the nodes ``(T, axes)`` they act on, and weights.

        Weights of given values are the part that they have of a node's value, of others lengths, in cells. Where sides
        are periodic the last node is the first; values at both act one after the other.
        """
        if name not in self._acting:
            self._acting[name] = list(self._found_acting(name))
        return self._acting[name]

    def _found_acting(self, name: str) -> Iterator[tuple[np.ndarray, ...]]:
        piece = self.pieces[self.parts[name].name]
        periods = [-1 if n is None else n for n in self.problem.conditions.periods(self.grid)]
        flat_nodes = np.ravel_multi_index(tuple(piece.nodes.T), self.grid.nodes)
        order = np.argsort(flat_nodes)
        last = piece.nodes == periods
        for ends in np.unique(last, axis=0):
            probe = {
                other: np.zeros(len(self.pieces[part.name].nodes))
                for other, part in self.parts.items()
                if not is_outline(part.name)
            }
            probe[name] = (last == ends).all(axis=1).astype(float)
            shaped = {
                n: self.pieces[self.parts[n].name].as_side(v, self.grid) for n, v in probe.items()
            }
            values = self._sides(shaped).values(self.grid, self.pieces)
            nodes, weights = (
                (values.known, values.values[0])
                if self.held(name)
                else (values.natural, values.fluxes[0])
            )
            nodes, weights = nodes[weights != 0], weights[weights != 0]
            at = np.where(ends, periods, nodes)
            flat = np.ravel_multi_index(tuple(at.T), self.grid.nodes)
            # What flows in is entered where its faces are: the first copy may have none of the domain.
            yield (
                order[np.searchsorted(flat_nodes[order], flat)],
                nodes if self.held(name) else at,
                weights,
            )


def _plain(value: np.ndarray) -> Any:
    return float(value) if value.ndim == 0 else value


def _conditions(problem: Problem, grid: Grid) -> dict[str, Condition]:
    """Return the conditions on all sides and outlines by name, defaults among them."""
    sides, pieces = problem.conditions, problem.pieces(grid)
    parts = [part for part in sides.parts if part.name in pieces or problem.domain.shape]
    conditions = {
        part.as_given: part.condition
        for part in parts
        if is_outline(part.name) or not pieces[part.name].replaced
    }
    edges: Boundary | None = None
    if sides.data is not None:
        (edges,) = sides.edge_values(grid)
    for name, piece in pieces.items():
        if not piece.replaced and name not in conditions and piece.lengths.any():
            conditions[name] = Dirichlet(0.0 if edges is None else edges.named[name])
    if problem.domain.shape is not None and not any(is_outline(part.name) for part in parts):
        surface: Any = 0.0
        if edges is not None:
            surface = functools.partial(_on_surface, edges, grid)
        conditions["outline"] = Dirichlet(surface)
    return conditions


def _is_fixed(part: SidePart, problem: Problem) -> bool:
    """Say whether a condition has no value to differentiate by."""
    shape = problem.domain.shape
    insulated = shape is not None and shape.staircase and is_outline(part.name)
    return part.condition.periodic or (insulated and part.condition.natural)


def _on_surface(edges: Boundary, grid: Grid, *places: np.ndarray) -> np.ndarray:
    """Return the surface spanned by values on all edges, at coordinates (x, y)."""
    return edges.at(*np.moveaxis(grid.cells(np.stack(places[::-1], axis=-1)), -1, 0))


def _fields(problem: Problem) -> dict[str, Field]:
    """Return the coefficients that may vary, and the source, by name."""
    fields: dict[str, Field] = {}
    axes = len(problem.domain.cells)
    if not problem.operator.linear:
        return {**problem.operator.fields, "f": problem.source or Field("f", 0.0, axes)}
    for name in problem.equation.fields:
        if name in problem.arrays:
            fields[name] = problem.arrays[name]
        elif name in problem.parameters and name in problem.equation.varying:
            fields[name] = Field(name, problem.parameters[name], axes)
    several = problem.equation.instead.get("a", {})
    instead = [*several] if {*several} & {*problem.fields} else []
    for name in instead:
        fields[name] = problem.arrays.get(name) or Field(name, problem.parameters[name], axes)
    if {*MIXED} & {*fields} and not medium_of(problem.operator).couples_corners:
        fields = {name: field for name, field in fields.items() if name not in MIXED}
    fields["f"] = problem.source or Field("f", 0.0, axes)
    return fields


def require_differentiable(problem: Problem) -> None:
    """Raise `Unsupported` unless the gradients of a problem are known."""
    operator, grid, why = problem.operator, problem.domain.grid(), ""
    shape, around = problem.domain.shape, any(problem.conditions.periodic)
    if problem.equation.steady is not None:
        why = f"{problem.equation.name} is an equation in time"
    elif problem.problems > 1:
        why = f"there are {problem.problems} problems"
    elif not operator.linear and operator.in_cells:
        why = f"the field {operator.in_cells[0]} of {problem.equation.name} is per cell, by which each cell has flows of its own"
    elif (
        operator.linear
        and not problem.plain
        and Discretisation(problem, medium_of(operator), grid).floating
    ):
        why = "no side and no reaction holds the level of the solution"
    elif "f" not in problem.equation.fields:
        why = f"{problem.equation.name} has no source, as the adjoint solve has (poisson does)"
    elif (
        shape is not None
        and around
        and any(p.condition.exchanges and is_outline(p.name) for p in problem.conditions.parts)
    ):
        why = "an outline exchanges, by Robin's condition, between periodic sides"
    if why:
        raise Unsupported(f"{why}: gradients are of single problems whose level is held")
