"""A medium: coefficients that are fields, and the discrete operator that they make.

The operator is ``-div(T grad u) + b . grad u + c u`` with a diagonal tensor ``T``, mostly ``a`` in both
directions. Between two neighbouring nodes flows the difference of their values times a *conductance*.
Where ``a`` is given at the nodes, it is the harmonic mean of the two; where it is given per cell, as
images and material maps are, the mean of the two cells beside the grid edge, which is exact where
materials meet on grid lines. ``b`` and ``c`` are given at the nodes. All is scaled by the squared
spacing, so a conductance has the units of ``a``.

A velocity makes the conductance of an edge another in each of its two nodes' equations, smaller in
that of the upstream node: by exponential fitting, as where coefficients are constant
(`EllipticOperator.stencil`), with the mean of both nodes' velocities along the edge.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from mosaicdd.lattice.axes import at, ends, others
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import Field, Part, overlap, require_finite
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.shapes.apertures import Cover
from mosaicdd.problems.shapes.sample_near import sample_near
from mosaicdd.unsupported import Unsupported

if TYPE_CHECKING:
    from mosaicdd.problems.operators.nonlinear import Linearised

_DIFFUSION = "a", "axx", "ayy"


@dataclass(frozen=True)
class Resampled:
    """Conductances that are not kept but made from the coefficients whenever they are asked for.

    Parameters
    ----------
    place
        A part of the grid, whose nodes are counted from its corner.
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

    Parameters
    ----------
    fields
        By name: ``a``, or ``axx`` and ``ayy``, positive, anything that `Field` takes, or values per
        cell ``(ny, nx)``; at the nodes ``c``, not negative, and the velocity ``bx`` and ``by``. What is
        not given is zero.
    """

    NAMES = (*_DIFFUSION, "bx", "by", "c")
    """Of all coefficients that may be fields."""

    reflective = False

    def __init__(self, fields: Mapping[str, Field]):
        self.fields = dict(fields)
        zero = Field("", 0.0)
        self._along = [fields[name if name in fields else "a"] for name in ("ayy", "axx")]
        self._velocity = [fields.get(name, zero) for name in ("by", "bx")]
        self._c = fields.get("c", zero)

    @property
    def pure(self) -> bool:
        """Whether there is no reaction, so that constants solve the equation."""
        return self._c.number == 0.0

    def reacting(self, grid: Grid) -> np.ndarray | None:
        """Return the nodes where ``c`` is positive, ``(K, 2)``; None for all, and where no rank has all of it."""
        if self.pure:
            return np.empty((0, 2), int)
        if self._c.number is not None or not self._c.everywhere:
            return None
        return np.concatenate(
            [np.argwhere(c > 0) + np.array((part[0].start, 0)) for part, c in self._c.strips(grid)]
        )

    @property
    def self_adjoint(self) -> bool:
        """Whether there is no velocity."""
        return all(b.number == 0.0 for b in self._velocity)

    def require_shape(self, grid: Grid) -> None:
        """Check that values belong to a grid, and serve all problems.

        Raises
        ------
        ValueError
            If they do not, with both shapes.
        """
        for field in self.fields.values():
            if field.problems > 1:
                raise Unsupported(
                    f"the field {field.name} is of {field.problems} problems; problems that are solved "
                    "at once share their coefficients: solve them one by one"
                )
            if field in self._along and field.per_cell(grid):
                field.require_spacing(grid)
            else:
                field.require_shape(grid)

    def conductances(self, grid: Grid, part: Part) -> Conductances:
        """Return the conductances between the nodes of a part of a grid.

        Raises
        ------
        ValueError
            If a value is not finite, ``a`` is not positive, or ``c`` is negative, with its place.
        """
        same = self._c.number is not None
        at = tuple(slice(p.start, p.start + 1) for p in part) if same else part
        c = require_sign(self._c.sample(grid, at)[0], self._c, grid, at, positive=False)
        along = self._diffusion(grid, part)
        reaction = grid.spacing**2 * c
        if same:  # of one value, which takes no memory
            reaction = np.broadcast_to(reaction, [p.stop - p.start for p in part])
        if self.self_adjoint:
            return Conductances(along, reaction)
        fitted = []
        for axis, (k, b) in enumerate(zip(along, self._velocity, strict=True)):
            low, high = ends(axis, len(part))
            velocity = grid.spacing * b.sample(grid, part)[0]
            fitted.append(_fitted(k, (velocity[high] + velocity[low]) / 2))
        along, against = zip(*fitted, strict=True)
        return Conductances(along, reaction, against)

    def within(self, grid: Grid, part: Part, cover: Cover) -> Conductances:
        """Return the conductances of what a domain has of the faces between the nodes of a part.

        Parameters
        ----------
        part
            May reach beyond the grid, where there are no cells.
        cover
            What the domain has of the cells around the nodes.
        """
        c = _near(self._c, grid, part, cover, fill=0.0)
        between = []
        for axis, a in enumerate(self._along):
            if a.per_cell(grid):
                cells = _cells_around(a, grid, part, cover.inside)
                between.append(cover.of_edges(axis, cells))
                continue
            values = _near(a, grid, part, cover, fill=1.0)
            resistance = 0.5 / require_sign(values, a, grid, part, positive=True)
            if a.number is not None:
                between.append(cover.of_edges(axis) / (2 * resistance))
                continue
            low, high = ends(axis, len(part))
            between.append(cover.of_edges(axis) / (resistance[high] + resistance[low]))
        reaction = grid.spacing**2 * require_sign(c, self._c, grid, part, positive=False)
        reaction = np.broadcast_to(reaction, [p.stop - p.start for p in part])
        if self.self_adjoint:
            return Conductances(tuple(between), reaction)
        fitted = []
        for axis, (k, b) in enumerate(zip(between, self._velocity, strict=True)):
            near = sample_near(b, grid, part, cover.inside, fill=0.0, counts=cover.counts)
            values = grid.spacing * near[0]
            low, high = ends(axis, len(part))
            velocity = cover.of_edges(axis) * (values[low] + values[high]) / 2
            both = _fitted(np.where(k > 0, k, 1.0), velocity)
            fitted.append([np.where(k > 0, way, 0.0) for way in both])
        along, against = zip(*fitted, strict=True)
        return Conductances(along, reaction, against)

    def _diffusion(self, grid: Grid, part: Part) -> tuple[np.ndarray, ...]:
        """Return the conductances along each axis, without a velocity."""
        # Once of a coefficient, which mostly is the same along all axes.
        kept = {a: _shares(a, grid, part) for a in dict.fromkeys(self._along)}
        return tuple(
            _sum_around(kept[a], axis) if a.per_cell(grid) else _in_series(kept[a], axis)
            for axis, a in enumerate(self._along)
        )


def _shares(a: Field, grid: Grid, part: Part) -> np.ndarray:
    """Return what conductances are made of: half resistances at nodes, or what cells have in each of their edges.

    Of cells also those around the outermost nodes, with zeros beyond the outline of the domain.
    """
    if not a.per_cell(grid):
        return 0.5 / require_sign(a.sample(grid, part)[0], a, grid, part, positive=True)
    cells = tuple(
        slice(max(p.start - 1, 0), min(p.stop, count))
        for p, count in zip(part, grid.shape, strict=True)
    )
    values = require_finite(a.sample_cells(cells), f"the field {a.name}")
    require_sign(values, a, grid, cells, positive=True)
    beyond = [
        (int(p.start == 0), int(p.stop == nodes)) for p, nodes in zip(part, grid.nodes, strict=True)
    ]
    return np.pad(0.5 ** (len(part) - 1) * values, beyond)


def _in_series(resistance: np.ndarray, axis: int) -> np.ndarray:
    """Return the conductances along an axis of two half resistances in series."""
    low, high = ends(axis, resistance.ndim)
    return 1.0 / (resistance[high] + resistance[low])


def _sum_around(cells: np.ndarray, axis: int) -> np.ndarray:
    """Return the sums over the cells around the grid edges along an axis, of nodes within cells."""
    total = cells[at(axis, cells.ndim, slice(1, -1))]
    for across in others(axis, cells.ndim):
        low, high = ends(across, cells.ndim)
        total = total[low] + total[high]
    return total


def _cells_around(a: Field, grid: Grid, part: Part, inside: np.ndarray | None) -> np.ndarray:
    """Return values per cell around the nodes of a part, 1 beyond the grid.

    Parameters
    ----------
    inside
        Which nodes count, with one more all around; 1 in cells without such a corner, too.
    """
    wide = tuple(slice(p.start - 1, p.stop) for p in part)
    there, where = overlap(wide, grid.shape)
    values = np.ones([p.stop - p.start for p in wide])
    values[where] = a.sample_cells(there)
    if inside is not None:
        corners = inside[:-1, :-1] | inside[1:, :-1] | inside[:-1, 1:] | inside[1:, 1:]
        values[~corners] = 1.0
    require_finite(values, f"the field {a.name}")
    return require_sign(values, a, grid, wide, positive=True)


def _fitted(conductances: np.ndarray, velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return those in the equations of an edge's upstream and downstream node.

    ``k B(b / k)`` and ``k B(-b / k)`` with Bernoulli's ``B(t) = t / (exp(t) - 1)``: of second order where
    ``t``, the cell Peclet number, is small, and where it is large, upwind.

    Parameters
    ----------
    velocity
        Times the spacing, from the first node to the second.
    """
    t = np.abs(velocity) / conductances
    # Below 1e-4 the next term of the series is rounding; beyond 500 the power overflows.
    power = np.expm1(np.clip(t, 1e-4, 500.0))
    against = np.where(t < 1e-4, 1 - t / 2 + t * t / 12, t / power)
    against, along = conductances * against, conductances * (against + t)
    forwards = velocity > 0
    return np.where(forwards, against, along), np.where(forwards, along, against)


