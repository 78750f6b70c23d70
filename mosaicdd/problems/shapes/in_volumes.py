"""Values that are given per cell, around nodes: what the cells there have of each node's volume counts.

A volume times the mean over it is the sum over its parts of cells, so nothing is lost of what is given in cells.

Values of a field around the outline of a domain, where equations at nodes inside ask for them.
"""

import itertools
from typing import Any

import numpy as np

from mosaicdd.axes import ends
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Field, Part, Periods, overlaps, require_sign
from mosaicdd.problems.shapes.apertures import Apertures
from mosaicdd.problems.shapes.shape import Shape, inside_ring


def cells_around(
    field: Field,
    grid: Grid,
    part: Part,
    cover: Apertures,
    *,
    positive: bool | None = True,
    periods: Periods | None = None,
    fill: float = 1.0,
) -> np.ndarray:
    """Return values per cell, or a number, around the nodes of a part, ``(n, rows + 1, columns + 1)``.

    `ValueError` if one is not finite, or has the wrong sign.

    Parameters
    ----------
    cover
        What the domain has of these cells.
    positive
        Whether they must be, or not negative; None if they may be anything.
    periods
        Of the grid, by default none.
    fill
        Beyond the grid, and where they are not known.
    """
    wide = tuple(slice(p.start - 1, p.stop) for p in part)
    values = np.full((field.problems, *(p.stop - p.start for p in wide)), fill)
    for there, where in overlaps(wide, grid.shape, periods or (None,) * len(part)):
        values[:, *where] = field.sample_cells(there) if field.number is None else field.number
    known = known_cells(cover)
    if known is not None:
        values[:, ~known] = fill
    field.require_finite(values[0] if len(values) == 1 else values, grid, wide)
    if positive is not None:
        require_sign(values[0], field, grid, wide, positive=positive)
    return values


def cells_within(field: Field, shape: Shape | None, grid: Grid, part: Part) -> np.ndarray:
    """Return a field in the cells above and to the right of the nodes of a part, zero where a shape has nothing of them.

    ``(n, rows, columns)``, of cells there are. `ValueError` if one is not finite.
    """
    values = field.sample_as_given(grid, part, checked=False)
    if shape is not None:
        known = known_cells(
            Apertures((), (), inside_ring(shape, grid, part), cells=shape.cells(part))
        )
        there = tuple(slice(1, 1 + n) for n in values.shape[1:])
        values = np.where(True if known is None else known[there], values, 0.0)
    field.require_finite(values[0] if len(values) == 1 else values, grid, part)
    return values


def means_in_volumes(
    field: Field,
    grid: Grid,
    part: Part,
    cover: Apertures,
    *,
    fill: float,
    positive: bool | None = None,
    periods: Periods | None = None,
) -> np.ndarray:
    """Return the means over the volumes of the nodes of a part, ``(n, rows, columns)``; errors as of `cells_around`.

    ``fill``: where there is no volume, and of cells that are not known; the others are those of `cells_around`.
    """
    around = field, grid, part, cover
    cells = cells_around(*around, positive=positive, periods=periods, fill=fill)
    volumes = cover.volumes
    known = volumes > 0
    sums = np.stack([cover.of_volumes(values) for values in cells])
    return np.where(known, sums / np.where(known, volumes, 1.0), fill)


def known_cells(cover: Apertures) -> np.ndarray | None:
    """Say of which cells around the nodes values are known, ``(rows + 1, columns + 1)``; None of all."""
    if cover.cells is not None or cover.inside is None:
        return cover.cells
    corners = cover.inside
    for axis in range(corners.ndim):
        low, high = ends(axis, corners.ndim)
        corners = corners[low] | corners[high]
    return corners


