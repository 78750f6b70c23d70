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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.lattice.axes import ends, letters
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import DIFFUSION, Field, Part, require_sign, sample_signed
from mosaicdd.problems.operators import edge_means
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.tensors import between_nodes, products, tensors_of_cells
from mosaicdd.problems.shapes.apertures import Cover
from mosaicdd.problems.shapes.in_volumes import cells_around, means_in_volumes, sample_near
from mosaicdd.unsupported import Unsupported


@dataclass(frozen=True)
class Resampled:
    """Conductances that are not kept but made from the coefficients whenever they are asked for.

    ``place``: a part of the grid, whose nodes are counted from its corner.
    """

    medium: "Medium"
    grid: Grid
    place: Part

    def part(self, *place: slice) -> Conductances:
        """Return those between some of the nodes, by a slice per axis."""
        moved = tuple(
            slice(whole.start + p.start, whole.start + p.stop)
            for whole, p in zip(self.place, place, strict=True)
        )
        return self.medium.conductances(self.grid, moved)


class Medium:
    """The coefficients of a problem.

    ``fields``: by name: ``a``, or ``axx`` and ``ayy``, positive, anything that `Field` takes, or values per cell
    ``(ny, nx)``; ``axy``, in space ``axz`` and ``ayz``, beside them, where the tensor is positive definite; ``c``, not negative; at the nodes the velocity ``bx``, ``by`` and in space ``bz``. What is not given is zero.

    ``aspect``: the sides of a cell per axis in units of the grid's spacing, where these differ (`Grid.aspect`). Per squared
    spacing what conducts along an axis is then divided by the square of its side.

    ``bilinear``: whether cells are bilinear elements, see `tensors`; in the plane, without a velocity.

    ``foils``: whether there are any in the diffusion, see `Foils`.
    """

    NAMES = (*DIFFUSION, *edge_means.MIXED, "bx", "by", "bz", "c")
    """Of all coefficients that may be fields."""

    reflective = False

    def __init__(
        self, fields: Mapping[str, Field], aspect: tuple[float, ...] = (), *, bilinear: bool = False
    ):
        self.fields, self.aspect, self.bilinear = dict(fields), aspect, bilinear
        self._zero = Field("", 0.0)
        self.foils = any(field.foils is not None for field in fields.values())
        self._c = fields.get("c", self._zero)

    @property
    def couples_corners(self) -> bool:
        """Whether nodes are coupled across cells: the tensor is not diagonal, or cells are bilinear elements."""
        mixed = [self.fields[name] for name in edge_means.MIXED if name in self.fields]
        return self.bilinear or any(field.number != 0.0 for field in mixed)

    def _along(self, axes: int) -> list[Field]:
        """Return the diffusion along each axis; raise `Unsupported` if it is not known of all."""
        names = [2 * letter for letter in letters(axes)]
        along = [self.fields.get(f"a{name}", self.fields.get("a")) for name in names]
        known = [a for a in along if a is not None]
        if len(known) < axes:
            diffusion = sorted(name for name in self.fields if name.startswith("a"))
            raise Unsupported(
                f"the diffusion {' and '.join(diffusion)} is not that of a grid of {axes} axes: "
                f"give a, or {', '.join(f'a{name}' for name in reversed(names))}"
            )
        return known

    def _velocity(self, axes: int) -> list[Field]:
        return [self.fields.get(f"b{letter}", self._zero) for letter in letters(axes)]

    @property
    def pure(self) -> bool:
        """Whether there is no reaction, so that constants solve the equation."""
        return self._c.number == 0.0

    @property
    def reaction(self) -> Field:
        """``c``."""
        return self._c

    def reacting(self, grid: Grid) -> np.ndarray | None:
        """Return the nodes where ``c`` is positive, ``(K, 2)``; None for all."""
        if self.pure:
            return np.empty((0, len(grid.shape)), int)
        if self._c.number is not None:
            return None
        strips = self._c.strips(grid)
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

    def conductances(self, grid: Grid, part: Part) -> Conductances:
        """Return the conductances between the nodes of a part of a grid.

        `ValueError` if a value is not finite, ``a`` is not positive, or ``c`` is negative, with its place.
        """
        same = self._c.number is not None
        place = tuple(slice(p.start, p.start + 1) for p in part) if same else part
        c = sample_signed(self._c, grid, place, positive=False)
        along, across = self._diffusion(grid, part)
        if self.foils:
            self.with_foils(grid, part, along, [np.broadcast_to(1.0, k.shape) for k in along])
        reaction = grid.spacing**2 * c
        if same:  # of one value, which takes no memory
            reaction = np.broadcast_to(reaction, [p.stop - p.start for p in part])
        if self.self_adjoint:
            return Conductances(along, reaction, across=across)
        ways = []
        for axis, (k, b) in enumerate(zip(along, self._velocity(len(part)), strict=True)):
            low, high = ends(axis, len(part))
            velocity = grid.spacing * b.sample(grid, part)[0] / self._side(axis)
            ways.append(edge_means.fitted(k, (velocity[high] + velocity[low]) / 2))
        along, against = zip(*ways, strict=True)
        return Conductances(along, reaction, against)

    def within(self, grid: Grid, part: Part, cover: Cover) -> Conductances:
        """Return the conductances of what a domain has of the faces between the nodes of a part.

        ``part``: may reach beyond the grid, where there are no cells; ``cover``: what the domain has of the cells
        around the nodes.
        """
        if self._c.per_cell(grid):
            (c,) = means_in_volumes(self._c, grid, part, cover, fill=0.0, positive=False)
        else:
            c = _near(self._c, grid, part, cover, fill=0.0)
            c = require_sign(c, self._c, grid, part, positive=False)
        reaction = grid.spacing**2 * c
        reaction = np.broadcast_to(reaction, [p.stop - p.start for p in part])
        if self.couples_corners:  # of a rectangle, whose cells are whole
            along, across = self._tensors(grid, part)
            return Conductances(along, reaction, across=across)
        between = []
        for axis, a in enumerate(self._along(len(part))):
            if a.per_cell(grid):
                (cells,) = cells_around(a, grid, part, cover)
                between.append(cover.of_edges(axis, cells))
                continue
            values = _near(a, grid, part, cover, fill=1.0)
            resistance = 0.5 / require_sign(values, a, grid, part, positive=True)
            if a.number is not None:
                between.append(cover.of_edges(axis) / (2 * resistance))
                continue
            low, high = ends(axis, len(part))
            between.append(cover.of_edges(axis) / (resistance[high] + resistance[low]))
        for axis, side in enumerate(self.aspect):
            between[axis] = between[axis] / side**2
        if self.foils:
            faces = [cover.of_edges(axis) * cover.near(axis) for axis in range(len(part))]
            self.with_foils(grid, part, between, faces)
        if self.self_adjoint:
            return Conductances(tuple(between), reaction)
        ways = []
        for axis, (k, b) in enumerate(zip(between, self._velocity(len(part)), strict=True)):
            near = sample_near(b, grid, part, cover.inside, fill=0.0, counts=cover.counts)
            values = grid.spacing * near[0] / self._side(axis)
            low, high = ends(axis, len(part))
            velocity = cover.of_edges(axis) * (values[low] + values[high]) / 2
            both = edge_means.fitted(np.where(k > 0, k, 1.0), velocity)
            ways.append([np.where(k > 0, way, 0.0) for way in both])
        along, against = zip(*ways, strict=True)
        return Conductances(along, reaction, against)

    def _diffusion(
        self, grid: Grid, part: Part
    ) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """Return the conductances along each axis and across cells, without a velocity."""
        if self.couples_corners:
            return self._tensors(grid, part)
        # Once of a coefficient, which mostly is the same along all axes.
        every = self._along(len(part))
        kept = {a: edge_means.shares(a, grid, part) for a in dict.fromkeys(every)}
        along = [
            edge_means.sum_around(kept[a], axis)
            if a.per_cell(grid)
            else edge_means.in_series(kept[a], axis)
            for axis, a in enumerate(every)
        ]
        for axis, side in enumerate(self.aspect):
            along[axis] /= side**2
        return tuple(along), ()

    def with_foils(
        self, grid: Grid, part: Part, along: Sequence[Any], faces: Sequence[Any]
    ) -> None:
        """Change conductances where foils are, in arrays of numpy's or torch's; see `Foils.change`."""
        for axis, a in enumerate(self._along(len(part))):
            if a.foils is not None:
                a.foils.change(grid, part, axis, along[axis], faces[axis])

    def _tensors(
        self, grid: Grid, part: Part
    ) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """Return the conductances along each axis and across cells; none where the grid has no cells."""
        tensors = tensors_of_cells(self.fields, grid, part)
        sides = products([self._side(axis) for axis in range(len(part))])
        scaled = (values / scale for values, scale in zip(tensors, sides, strict=True))
        return between_nodes(scaled, bilinear=self.bilinear)

    def _side(self, axis: int) -> float:
        """Return the side of a cell along an axis in units of the spacing."""
        return self.aspect[axis] if self.aspect else 1.0


