"""The domain of a problem: its grid cells, their size, and the part of them that a shape is."""

import dataclasses
import functools
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.axes import coordinates, in_order, letters, times
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.given import as_mask, one_corner, require_place, spacing_of, usable
from mosaicdd.problems.shapes.polygons import Polygons
from mosaicdd.problems.shapes.shape import Level, Shape, level_of_cells, level_of_mask
from mosaicdd.problems.shapes.voxels import VoxelMask
from mosaicdd.settings import unknown
from mosaicdd.unsupported import Unsupported

DEFAULT_SPACING = 0.5 / 32
"""Side of a cell, in units of domain length, where neither domain nor local solver gives one."""

Origin = Sequence[float] | None
"""A place, ``(x, y)``, in space ``(x, y, z)``; or by the names of coordinates."""


@dataclass(frozen=True)
class Domain:
    """A rectangle of grid cells, a box, or a part of one.

    Parameters
    ----------
    cells
        ``(ny, nx)``, or by name, ``{"x": nx, "y": ny}``; in space ``(nz, ny, nx)``.
    spacing
        Side of a cell, in units of domain length; by default that of the local solver. Of cells that are no squares
        (in space no cubes) the sides ``(dy, dx)``, or by name, ``{"x": dx, "y": dy}``; in space ``(dz, dy, dx)``.
    shape
        Which part of the rectangle, or the box, it is; by default all of it. See `from_mask`, `from_distance`,
        `from_polygons`.
    origin
        Where its lower-left corner lies, ``(x, y)``, in space ``(x, y, z)``, or by name, in units of domain length: all
        places are told in these coordinates. By default 0, or where fields of a problem that have coordinates begin.

    Raises
    ------
    ValueError
        If there is no cell along an axis, the spacing is not positive, or the origin not finite.
    TypeError
        If the cells are no pair, nor three, or the spacing is not one number, nor one for each axis; or the origin is none.
    Unsupported
        If polygons are given for a box.
    """

    cells: tuple[int, ...]
    spacing: float | tuple[float, ...] | None = None
    shape: Shape | None = None
    origin: Origin = None

    def __post_init__(self) -> None:
        cells = _by_axis(self.cells)
        if cells is None:
            raise TypeError(f"a domain has cells (ny, nx), or (nz, ny, nx), got {self.cells!r}")
        if len(cells) not in (2, 3) or not all(map(_is_whole, cells)):
            raise ValueError(
                f"a domain has whole cells (ny, nx), or (nz, ny, nx), got {self.cells}"
            )
        object.__setattr__(self, "cells", tuple(map(int, cells)))
        if self.spacing is not None:
            object.__setattr__(self, "spacing", _spacing(self.spacing, len(self.cells)))
        if self.origin is not None:
            object.__setattr__(self, "origin", _place(self.origin, len(self.cells)))
        grid = self.grid()  # checks the numbers
        if self.shape is not None:
            if not isinstance(self.shape, Shape):
                raise TypeError(
                    "the shape of a domain is made by Domain.from_mask, Domain.from_distance or Domain.from_polygons, got "
                    f"{type(self.shape).__name__}"
                )
            self.shape.require_shape(grid)

    def __str__(self) -> str:
        """Describe the domain in a few words."""
        spacing = "" if self.spacing is None else f" of {self.grid().cell}"
        if any(self.origin or ()):
            spacing += f" {self.grid().reach}"
        return f"{times(self.cells)} cells{spacing}" + (
            "" if self.shape is None else f" ({self.shape})"
        )

    @classmethod
    def of_grid(cls, grid: Grid, shape: Shape | None = None) -> "Domain":
        """Return the domain of all cells of a grid, or the part of it that a shape is."""
        return cls(grid.shape, grid.steps, shape, grid.origin[::-1] if any(grid.origin) else None)

    @classmethod
    def from_mask(
        cls,
        mask: Any,
        spacing: float | tuple[float, ...] | None = None,
        *,
        per_cell: bool | None = None,
        origin: Origin = None,
    ) -> "Domain":
        """Return the domain where a mask is true.

        Parameters
        ----------
        mask
            ``(ny + 1, nx + 1)`` at the nodes: the outline is a staircase, of first order, and where values
            are given on it, they stand at the first nodes outside. Or per cell, ``(ny, nx)``: then the
            outline runs along grid lines, and is of second order. In space per voxel, ``(nz, ny, nx)``: the outline
            runs along faces of voxels.
        per_cell
            Whether it is per cell; by default it is of nodes in the plane, of voxels in space.

        Raises
        ------
        ValueError
            If it is no mask, empty, or in the plane has a hole thinner than a cell.
        Unsupported
            If it is of the nodes of a box.
        """
        mask = usable(mask, "the mask")
        if (axes := np.ndim(mask)) not in (2, 3):
            raise ValueError(f"a mask has two axes, (y, x), or three, got {axes}")
        if axes == 3 and per_cell is False:
            raise Unsupported(
                "in space a mask is per voxel, (nz, ny, nx), not of nodes: leave out per_cell=False"
            )
        values = as_mask(mask, "the mask")
        make = VoxelMask if axes == 3 else level_of_cells if per_cell else level_of_mask
        cells = tuple(count - (make is level_of_mask) for count in values.shape)
        return cls._placed(cells, spacing, make(values), origin, mask, "the mask")

    @classmethod
    def _placed(
        cls, cells: Any, spacing: Any, shape: Shape, origin: Any, values: Any, what: str
    ) -> "Domain":
        """Return a domain whose spacing and origin are by default those of the given coordinates.

        `ValueError` if the origin differs from that of the coordinates.
        """
        spacing = spacing_of(values, len(cells), what) if spacing is None else spacing
        domain = cls(cells, spacing, shape, origin)
        place = one_corner({what: values}, domain.cells, domain.origin)
        domain = dataclasses.replace(domain, origin=place)
        require_place(values, domain.grid(), what)
        return domain

    @classmethod
    def from_distance(
        cls,
        distance: Any,
        cells: tuple[int, ...],
        spacing: float | tuple[float, ...] | None = None,
        origin: Origin = None,
        *,
        parameters: Mapping[str, float] | None = None,
    ) -> "Domain":
        """Return the domain where a signed distance, or anything like it, is negative; of second order.

        Parameters
        ----------
        distance
            A function ``f(x, y)`` of arrays of coordinates in units of domain length, in space ``f(x, y, z)``, the
            text of an expression, or node values ``(ny + 1, nx + 1)``, in space ``(nz + 1, ny + 1, nx + 1)``.
        parameters
            Numbers by the names that they have in the expression, or as further arguments of the function:
            `differentiable` and `adjoint` have derivatives by them.
        """
        distance = usable(distance, "the distance")
        shape = Level(distance, parameters=parameters or {})
        return cls._placed(cells, spacing, shape, origin, distance, "the distance")

    def with_parameters(self, **parameters: float) -> "Domain":
        """Return the same domain with other numbers in its distance; `ValueError` if it has no such."""
        for name in parameters:
            if name not in self.parameters:
                raise ValueError(unknown("parameter of the domain", name, tuple(self.parameters)))
        if self.shape is None:
            return self
        return dataclasses.replace(self, shape=self.shape.with_parameters(parameters))

    @property
    def parameters(self) -> Mapping[str, float]:
        """The numbers in its distance, by name."""
        return {} if self.shape is None else self.shape.parameters

    @classmethod
    def from_polygons(
        cls,
        outer: Any,
        holes: Sequence[Any] = (),
        *,
        cells: tuple[int, ...],
        spacing: float | tuple[float, ...] | None = None,
        origin: Origin = None,
    ) -> "Domain":
        """Return the domain inside a polygon and outside of its holes; of second order.

        Their outlines are ``outer``, ``hole1``, ``hole2``, .. in this order.

        Parameters
        ----------
        outer, holes
            Corners ``(N, 2)``, (x, y), in units of domain length.
        cells
            Of the rectangle around them, from the origin on, ``(ny, nx)``.

        Raises
        ------
        ValueError
            If an outline crosses itself or another, a hole is in another one, or they do not fit the cells.
        """
        return cls(cells, spacing, Polygons(outer, holes), origin)

    def grid(self, spacing: float | None = None) -> Grid:
        """Return the grid of the domain; ``spacing``: where the domain has none."""
        sides = spacing if self.spacing is None else self.spacing
        place = () if self.origin is None else tuple(self.origin)[::-1]
        return _grid(self.cells, DEFAULT_SPACING if sides is None else sides, place)