def medium_of(operator: object, because: str = "") -> Medium:
    """Return an operator, with constant coefficients or not, as a medium.

    Parameters
    ----------
    because
        Why it must be one, for messages.

    Raises
    ------
    Unsupported
        If its tensor is not diagonal, it describes waves, or is not linear.
    """
    if isinstance(operator, Medium):
        return operator
    if not isinstance(operator, EllipticOperator):
        lacks = "is not linear"
    elif operator.axy:
        lacks = f"has a mixed derivative, axy {operator.axy:g}"
    elif operator.c < 0:
        lacks = f"describes waves, c is {operator.c:g}, not 0 or more"
    else:
        values = {name: getattr(operator, name) for name in Medium.NAMES if name != "a"}
        return Medium({name: Field(name, value) for name, value in values.items()})
    raise Unsupported(
        f"{because + ', and ' if because else ''}the equation {lacks}: such an equation is solved with "
        "values given on all sides of a rectangle, whose cells are multiples of half a subdomain"
    )


def _near(field: Field, grid: Grid, part: Part, cover: Cover, *, fill: float) -> np.ndarray:
    """Return what `sample_near` does of one field; ``(1, 1)`` of a number."""
    if field.number is not None:
        return np.full((1, 1), field.number)
    return sample_near(field, grid, part, cover.inside, fill=fill, counts=cover.counts)[0]