def medium_of(operator: object, because: str = "") -> Medium:
    """Return an operator, with constant coefficients or not, as a medium.

    ``because``: why it must be one, for messages.

    `Unsupported` if its tensor is not diagonal beside a velocity, it describes waves, or is not linear.
    """
    if isinstance(operator, Medium):
        return operator
    if not isinstance(operator, EllipticOperator):
        lacks = "is not linear"
    elif operator.axy and not operator.self_adjoint:
        lacks = f"has a mixed derivative, axy {operator.axy:g}, and a velocity"
    elif operator.c < 0:
        lacks = f"describes waves, c is {operator.c:g}, not 0 or more"
    else:
        names = ["bx", "by", "c", *(["a"] if operator.ayy == operator.axx else ["axx", "ayy"])]
        names += ["axy"] * bool(operator.axy)
        values = {name: getattr(operator, "axx" if name == "a" else name) for name in names}
        return Medium({name: Field(name, value) for name, value in values.items()})
    raise Unsupported(
        f"{because + ', and ' if because else ''}the equation {lacks}: such an equation is solved with "
        "values given on all sides of a rectangle, whose cells are multiples of half a subdomain"
    )


def _near(field: Field, grid: Grid, part: Part, cover: Cover, *, fill: float) -> np.ndarray:
    """Return what `sample_near` does of one field; a single value of a number."""
    if field.number is not None:
        return np.full((1,) * len(part), field.number)
    return sample_near(field, grid, part, cover.inside, fill=fill, counts=cover.counts)[0]