@functools.lru_cache(64)
def _grid(
    cells: tuple[int, ...], spacing: float | tuple[float, ...], place: tuple[float, ...]
) -> Grid:
    if isinstance(spacing, tuple):
        return Grid.of_cells(cells, spacing, place)
    return Grid(cells, spacing, origin=place)


def _by_axis(values: Any, axes: int = 0) -> tuple[Any, ...] | None:
    """Return what is given for each axis, by name or in the order of arrays; None if it is neither.

    ``axes``: by default 3 where one is named z, else 2.
    """
    if isinstance(values, Mapping):
        return in_order(values, axes or (3 if "z" in values else 2))
    listed = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
    return tuple(values) if listed else None


def _numbers_by_axis(entries: Any, axes: int) -> tuple[Any, ...] | None:
    """Return one number per axis, as `_by_axis`; None if these are no numbers, or not as many."""
    values = _by_axis(entries, axes) or ()
    numeric = len(values) == axes and all(isinstance(value, numbers.Real) for value in values)
    return values if numeric else None


def _spacing(spacing: Any, axes: int) -> float | tuple[float, ...]:
    """Return the side of a cell, or its different sides in the order of axes; else raise `TypeError`."""
    listed = (spacing,) * axes if isinstance(spacing, numbers.Real) else spacing
    if (sides := _numbers_by_axis(listed, axes)) is None:
        names = ", ".join(f"d{name}" for name in letters(axes))
        raise TypeError(
            f"spacing must be one number, or one for each axis, ({names}), got {spacing!r}"
        )
    return float(sides[0]) if len(set(sides)) == 1 else tuple(map(float, sides))


def _place(origin: Any, axes: int) -> tuple[float, ...]:
    """Return the origin as numbers, along x first; else raise `TypeError` or `ValueError`."""
    if (place := _numbers_by_axis(origin, axes)) is None:
        raise TypeError(f"the origin is a place, ({coordinates(axes)}), got {origin!r}")
    if not np.isfinite(place).all():
        raise ValueError(f"the origin must be finite, got {origin!r}")
    named = isinstance(origin, Mapping)  # in the order of arrays, then
    return tuple(map(float, place[::-1] if named else place))


def _is_whole(count: object) -> bool:
    return isinstance(count, numbers.Integral) and not isinstance(count, bool)
