"""Integrals over a domain, or a region of it: sums over control volumes, of second order in the spacing."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mosaicdd.axes import in_order, letters, within
from mosaicdd.discretisation.periodic import GridNodes
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.fields.given import as_mask, require_place, usable
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.apertures import Apertures, cut_cells, staircase
from mosaicdd.problems.shapes.shape import has_values
from mosaicdd.quantities.held_field import FieldOnRank, rows_of

Region = Mapping[str, tuple[float, float]] | Any


"""A box by the names of coordinates, ``{"x": (x0, x1)}``, or a mask of cells or nodes; None for all of the domain."""


class RegionVolumes:
    """The volume of the domain, or of a region of it, around each node.

    `ValueError` if a region is empty, or no box or mask of the grid.
    """

    def __init__(self, problem: Problem, grid: Grid, region: Region = None):
        self._problem, self._grid = problem, grid
        self._box: tuple[tuple[float, float], ...] | None = None
        self._mask: np.ndarray | None = None
        if isinstance(region, Mapping):
            self._box = tuple(
                (float(low), float(high))
                for low, high in in_order(region, len(grid.shape), default=grid.ends)
            )
            for letter, (low, high), (first, last) in zip(
                letters(len(grid.shape)), self._box, grid.ends, strict=True
            ):
                if not (low < high and low < last and high > first):
                    raise ValueError(
                        f"the region goes from {low:g} to {high:g} along {letter}, the domain from {first:.10g} to "
                        f"{last:.10g}: "
                        "give the lower end first, within the domain"
                    )
        elif region is not None:
            region = usable(region, "the region")
            mask = as_mask(region, "the region")
            if mask.shape not in (tuple(grid.shape), grid.nodes):
                raise ValueError(
                    f"the region has the shape {mask.shape}, the grid has {tuple(grid.shape)} cells and {grid.nodes} "
                    "nodes: give a mask of cells or nodes, or a box as {'x': (x0, x1)}"
                )
            require_place(region, grid, "the region")
            self._mask = mask

    def of(self, part: Part) -> np.ndarray:
        """Return the volumes around the nodes of a part, in units of domain length to the power of the axes."""
        grid, axes = self._grid, len(self._grid.shape)
        cells = GridNodes(grid.shape, (None,) * axes).cells(part)
        if self._mask is not None and self._mask.shape == tuple(grid.shape):
            around = tuple(slice(p.start, p.stop + 1) for p in part)
            cells = cells & np.pad(self._mask, 1)[around]
        volumes = self._cover(part, cells).volumes * grid.spacing**axes
        if self._mask is not None and self._mask.shape == grid.nodes:
            volumes = volumes * self._mask[part]
        box = () if self._box is None else grid.cells(np.transpose(self._box)).T
        for axis, ends in enumerate(box):
            at = np.arange(part[axis].start, part[axis].stop)
            shape = [-1 if other == axis else 1 for other in range(axes)]
            volumes = volumes * _share(at, ends, grid.shape[axis]).reshape(shape)
        return volumes

    def _cover(self, part: Part, cells: np.ndarray) -> Apertures:
        shape = self._problem.domain.shape
        if shape is None:
            return Apertures.of_cells(cells)
        if shape.voxels is not None:
            return Apertures.of_cells(cells & shape.cells(part))
        ring = tuple(slice(p.start - 1, p.stop + 1) for p in part)
        level = np.ones([p.stop - p.start for p in ring])
        inside = tuple(
            slice(max(p.start, 0), min(p.stop, n))
            for p, n in zip(ring, self._grid.nodes, strict=True)
        )
        level[within(inside, ring)] = shape.level(self._grid, inside)
        if shape.staircase:
            return staircase(level, cells)
        return cut_cells(level, cells)[0]


def _share(at: np.ndarray, ends: Sequence[float], last: int) -> np.ndarray:
    """Return what an interval, in cells, has of nodes' linear functions along an axis, relative to the whole axis's."""

    def integral(x: np.ndarray) -> np.ndarray:
        """Of a hat of height and half width 1, from its foot on."""
        x = x.clip(-1.0, 1.0)
        return np.where(x < 0, (1 + x) ** 2 / 2, 1 - (1 - x) ** 2 / 2)

    low, high = (min(max(end, 0.0), float(last)) for end in ends)
    own = integral(high - at) - integral(low - at)
    return own / (integral(last - at) - integral(-at))


def integrals(field: FieldOnRank, measure: RegionVolumes) -> tuple[np.ndarray, np.ndarray]:
    """Return the integral of each problem's field, and the size of the region, ``(n,)`` each.

    Nodes without a value, of whose volumes a part is inside, have the mean of the values around.
    `ValueError` if no part of the domain lies in the region.
    """
    sums = np.zeros((len(field.values), 2))
    for part in rows_of(field):
        volumes, wide = measure.of(part), field.around(part)
        own = field.at(part)
        known = has_values(field.problem.domain.shape, field.grid, part, own)
        u = np.where(known, own, _filled(field.at(wide))[:, *within(part, wide)])
        there = known | np.isfinite(u)
        sums[:, 0] += (np.where(there, u, 0.0) * volumes).reshape(len(u), -1).sum(axis=1)
        sums[:, 1] += (there * volumes).reshape(len(u), -1).sum(axis=1)
    total = field.total(sums)
    if not total[:, 1].all():
        raise ValueError("the region is empty: no part of the domain lies in it")
    return total[:, 0], total[:, 1]


def _filled(u: np.ndarray) -> np.ndarray:
    """Return fields ``(n, rows, columns)`` where NaN beside numbers are the means of these."""
    known = np.isfinite(u)
    if known.all():
        return u
    around = [(0, 0), *[(1, 1)] * (u.ndim - 1)]
    values, counts = np.pad(np.where(known, u, 0.0), around), np.pad(known.astype(float), around)
    for axis in range(1, u.ndim):  # sums over three nodes along each axis
        values, counts = (_of_three(a, axis) for a in (values, counts))
    return np.where(
        known, u, np.divide(values, counts, out=np.full(u.shape, np.nan), where=counts > 0)
    )


def _of_three(a: np.ndarray, axis: int) -> np.ndarray:
    """Return the sums of each three neighbours along an axis, which gets shorter by two."""
    count = a.shape[axis] - 2
    return (
        a.take(range(count), axis)
        + a.take(range(1, count + 1), axis)
        + a.take(range(2, count + 2), axis)
    )