def require_sign(
    values: np.ndarray, field: Field, grid: Grid, part: Part, *, positive: bool
) -> np.ndarray:
    """Check the sign of a coefficient's values in a part of a grid, and return them.

    Raises
    ------
    ValueError
        If one is not positive, or negative: with its place, how many there are in the array that was
        given, and what to do where nothing conducts.
    """
    bad = values <= 0 if positive else values < 0
    if not bad.any():
        return values
    first = np.argwhere(bad)[0]
    place = tuple(int(i) + p.start for i, p in zip(first, part, strict=True))
    count, size = field.count(lambda given: given <= 0 if positive else given < 0)
    what = f"{count} of the {size} values given are not, the first is" if size else "it is"
    way_out = ": leave what does not conduct out of the domain, by --domain or Domain.from_mask"
    raise ValueError(
        f"the field {field.name} must be {'positive' if positive else 'not negative'} everywhere; "
        f"{what} {values[tuple(first)]:g} at {'cell' if field.per_cell(grid) else 'node'} {place}"
        f"{way_out if field.name in _DIFFUSION else ''}"
    )


class MediumSystem:
    """The system ``A u = b`` of the nodes inside a domain, as `DirichletSystem`, in a medium."""

    def __init__(self, medium: "Medium | Linearised", grid: Grid):
        self.operator = medium
        self.grid = grid
        self.shape = grid.shape
        rows, columns = (slice(0, nodes) for nodes in grid.nodes)
        self._conductances = medium.conductances(grid, (rows, columns))

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """``h^2 A``, of ``(ny - 1) (nx - 1)`` rows, row by row from the bottom."""
        return self._conductances.matrix()

    def apply(self, field: np.ndarray) -> np.ndarray:
        """Return ``h^2 A u`` of a field ``(ny + 1, nx + 1)``: ``(ny - 1, nx - 1)``."""
        return self._conductances.apply(field)

    def right_hand_side(self, field: np.ndarray, source: np.ndarray | None = None) -> np.ndarray:
        """Return ``b`` for the edge values of a field and a source ``f`` at the nodes."""
        edge = np.array(field)
        edge[1:-1, 1:-1] = 0.0
        b = -self.apply(edge)
        if source is not None:
            b += self.grid.spacing**2 * source[1:-1, 1:-1]
        return b.ravel()

    @cached_property
    def _factors(self) -> scipy.sparse.linalg.SuperLU:
        return scipy.sparse.linalg.splu(self.matrix.tocsc())

    def solve(self, right_hand_side: np.ndarray) -> np.ndarray:
        """Solve by a sparse factorisation, kept for further calls."""
        return self._factors.solve(right_hand_side)
