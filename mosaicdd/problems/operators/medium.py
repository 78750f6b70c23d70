"""A medium: coefficients that are fields, and the discrete operator that they make.

The operator is ``-div(T grad u) + b . grad u + c u`` with a diagonal tensor ``T``, mostly ``a`` in both
directions; of others see `tensors`. Between two neighbouring nodes flows the difference of their values times a *conductance*.
Where ``a`` is given at the nodes, it is the harmonic mean of the two; where it is given per cell, as
images and material maps are, the mean of the two cells beside the grid edge, which is exact where
materials meet on grid lines. ``b`` is given at the nodes, ``c`` there or per cell: a node's is then the mean over its
control volume. All is scaled by the squared spacing, so a conductance has the units of ``a``.

A velocity makes the conductance of an edge another in each of its two nodes' equations, smaller in
that of the upstream node: by exponential fitting, as where coefficients are constant
(`EllipticOperator.stencil`), with the mean of both nodes' velocities along the edge.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from mosaicdd.axes import ends, even, letters, sizes
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import DIFFUSION, Field, Part, require_sign
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.tensors import (
    MIXED,
    between_nodes,
    products,
    sum_around,
    tensors_of_cells,
)
from mosaicdd.problems.shapes.apertures import Apertures
from mosaicdd.problems.shapes.sampling import cells_around, sample_near
from mosaicdd.unsupported import Unsupported

if TYPE_CHECKING:
    from mosaicdd.problems.operators.nonlinear import Nonlinear

_SERIES = 1e-4  # cell Peclet numbers below which Bernoulli's function is a series
_PIECE = 2**15  # edges that are fitted at once


@dataclass(frozen=True)
class Resampled:
    """Conductances that are computed from the coefficients at each call.

    ``place``: a part of the grid, whose nodes are counted from its corner.
    """

    medium: "Medium"
    grid: Grid
    place: Part

    def part(self, *place: slice) -> Conductances:
        """Return the conductances between some of the nodes, by a slice per axis."""
        moved = tuple(
            slice(whole.start + p.start, whole.start + p.stop)
            for whole, p in zip(self.place, place, strict=True)
        )
        return self.medium.conductances(self.grid, moved)


class Medium:
    """The coefficients of a linear equation, as fields.

    Parameters
    ----------
    fields
        By name: the diffusion ``a``, or ``axx`` and ``ayy``, positive, and with these ``axy``, in space ``axz`` and ``ayz``,
        so that the tensor is positive definite; the velocity ``bx``, ``by``, in space ``bz``, at the nodes; the reaction
        ``c``, not negative. What is not given is zero.
    aspect
        The sides of a cell per axis in units of the grid's spacing, where these differ (`Grid.aspect`). Per squared spacing
        what conducts along an axis is then divided by the square of its side.
    bilinear
        Whether cells are bilinear elements, see `tensors`; in the plane, without a velocity.

    Attributes
    ----------
    foils
        Whether there are foils in the diffusion, see `Foils`.
    """

    NAMES = (*DIFFUSION, *MIXED, "bx", "by", "bz", "c")
    """Of all coefficients that may be fields."""

    reflective = False
    linear: ClassVar[Literal[True]] = True
    constant: ClassVar[Literal[False]] = False

    def __init__(
        self, fields: Mapping[str, Field], aspect: tuple[float, ...] = (), *, bilinear: bool = False
    ):
        self.fields, self.aspect, self.bilinear = dict(fields), aspect, bilinear
        self.foils = any(field.foils is not None for field in fields.values())
        self.reaction = fields.get("c", Field("c", 0.0))

    @property
    def couples_corners(self) -> bool:
        """Whether nodes are coupled across cells: the tensor is not diagonal, or cells are bilinear elements."""
        mixed = [self.fields[name] for name in MIXED if name in self.fields]
        return self.bilinear or any(field.number != 0.0 for field in mixed)

    def _diffusion(self, axes: int) -> list[str]:
        """Return the names of the diffusion along each axis; `Unsupported` if one is missing."""
        along = [f"a{2 * letter}" for letter in letters(axes)]
        names = [name if name in self.fields else "a" for name in along]
        if any(name not in self.fields for name in names):
            diffusion = sorted(name for name in self.fields if name.startswith("a"))
            raise Unsupported(
                f"the diffusion {' and '.join(diffusion)} is not that of a grid of {axes} axes: "
                f"give a, or {', '.join(reversed(along))}"
            )
        return names

    @property
    def pure(self) -> bool:
        """Whether there is no reaction, so that constants solve the equation."""
        return self.reaction.number == 0.0

    def reacting(self, grid: Grid) -> np.ndarray | None:
        """Return the nodes where ``c`` is positive, ``(K, 2)``; None for all."""
        if self.pure:
            return np.empty((0, len(grid.shape)), int)
        if self.reaction.number is not None:
            return None
        strips = self.reaction.strips(grid)
        return np.concatenate([np.argwhere(c > 0) + [p.start for p in part] for part, c in strips])

    @property
    def self_adjoint(self) -> bool:
        """Whether there is no velocity."""
        velocity = (field for name, field in self.fields.items() if name.startswith("b"))
        return all(b.number == 0.0 for b in velocity)

    def require_shape(self, grid: Grid) -> None:
        """Check that values belong to a grid, and serve all problems; else raise `ValueError` or `Unsupported`."""
        if self.couples_corners and not self.self_adjoint:
            raise Unsupported(
                "the tensor is not diagonal beside a velocity: leave out axy, axz and ayz, or bx, by and bz"
            )
        if self.foils and (self.couples_corners or not self.self_adjoint):
            beside = (
                "a velocity"
                if not self.self_adjoint
                else "mixed derivatives, as axy, or bilinear elements"
            )
            raise Unsupported(f"foils lie in media without {beside}: leave out one of both")
        for name, field in self.fields.items():
            if field.foils is not None:
                field.foils.require_grid(grid)
            field.require_common(grid, cells=not name.startswith("b"))

    def conductances(self, grid: Grid, part: Part, cover: Apertures | None = None) -> Conductances:
        """Return the conductances between the nodes of a part of a grid.

        ``cover``: what a domain has of the cells around the nodes, by default all of them. Then the part may reach beyond
        the grid, where there are no cells.

        `ValueError` if a value is not finite, ``a`` is not positive, or ``c`` is negative, with its place.
        """
        c = _sampled(self.reaction, grid, part, cover, positive=False, cells=False)
        reaction = np.broadcast_to(grid.spacing**2 * c, sizes(part))
        if self.couples_corners:  # of a rectangle, whose cells are whole
            return self.of_tensors(tensors_of_cells(self.fields, grid, part), reaction)
        signs: dict[str, bool | None] = dict.fromkeys(self._diffusion(len(part)), True)
        if not self.self_adjoint:
            velocity = (f"b{letter}" for letter in letters(len(part)))
            signs |= {name: None for name in velocity if name in self.fields}
        values = {
            name: _sampled(self.fields[name], grid, part, cover, positive=positive)
            for name, positive in signs.items()
        }
        return self.between(values, reaction, grid, part, cover)

    def between(
        self,
        values: Mapping[str, Any],
        reaction: Any,
        grid: Grid,
        part: Part,
        cover: Apertures | None,
        of: Any = np,
    ) -> Conductances:
        """Return the conductances that coefficients make, in arrays of numpy's or torch's.

        Parameters
        ----------
        values
            By name, of a diagonal tensor and the velocity: at the nodes of the part, as numbers without axes, or of the
            diffusion per cell around the nodes.
        reaction
            Of `Conductances`.
        cover
            What the domain has of the cells around the nodes; None of all of them.
        of
            The module of the arrays.
        """
        axes, along = len(part), list[Any]()
        nodes = sizes(part)
        edges = [(*nodes[:axis], nodes[axis] - 1, *nodes[axis + 1 :]) for axis in range(axes)]
        faces = [1.0] * axes if cover is None else cover.edge_faces
        halves = {n: 0.5 / a for n, a in values.items() if n in DIFFUSION and a.shape == nodes}
        for axis, letter in enumerate(letters(axes)):
            name = f"a{2 * letter}" if f"a{2 * letter}" in values else "a"
            low, high = ends(axis, axes)
            if not values[name].ndim:
                face = of.ones(edges[axis], dtype=float) if cover is None else faces[axis]
                k = values[name] * face
            elif name in halves:  # two half resistances in series
                k = faces[axis] / (halves[name][high] + halves[name][low])
            elif cover is None:
                k = sum_around(0.5 ** (axes - 1) * values[name], axis)
            else:
                k = cover.of_edges(axis, values[name])
            along.append(k if self._side(axis) == 1.0 else k / self._side(axis) ** 2)
        for axis, name in enumerate(self._diffusion(axes) if self.foils else ()):
            if (foils := self.fields[name].foils) is not None:
                near = 1.0 if cover is None else cover.near(axis)
                face = of.broadcast_to(of.asarray(faces[axis]), edges[axis]) * near
                foils.change(grid, part, axis, along[axis], face, of)
        if not any(name.startswith("b") for name in values):
            return Conductances(tuple(along), reaction)
        ways = []
        for axis, (k, letter) in enumerate(zip(along, letters(axes), strict=True)):
            b = values.get(f"b{letter}")
            if b is None:
                ways.append((k, 1.0 * k))
                continue
            low, high = ends(axis, axes)
            both = b[low] + b[high] if b.ndim else 2.0 * b
            velocity = of.broadcast_to(
                grid.spacing / (2 * self._side(axis)) * faces[axis] * both, edges[axis]
            )
            if cover is None:
                ways.append(fitted(k, velocity, of))
                continue
            conducts = k > 0
            each = fitted(of.where(conducts, k, 1.0), velocity, of)
            ways.append(tuple(of.where(conducts, way, 0.0) for way in each))
        forth, back = zip(*ways, strict=True)
        return Conductances(forth, reaction, back)

    def of_tensors(self, tensors: Iterable[Any], reaction: Any) -> Conductances:
        """Return the conductances of tensors of the cells around nodes, in arrays of numpy's or torch's; see `between_nodes`."""
        values = list(tensors)
        sides = products([self._side(axis) for axis in range(values[0].ndim)])
        scaled = (value / scale for value, scale in zip(values, sides, strict=True))
        along, across = between_nodes(scaled, bilinear=self.bilinear)
        return Conductances(along, reaction, across=across)

    def _side(self, axis: int) -> float:
        """Return the side of a cell along an axis in units of the spacing."""
        return self.aspect[axis] if self.aspect else 1.0


def medium_of(operator: "EllipticOperator | Medium | Nonlinear", because: str = "") -> Medium:
    """Return an operator, with constant coefficients or not, as a medium.

    ``because``: why it must be one, for messages.

    `Unsupported` if its tensor is not diagonal beside a velocity, it describes waves, or is not linear.
    """
    if not operator.linear:
        lacks = "is not linear"
    elif not operator.constant:
        return operator
    elif operator.axy and not operator.self_adjoint:
        lacks = f"has a mixed derivative, axy {operator.axy:g}, and a velocity"
    elif operator.c < 0:
        lacks = f"describes waves, c is {operator.c:g}, not 0 or more"
    else:
        values = vars(operator).copy()
        if operator.ayy == operator.axx:
            values["a"] = values.pop("axx")
            del values["ayy"]
        if not operator.axy:
            del values["axy"]
        return Medium({name: Field(name, value) for name, value in values.items()})
    raise Unsupported(
        f"{because + ', and ' if because else ''}the equation {lacks}: such an equation is solved with "
        "values given on all sides of a rectangle, whose cells are multiples of half a subdomain"
    )


def _sampled(
    field: Field,
    grid: Grid,
    part: Part,
    cover: Apertures | None,
    *,
    positive: bool | None,
    cells: bool = True,
) -> np.ndarray:
    """Sample a coefficient at the nodes of a part, or per cell; a number has no axes.

    ``cells``: whether values per cell are those around the nodes, zero beyond the grid; else their means.
    """
    if field.number is not None:
        number = np.full((1,) * len(part), field.number)
        if positive is not None:
            require_sign(number, field, grid, part, positive=positive)
        return number.reshape(())
    if cells and field.per_cell(grid):
        fill = float(cover is not None)
        return cells_around(field, grid, part, cover, positive=positive, fill=fill)[0]
    return sample_near(field, grid, part, cover, fill=float(bool(positive)), positive=positive)[0]


def fitted(conductances: Any, velocity: Any, of: Any = np) -> tuple[Any, Any]:
    """Return the fitted conductances in the equations of an edge's first and last node.

    ``k B(b / k)`` and ``k B(-b / k)`` with Bernoulli's ``B(t) = t / (exp(t) - 1)``: of second order where
    ``t``, the cell Peclet number, is small, and where it is large, upwind.
    ``velocity``: times the spacing, from the first node to the second; ``of``: the module of the arrays.
    """
    if of is not np:
        return _fitted(conductances, velocity, of)
    both = np.empty(conductances.shape), np.empty(conductances.shape)
    rows = max(1, _PIECE * len(conductances) // max(1, conductances.size))
    for part in even(len(conductances), rows):  # whose parts of all arrays stay in the cache
        for out, values in zip(both, _fitted(conductances[part], velocity[part], of), strict=True):
            out[part] = values
    return both


def _fitted(k: Any, b: Any, of: Any) -> tuple[Any, Any]:
    forwards = b >= 0  # and not the absolute value, which has no derivative at 0
    speed = of.where(forwards, b, -b)
    t = speed / k
    power = of.expm1(of.clip(t, _SERIES, 500.0))  # beyond 500 it overflows
    # Below 1e-4 the next term of the series is rounding.
    upstream = k * of.where(t < _SERIES, 1 - t / 2 + t * t / 12, t / power)
    downstream = upstream + speed
    return of.where(forwards, upstream, downstream), of.where(forwards, downstream, upstream)