def sample_near(
    field: Field,
    grid: Grid,
    part: Part,
    inside: np.ndarray | None,
    *,
    fill: float,
    counts: np.ndarray | None = None,
    periods: Periods | None = None,
    cover: Apertures | None = None,
) -> np.ndarray:
    """Return the values at the nodes of a part that may reach beyond a domain, ``(n, rows, columns)``.

    At the nodes beside those inside they are what is given, and where that is not finite the means of
    the nodes inside around; further out, and beyond the grid, they are ``fill``. Of values per cell they are the means
    over volumes, as `means_in_volumes`.

    `ValueError` if a value inside is not finite.

    Parameters
    ----------
    inside
        Which nodes are inside the domain, with one more all around; None for all of the grid.
    counts
        At which others what is given counts, ``(rows, columns)``, by default at all: elsewhere they
        are the means, whatever is given there.
    periods
        Of the grid, by default none. The values of the last node are those of the first where there is one.
    cover
        What the domain has of the cells around the nodes; of values per cell, but on a rectangle it must be known.
    """
    ring = tuple(slice(p.start - 1, p.stop + 1) for p in part)
    shape, own_shape = ([p.stop - p.start for p in place] for place in (ring, part))
    periods = periods or (None,) * len(part)
    if cover is not None and field.per_cell(grid):
        return means_in_volumes(field, grid, part, cover, fill=fill, periods=periods)
    if field.number is not None:
        return np.full((1, *own_shape), field.number)
    if inside is None or field.of_rank:  # with values outside of the domain
        if all(p.start >= 0 and p.stop <= n for p, n in zip(part, grid.nodes, strict=True)):
            return field.sample(grid, part).copy()
        values = np.full((field.problems, *own_shape), fill)
        for there, where in overlaps(part, grid.nodes, periods):
            values[:, *where] = field.sample(grid, there)
        return values
    known = np.zeros(shape, bool)
    values = np.full((field.problems, *shape), np.nan)
    for there, where in overlaps(ring, grid.nodes, periods):
        known[where] = inside[where]
        values[:, *where] = field.sample(grid, there, known[where])
    return NearOutline(known, known)(values, fill, counts)


class NearOutline:
    """Values at the nodes of a part from those inside of an outline, in arrays of numpy's or torch's.

    Parameters
    ----------
    inside
        Which nodes are inside, with one more all around, ``(rows + 2, columns + 2)``.
    known
        At which of these there are values.
    """

    def __init__(self, inside: np.ndarray, known: np.ndarray):
        shape, axes = tuple(n - 2 for n in inside.shape), inside.ndim
        steps = list(itertools.product((-1, 0, 1), repeat=axes))
        neighbours = [
            tuple(slice(1 + d, n + 1 + d) for n, d in zip(shape, step, strict=True))
            for step in steps
        ]
        self.near = np.logical_or.reduce([inside[place] for place in neighbours])
        nodes = np.argwhere(self.near & ~inside[(slice(1, -1),) * axes])
        around = np.moveaxis(nodes[:, None] + 1 + np.array(steps), 2, 0)
        self._nodes = np.ravel_multi_index(tuple(nodes.T), shape)
        self._around = np.ravel_multi_index(tuple(around), inside.shape)
        self._known = (inside & known).reshape(-1)[self._around]

    def __call__(
        self, ring: Any, fill: float, counts: np.ndarray | None = None, of: Any = np
    ) -> Any:
        """Return the values ``(.., rows, columns)``, as `sample_near` has them.

        Parameters
        ----------
        ring
            Values with one node more all around, ``(.., rows + 2, columns + 2)``.
        fill
            The value of nodes that have no neighbour inside.
        counts
            At which nodes outside a finite value counts, ``(rows, columns)``; by default at all.
        of
            The module of the arrays.
        """
        axes = self.near.ndim
        inner = (..., *(slice(1, -1),) * axes)
        values = of.where(of.asarray(self.near), ring[inner], fill)
        flat, known = values.reshape(*values.shape[:-axes], -1), of.asarray(self._known)
        around = ring.reshape(*ring.shape[:-axes], -1)[..., self._around]
        numbers = of.asarray(self._known.sum(axis=1).clip(min=1))
        means = of.where(known, around, 0.0).sum(-1) / numbers
        at_nodes = flat[..., self._nodes]
        lacking = ~of.isfinite(at_nodes)
        if counts is not None:
            lacking = lacking | of.asarray(~counts.reshape(-1)[self._nodes])
        flat[..., self._nodes] = of.where(lacking, means, at_nodes)
        return values
