"""A boundary value problem as a value: domain, equation, fields and sides."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.equations import find_any_equation, use_equation
from mosaicdd.problems.equations.linear import Equation
from mosaicdd.problems.equations.nonlinear import NonlinearEquation
from mosaicdd.problems.fields.evaluated import Sliced
from mosaicdd.problems.fields.fields import Field, Part
from mosaicdd.problems.fields.given import is_read_later, one_corner, same_values, usable
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.foils import require_foils
from mosaicdd.problems.operators.medium import Medium, medium_of
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.operators.tensors import MIXED
from mosaicdd.problems.shapes.outline import OutlinePiece, rectangle_outline
from mosaicdd.problems.shapes.shape import require_well_inside
from mosaicdd.problems.sides.boundary import Boundary, EdgeData
from mosaicdd.problems.sides.conditions import Condition, Dirichlet
from mosaicdd.problems.sides.parts import require_no_periodic_outline, require_outlines
from mosaicdd.problems.sides.sides import Sides, require_no_jump
from mosaicdd.settings import require_type
from mosaicdd.torch_defaults import on_processor
from mosaicdd.unsupported import Unsupported

_IN_SPACE = "a", "axx", "ayy", "azz", "axy", "axz", "ayz", "bx", "by", "bz", "c", "f", "s"
GivenSides = Condition | Mapping[str, Condition] | Boundary | Sequence[Boundary] | EdgeData | Sides


@dataclass(frozen=True, init=False, eq=False)
class Problem:
    """One or several boundary value problems that share domain, equation and parameters.

    Parameters
    ----------
    domain
        The domain, or its cells ``(ny, nx)``, in space ``(nz, ny, nx)``.
    equation
        An `Equation`, its name, or one of the user's own as ``FILE.py:NAME``.
    fields
        Values by name: numbers for the equation's parameters, anything that `Field` takes for the
        source ``f``. Parameters that are not given have their defaults, the source is zero.
    sides
        A condition for all sides, or by name (``left``, ``right``, ``bottom``, ``top``, in space ``back`` and
        ``front`` along z; parts of them
        as ``left[0:0.5]``, and of a domain with a shape ``outline``, or ``outer``, ``hole1``, ..;
        Dirichlet with value 0 where not given; `Held` inside, by any other name); or the values on all edges,
        `Boundary`, of several problems a sequence of them; or `Sides`.

    Raises
    ------
    ValueError
        If a field or a side is unknown, a side is given twice, values are of another shape than the domain, a parameter is
        no number, or arrays are of different numbers of problems.
    TypeError
        If a condition is none.
    Unsupported
        If the equation does not take such a domain, or such sides.
    """

    domain: Domain
    equation: Equation | NonlinearEquation
    fields: Mapping[str, Any]
    sides: GivenSides

    @on_processor()
    def __init__(
        self,
        domain: Domain | tuple[int, ...],
        equation: Equation | NonlinearEquation | str,
        fields: Mapping[str, Any] | None = None,
        sides: GivenSides | None = None,
    ):
        if not isinstance(domain, Domain):
            domain = Domain(domain)
        pde = find_any_equation(equation) if isinstance(equation, str) else use_equation(equation)
        if not isinstance(fields, Mapping | None):
            raise TypeError(
                f"fields must be given by their names, as {{'f': 1.0}}, got {type(fields).__name__}"
            )
        for name in fields or ():
            require_type("the name of a field", name, str, "a text")
        object.__setattr__(self, "equation", pde := pde.on(len(domain.cells)))
        values = {name: usable(v, f"the field {name}") for name, v in (fields or {}).items()}
        origin = one_corner(values, domain.cells, domain.origin)
        object.__setattr__(self, "domain", dataclasses.replace(domain, origin=origin))
        linear = pde.linear
        require_foils(values, linear=linear, name=pde.name)
        object.__setattr__(self, "fields", values)
        object.__setattr__(self, "sides", Dirichlet() if sides is None else sides)
        if len(self.domain.cells) != 2:
            _require_in_space(pde, values)
        self.operator  # noqa: B018 - checks the parameters
        if self.source is not None:
            self.source.require_shape(self.domain.grid(), in_time=True, cells=True)
            wells = self.source.values
            if self.domain.shape is not None and hasattr(wells, "around"):
                around = wells.around(self.domain.grid())
                places = [place for place, _ in wells.points]
                require_well_inside(self.domain.shape, self.domain.grid(), around, places)
        self.conditions.require_shape(self.domain.grid())
        require_no_jump(self.conditions, pde.name, unless=linear and pde.steady is None)
        if self.domain.shape is None:
            require_outlines(self.conditions.parts, ())
        else:
            require_no_periodic_outline(self.conditions.parts)
        if not self.plain:
            self._require_flows()
        self.problems  # noqa: B018 - checks the numbers of problems

    def _require_flows(self) -> None:
        """Raise `Unsupported` unless the equation is solved with natural sides, or in such a domain."""
        shape = self.domain.shape
        if not self.operator.linear:
            whole = shape is None or shape.voxels is not None
            self.operator.require_flows(self.equation.name, whole_cells=whole)
        elif shape is not None and self.operator.couples_corners:
            raise Unsupported(
                f"{self.hindrance}, and the equation has a mixed derivative, axy, or bilinear elements: nodes that are "
                "coupled across cells are solved for on rectangles and boxes"
            )
        else:
            medium_of(self.operator, self.hindrance)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Problem):
            return NotImplemented
        return (
            self.domain == other.domain
            and self.equation == other.equation
            and same_values(self.fields, other.fields)
            and self.conditions == other.conditions
        )

    def __hash__(self) -> int:
        return hash((self.domain, self.equation.name, *sorted(self.fields)))

    @cached_property
    def operator(self) -> EllipticOperator | Medium | Nonlinear:
        """The equation's operator for the problem's parameters; a medium if one is a field."""
        grid = self.domain.grid()
        if not self.equation.linear:
            nonlinear = self.equation.operator(self._given, grid)
            if grid.aspect and not nonlinear.knows_aspect:
                raise Unsupported(
                    f"{self.equation.name} couples the differences along the axes by one spacing, these cells are "
                    f"{grid.cell}: give cells of one side, or a residual that knows u.aspect"
                )
            nonlinear.require_shape(grid)
            return nonlinear
        if self._coefficients:
            medium = self._medium(grid.aspect)
            medium.require_shape(grid)
            return medium
        operator = self._constant()
        if len(grid.aspect) == 3:
            return Medium(medium_of(operator).fields, grid.aspect)
        return operator.stretched(grid.aspect) if grid.aspect else operator

    def _medium(self, aspect: tuple[float, ...]) -> Medium:
        """Return the operator of coefficients of which some are fields."""
        equation: Any = self.equation
        numbers = {name: field.number for name, field in self._coefficients.items()}
        tensor = [number for name, number in numbers.items() if name.startswith("a")]
        if None in tensor:  # which is checked in each cell
            numbers |= dict.fromkeys(numbers.keys() & {*MIXED}, 0.0)
        made = equation.at(**{name: 1.0 if n is None else n for name, n in numbers.items()})
        fields = {n: field for n, field in self._coefficients.items() if n != equation.storage}
        if not tensor:  # of an equation that has no parameter for it
            constant = medium_of(made).fields
            fields |= {name: a for name, a in constant.items() if name.startswith("a")}
        return Medium(fields, aspect, bilinear=equation.bilinear)

    def _constant(self) -> EllipticOperator:
        """Return the operator of parameters that are numbers."""
        parameters, equation = {}, self.equation
        for name, values in (self._given if equation.source else self.fields).items():
            number = self._field(name, values).number
            if number is None and name in equation.fields:
                raise Unsupported(
                    f"the field {name} of {equation.name} must be one number for the whole domain"
                )
            parameters[name] = values if number is None else number
        return equation.at(**parameters)  # type: ignore[union-attr]

    def _field(self, name: str, values: Any) -> Field:
        """Return values as a field over the domain."""
        return Field(name, values, len(self.domain.cells))

    @property
    def _given(self) -> dict[str, Any]:
        """The given parameters."""
        return {name: values for name, values in self.fields.items() if name != "f"}

    @cached_property
    def _parameters(self) -> dict[str, Field]:
        """Parameters that do not depend on the solution, completed by defaults."""
        values = self.equation.complete(self._given).items()
        return {name: self._field(name, v) for name, v in values if name not in self.functions}

    @cached_property
    def _coefficients(self) -> dict[str, Field]:
        """All parameters, where one is a field that may be; else nothing."""
        if not self.equation.linear:
            return self.operator.fields if not self.operator.linear else {}
        fields, varying = self._parameters, self.equation.varying
        varies = any(f.number is None for name, f in fields.items() if name in varying)
        # On boxes a velocity is that of a medium, too, and a tensor: constant coefficients are known in the plane.
        directed = len(self.domain.cells) != 2 and (
            "axx" in fields
            or any(f.number != 0.0 for name, f in fields.items() if name.startswith("b"))
        )
        return fields if varies or directed or self.equation.bilinear else {}

    @property
    def parameters(self) -> dict[str, float]:
        """The equation's parameters that are numbers, completed by defaults."""
        numbers = {name: field.number for name, field in self._parameters.items()}
        return {name: number for name, number in numbers.items() if number is not None}

    @property
    def numbers(self) -> dict[str, float]:
        """The parameters, and the source, that are numbers."""
        number = None if self.source is None else self.source.number
        return self.parameters if number is None else {**self.parameters, "f": number}

    @cached_property
    def functions(self) -> dict[str, Any]:
        """The coefficients that depend on the solution."""
        if self.equation.linear:
            return {}
        defaults = self.equation.functions
        return {name: self.fields.get(name, default) for name, default in defaults.items()}

    @property
    def arrays(self) -> dict[str, Field]:
        """The coefficients and the source that are no numbers."""
        fields = self._coefficients | ({} if self.source is None else {"f": self.source})
        return {name: field for name, field in fields.items() if field.number is None}

    @property
    def described(self) -> dict[str, float | str]:
        """The parameters, with descriptions of coefficients that are no numbers."""
        varying = {name: str(field) for name, field in self.arrays.items() if name != "f"}
        return {**self.parameters, **varying, **{k: str(v) for k, v in self.functions.items()}}

    @cached_property
    def source(self) -> Field | None:
        """The source; None if zero."""
        source = self._field("f", self.fields.get("f", 0.0))
        return None if source.number == 0.0 else source

    @cached_property
    def conditions(self) -> Sides:
        """The conditions on all parts of the outline."""
        if isinstance(self.sides, Sides):
            return self.sides
        return Sides(self.sides, axes=len(self.domain.cells))

    @property
    def plain(self) -> bool:
        """Whether the domain is a rectangle, and values are given on all of its sides."""
        return not self.hindrance

    @property
    def hindrance(self) -> str:
        """The reason why a problem is not plain, for messages; else empty."""
        if self.domain.shape is not None:
            return "the domain is no rectangle here"
        if self.conditions.plain:
            return ""
        if any(part.condition.periodic for part in self.conditions.parts):
            return "a side is periodic here"
        inside = any(part.inside for part in self.conditions.parts)
        return "values are held inside of the domain here" if inside else "a side is natural here"

    def pieces(self, grid: Grid) -> Mapping[str, OutlinePiece]:
        """Return the domain's pieces of the rectangle's sides, and nodes held inside, by name."""
        pieces, shape = dict(rectangle_outline(grid)), self.domain.shape
        if shape is not None:
            pieces = {name: shape.clip_side(piece, grid) for name, piece in pieces.items()}
        return pieces | self.conditions.pieces_inside(grid, shape)

    @cached_property
    def problems(self) -> int:
        """The number of problems."""
        source, counts = self.source, self.conditions.counts
        # Of an equation in time the values of one problem have an axis for times.
        if source is not None and (self.equation.steady is None or source.times is not None):
            counts = {"the field f": source.problems} | counts
        return common_count(counts)

    def boundaries(self, grid: Grid) -> list[Boundary]:
        """Return the values on the edges of a grid of each problem; zero on natural sides.

        Of a domain that is no rectangle they are zero: `Discretisation` has those on its outline.

        Where two sides meet with different values, their common corner has the mean.

        Raises
        ------
        ValueError
            If values are of another shape than the grid, or not finite.
        """
        if self.domain.shape is not None:
            return [Boundary.zeros(grid)] * self.problems
        boundaries = self.conditions.boundaries(grid)
        return boundaries * (self.problems // len(boundaries))

    def source_at(self, grid: Grid, part: Part) -> np.ndarray | None:
        """Return ``f`` at the nodes of a part, ``(n or 1, rows, columns)``; None if zero."""
        return None if self.source is None else self.source.sample(grid, part)

    def with_fields(self, **fields: Any) -> "Problem":
        """Return the same problem with other values of some fields."""
        other = object.__new__(Problem)
        linear = self.equation.linear and self.equation.source
        if fields.keys() == {"f"} and linear and all(map(is_read_later, self._given.values())):
            # Of another source alone the operator is the same, which reads all fields where they are.
            same = vars(self).keys() & {"operator", "_parameters", "_coefficients"}
            vars(other).update({name: vars(self)[name] for name in same})
        Problem.__init__(other, self.domain, self.equation, {**self.fields, **fields}, self.sides)
        return other

    def some(self, which: range) -> "Problem":
        """Return some of the problems; sources are not read yet."""
        fields = dict(self.fields)
        if self.source is not None and self.source.problems > 1:
            fields["f"] = Sliced.some(self.source.values, which)
        return dataclasses.replace(self, fields=fields, sides=self.conditions.some(which))

    def with_sides(self, sides: GivenSides) -> "Problem":
        """Return the same problem with other conditions or values on its sides."""
        return dataclasses.replace(self, sides=sides)

    def with_domain(self, domain: Domain) -> "Problem":
        """Return the same problem in another domain."""
        return self if domain is self.domain else dataclasses.replace(self, domain=domain)


def common_count(counts: Mapping[str, int]) -> int:
    """Return the common number of problems of data; `ValueError` where numbers differ."""
    most = max(counts.values(), default=1)
    for what, count in counts.items():
        if count not in (1, most):
            raise ValueError(f"{what} is of {count} problems, others are of {most}")
    return most


def _require_in_space(equation: Equation | NonlinearEquation, fields: Mapping[str, Any]) -> None:
    """Raise `Unsupported` for a problem on a box that is solved in the plane alone."""
    lacks = None
    if not equation.linear:
        return
    if equation.bilinear:
        lacks = f"the equation {equation.name}, by bilinear elements,"
    elif wrong := sorted(set(fields) - set(_IN_SPACE)):
        lacks = f"the field {wrong[0]}"
    elif not equation.at().symmetric:
        lacks = f"the equation {equation.name}, which is not the same along all axes,"
    if lacks is not None:
        raise Unsupported(
            f"{lacks} is solved in the plane only: in space, with cells (nz, ny, nx), there are laplace, poisson, "
            f"screened-poisson, diffusion, anisotropic-diffusion, advection-diffusion and heat with the fields {', '.join(_IN_SPACE)}, values, fluxes, exchanges and periods on sides"
        )
