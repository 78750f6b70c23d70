r"""Nonlinear equations: the residual at a node, from the values at the nodes around it.

Automatic differentiation gives the residual's derivatives by these, which make a linear operator between
neighbours, so that Newton's steps are problems in a medium, as `medium` has them:

$$J \delta = -F(u), \qquad J_{ij} = \partial F_i / \partial u_j.$$

What a problem gives, `Nonlinear`, is sampled once on a part of the grid: `NonlinearPart`.

Coefficients that depend on the solution, as functions of tensors, through which torch differentiates.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from mosaicdd.axes import at, ends, last, sizes
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.fields.fields import Field, Part, Periods
from mosaicdd.problems.fields.given import is_number
from mosaicdd.problems.operators import jacobian as structure
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.operators.nonlinear_part import NonlinearPart
from mosaicdd.problems.operators.patch import Offset, StencilValues, neighbours_of, offsets
from mosaicdd.problems.shapes.apertures import Apertures
from mosaicdd.problems.shapes.sampling import sample_near
from mosaicdd.torch_defaults import on_processor
from mosaicdd.unsupported import Unsupported

Function = Callable[[torch.Tensor], torch.Tensor]
"""A coefficient that depends on the solution."""

Residual = Callable[..., torch.Tensor]
"""``residual(u, h, **fields)``: of the equation without its source, at the centres of stencils.

``u`` is a `StencilValues` of values, ``h`` the spacing; fields are such stencils, too, functions of ``u`` functions, and
what is one number for the whole domain a number. Where the sides of cells differ, a residual whose neighbours count one by
one is called for each axis alone, with its side as ``h``; another has to know `StencilValues.aspect`, as `outflow` does.
"""

_PROBES = 256  # values of u for which functions are evaluated, to be told from others
# Of fields that vary: by these all is multiplied to the bit, and at 1 terms vanish, as those with one minus a share.
_ORDINARY = (0.5, 2.0, 0.25, 4.0)


def function_of_u(name: str, value: Any) -> Function:
    """Return a function of tensors from the text of an expression in ``u``, a number or a function."""
    if callable(value) and not isinstance(value, Expression):
        _require_of_tensors(name, value)
        return value
    try:
        expression = Expression(str(value).removeprefix("expr:"), variables=("u", "pi"))
    except ValueError as error:
        raise ValueError(f"the field {name}: {error}") from error
    return partial(_of_u, expression)


def _require_of_tensors(name: str, function: Function) -> None:
    """Check by three values that a function takes and returns tensors; else raise `TypeError`."""
    u = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64, requires_grad=True)
    how = f"the function for the field {name} must be of tensors, made of torch's functions as torch.exp"
    try:
        values = function(u)
    except Exception as error:
        raise TypeError(f"{how}: {type(error).__name__}: {error}") from error
    tensor = torch.is_tensor(values)
    if not (is_number(values) or (tensor and values.shape == u.shape)):
        kind = tuple(values.shape) if tensor else type(values).__name__
        raise TypeError(f"{how}, and give as many values, got {kind} for {tuple(u.shape)}")


def _of_u(expression: Expression, u: torch.Tensor) -> torch.Tensor:
    return expression.of_tensors(u=u)


class Nonlinear:
    """The left-hand side of a nonlinear equation for the fields of a problem.

    Parameters
    ----------
    equation
        A `NonlinearEquation`: its residual and the signs of its fields; whether its derivative is self-adjoint, as that of an energy.
    fields
        By name: values at the nodes or per cell.
    functions
        By name: expressions in ``u``, or functions of tensors.
    numbers
        By name: what is one number for the whole domain.
    factor
        The field that all flows between nodes are multiplied by outside of the residual, which takes 1 in its place
        if it is one of the equation's parameters.
    grid
        By default one of the plane, of squares.

    Attributes
    ----------
    residual_fields
        The fields of the residual, by name.
    signs
        Which fields must be positive (True), or at least not negative (False).
    """

    reflective = False
    linear: ClassVar[Literal[False]] = False
    constant: ClassVar[Literal[False]] = False

    def __init__(
        self,
        equation: Any,
        fields: Mapping[str, Field],
        functions: Mapping[str, Any],
        numbers: Mapping[str, float],
        factor: str | None = None,
        grid: Grid | None = None,
    ):
        self.axes, self.aspect = (2, ()) if grid is None else (len(grid.shape), grid.aspect)
        self.fields, self.factor = dict(fields), factor
        self.residual_fields, self.signs = self.fields, equation.signs
        if factor is not None:
            plain = self.fields | {factor: Field(factor, 1.0, self.axes)}
            names = [name for name in equation.parameters if name not in equation.numbers]
            self.residual_fields = {name: plain[name] for name in names}
            self.signs = {**self.signs, factor: True}
        self.self_adjoint = equation.self_adjoint
        cells = (name for name, field in fields.items() if grid and field.per_cell(grid))
        self._per_cell = [name for name in cells if name in self.residual_fields and name != factor]
        self._residual = equation.residual
        self._given, self._numbers = {**functions, **numbers}, dict(numbers)
        of_u = {name: function_of_u(name, value) for name, value in functions.items()}
        self._others: dict[str, Any] = {**of_u, **numbers}

    @property
    @on_processor()
    def behaviour(self) -> tuple:
        """The identity of the operator besides its fields: functions, and values that they return.

        Whatever variables a function refers to is seen in that, as far as some hundred values of all
        sizes show it.
        """
        rng = np.random.default_rng(0)
        shape = len(offsets(self.axes)), _PROBES
        u = torch.from_numpy(rng.uniform(-1, 1, shape) * np.logspace(-3, 3, _PROBES))
        returned: list[object] = []
        functions: list[Function] = [value for value in self._others.values() if callable(value)]
        functions.append(lambda _: self.at(StencilValues(*u), self.ordinary(u[0]), 1.0))
        for function in functions:
            try:
                with torch.no_grad():
                    returned.append(torch.as_tensor(function(u[0])).numpy().tobytes())
            except Exception as error:  # noqa: BLE001 - not every value need be one of its own
                returned.append(str(error))
        return self._residual, *sorted(self._given.items(), key=lambda item: item[0]), *returned

    def require_shape(self, grid: Grid) -> None:
        """Check that fields are of a grid, and of all problems; else raise `ValueError` or `Unsupported`."""
        for field in self.fields.values():
            field.require_common(grid, cells=True)
        if self.two_point_flux:
            return
        couples = "in an equation that couples the differences along the axes"
        if self.in_cells:
            raise ValueError(
                f"the field {self.in_cells[0]} is given per cell, {grid.shape}, {couples}: there what multiplies all flows, "
                "as the equation's diffusion, may be, or what multiplies u alone; give it at the nodes, "
                f"{grid.nodes}"
            )
        if self.factor is None:
            return
        factor = self.fields[self.factor]
        if not self.pure:
            raise Unsupported(
                f"the field {factor.name} multiplies all that cells have, {couples} and has a reaction: that would be "
                f"multiplied, too; let the residual take it, and give it at the nodes, {grid.nodes}"
            )
        if factor.number is None and not factor.per_cell(grid):
            raise Unsupported(
                f"the field {factor.name} multiplies all that cells have, {couples}: give it as a number, or per cell, "
                f"{grid.shape}"
            )

    @cached_property
    def in_cells(self) -> tuple[str, ...]:
        """The fields per cell with which each cell around a node has separate flows, or reactions.

        Of others, in which a reaction is linear, a node has the mean over its volume.
        """
        return tuple(name for name in self._per_cell if not structure.only_reacts(self, name))

    def on(self, grid: Grid, part: Part) -> "NonlinearPart":
        """Sample the fields at the nodes of a part, once for all values of ``u`` there.

        `ValueError` if they are not finite, or have the wrong sign, with the first one's place.
        """
        return NonlinearPart(self, grid, part)

    def sampled(
        self, grid: Grid, part: Part, cover: Apertures | None = None, periods: Periods | None = None
    ) -> dict[str, torch.Tensor]:
        """Sample the fields at the nodes of a part, but those `in_cells`; numbers take no memory.

        ``cover``: what the domain has of the cells around the nodes, which may reach beyond it then: there the fields
        are as `sample_near` has them.
        """
        samples = {}
        for name, field in self.residual_fields.items():
            if name in self.in_cells:
                continue
            if field.number is not None:
                number = torch.tensor(field.number, dtype=torch.float64)
                samples[name] = number.expand(sizes(part))
                continue
            fill, positive = float(name in self.signs), self.signs.get(name)
            (values,) = sample_near(
                field, grid, part, cover, fill=fill, positive=positive, periods=periods
            )
            samples[name] = torch.from_numpy(np.array(values))  # which nobody changes
        return samples

    @property
    def pure(self) -> bool:
        """Whether constants solve the equation without a source, as far as a few of them show."""
        u = torch.tensor([0.3, 0.7], dtype=torch.float64).repeat(2 * len(_ORDINARY))
        return not self.at(self.uniform(u), self.ordinary(u), 1.0).any()

    def reacts(self, grid: Grid, inside: Callable[[Part], np.ndarray | bool]) -> bool:
        """Say whether there is a reaction somewhere on a grid: constants are no solution there.

        ``inside``: says which nodes of a part are of interest.
        """
        varying = {
            name: field for name, field in self.residual_fields.items() if field.number is None
        }
        if self.pure or not varying:
            return not self.pure
        for strips in zip(*(field.strips(grid) for field in varying.values()), strict=True):
            part = strips[0][0]
            values = [  # outside of the domain they may be none
                torch.from_numpy(np.where(inside(part), held, float(self.signs.get(name, False))))
                for name, (_, held) in zip(varying, strips, strict=True)
            ]
            fields = self.ordinary(values[0]) | {
                name: self.uniform(held) for name, held in zip(varying, values, strict=True)
            }
            for u in (0.3, 0.7):
                if self.at(self.uniform(torch.full_like(values[0], u)), fields, 1.0).any():
                    return True
        return False

    @property
    def faces(self) -> Medium:
        """The medium of the factor of flows, by default 1, with a reaction if there is one."""
        reaction = Field("c", 0.0 if self.pure else 1.0, self.axes)
        a = Field("a", 1.0, self.axes) if self.factor is None else self.fields[self.factor]
        return Medium({"a": a, "c": reaction}, self.aspect)

    @property
    def by_flows(self) -> bool:
        """Whether it is always split into flows, or cells: with fields per cell, or a factor."""
        per_cell = self.factor is not None or bool(self.in_cells)
        return per_cell or (self.axes != 2 and self.two_point_flux)

    def require_flows(self, name: str, *, whole_cells: bool) -> None:
        """Check that the residual is a sum of flows, or over cells of a domain of ``whole_cells``."""
        if self.two_point_flux or (whole_cells and self.by_cells):
            return
        domain, most = ("a rectangle", 16) if self.axes == 2 else ("a box", 8)
        if self.by_cells:
            raise Unsupported(
                f"{name} couples the differences along the axes, and is solved on rectangles, boxes and masks of voxels; other "
                "domains are for equations whose neighbours count one by one"
            )
        raise Unsupported(
            f"{name} couples the differences along the axes, and is solved with values on all sides of {domain} whose cells "
            f"along all axes a number from 4 to {most} divides; natural sides, values held inside and other domains are "
            "for equations whose neighbours count one by one, or that are the derivative of an energy of cells"
        )

    @cached_property
    def by_cells(self) -> bool:
        """Whether the residual is symmetric and a sum over the cells around a node."""
        return self.self_adjoint and structure.is_sum_of_cells(self)

    @cached_property
    def two_point_flux(self) -> bool:
        """Whether the residual is a sum of a reaction and one flow to each neighbour."""
        return structure.is_sum_of_flows(self)

    @cached_property
    def knows_aspect(self) -> bool:
        """Whether the residual takes into account the sides of cells that are no squares, or cubes."""
        return structure.is_as_in_squares(self)

    @property
    def structure(self) -> dict[str, Any]:
        """The structure of the residual, as random values show it, by the names of properties."""
        return {"in_cells": self.in_cells, "two_point_flux": self.two_point_flux}

    def take_structure(self, structure: Mapping[str, Any]) -> None:
        """Take over the structure that another rank has found."""
        vars(self).update(structure)

    def ordinary(self, like: torch.Tensor, seed: int = 0) -> dict[str, StencilValues]:
        """Return sample values of the fields: their numbers, or random ones that are never 1."""
        rng, patches = np.random.default_rng(seed), {}
        for name, field in self.residual_fields.items():
            drawn = torch.from_numpy(rng.choice(_ORDINARY, tuple(like.shape)))
            number = drawn if field.number is None else torch.full_like(drawn, field.number)
            patches[name] = self.uniform(number)
        return patches

    def uniform(self, values: torch.Tensor) -> StencilValues:
        """Return stencils that have the same value at all of their nodes."""
        return StencilValues.uniform(values, self.axes)

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that torch can differentiate the residual by, by name."""
        known = {}
        u = torch.linspace(0.2, 0.8, len(offsets(self.axes)), dtype=torch.float64)
        stencil, fields = StencilValues(*u.reshape(-1, 1)), self.ordinary(u[:1])
        for name, value in self._numbers.items():
            number = torch.tensor(value, dtype=torch.float64, requires_grad=True)
            if self.with_numbers({name: number}).at(stencil, fields, 1.0).sum().requires_grad:
                known[name] = value
        return known

    def with_numbers(self, numbers: Mapping[str, torch.Tensor]) -> "Nonlinear":
        """Return the operator with tensors in the place of some of its numbers."""
        other = copy.copy(self)
        other._others = self._others | dict(numbers)
        return other

    def at(self, u: StencilValues, fields: Mapping[str, StencilValues], h: float) -> torch.Tensor:
        """Return the residual at the centres of stencils; ``h``: the spacing."""
        if not self.aspect:
            return self.in_squares(u, fields, h)
        if not self.two_point_flux:
            return self.in_squares(u.in_cells(self.aspect), fields, h)
        total = reaction = self.in_squares(self.uniform(u.centre), fields, h)
        for axis, side in enumerate(self.aspect):
            total = total + self.in_squares(u.along(axis), fields, h * side) - reaction
        return total

    def in_squares(
        self, u: StencilValues, fields: Mapping[str, StencilValues], h: float
    ) -> torch.Tensor:
        """Return it, as `at`, where cells are squares, in space cubes, of the side ``h``."""
        return self._residual(u, h, **fields, **self._others)

    def through_faces(
        self,
        u: StencilValues,
        between: Sequence[Any],
        fields: Mapping[str, StencilValues],
        h: float,
    ) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        """Return the reaction at nodes, and the outflow of both ends of the edges along each axis.

        ``u``: at nodes ``(.., rows, columns)``; ``between``: the conductances of the edges along each axis; flows are times
        the squared spacing, fields those of `at`.
        """
        reaction, flows = self.flows([u.centre, *u.neighbours], fields, h)
        to = dict(zip(neighbours_of(self.axes), flows, strict=True))
        through = []
        for axis, k in enumerate(between):
            low, high = ends(axis, self.axes)
            forth, back = (to[at(axis, self.axes, way, 0)] for way in (1, -1))
            through.append((h**2 * k * forth[last(low)], h**2 * k * back[last(high)]))
        return reaction, through

    def flows(
        self,
        values: Sequence[torch.Tensor],
        fields: Mapping[str, StencilValues],
        h: float,
        corner: Offset = (),
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the reaction at nodes, and the flow to each neighbour through a unit face.

        ``values``: at nodes, and at those beside, as `neighbours_of`; fields as those of `at`; ``corner``: of the cell along
        whose edges alone it is.
        """
        centre, *beside = values
        reaction = self.in_squares(self.uniform(centre), fields, h)
        flows = []
        for k, (offset, value) in enumerate(zip(neighbours_of(self.axes), beside, strict=True), 1):
            along = next(axis for axis, step in enumerate(offset) if step)
            if corner and corner[along] != offset[along]:
                continue
            side = self.aspect[along] if self.aspect else 1.0
            alone = StencilValues(*(value if i == k else centre for i in range(len(values))))
            flow = self.in_squares(alone, fields, h * side) - reaction
            flows.append(flow if side == 1.0 else side**2 * flow)
        return reaction, flows
