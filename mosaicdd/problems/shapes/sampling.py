"""Samples of coefficients and sources in cells, and at nodes, that a domain has in part.

Of values per cell a node has the mean over its volume, by what the domain has of the cells there: a volume times that
mean is the sum over its parts of cells, so nothing is lost. Values at nodes are extended over the outline.
"""

import itertools
from typing import Any

import numpy as np

from mosaicdd.axes import grown, sizes
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import (
    Field,
    Part,
    Periods,
    cells_of,
    overlaps,
    require_sign,
)
from mosaicdd.problems.shapes.apertures import Apertures
from mosaicdd.problems.shapes.shape import Shape, inside_ring


def cells_around(
    field: Field,
    grid: Grid,
    part: Part,
    cover: Apertures | None,
    *,
    positive: bool | None = True,
    periods: Periods | None = None,
    fill: float = 1.0,
) -> np.ndarray:
    """Sample values per cell, or a number, around the nodes of a part, ``(n, rows + 1, columns + 1)``.

    `ValueError` if one is not finite, or has the wrong sign.

    Parameters
    ----------
    cover
        What the domain has of these cells; None of a rectangle, or box.
    positive
        Whether they must be, or not negative; None if they may be anything.
    periods
        Of the grid, by default none.
    fill
        The value of cells beyond the grid, and outside of the domain.
    """
    wide = tuple(slice(p.start - 1, p.stop) for p in part)
    values = np.full((field.problems, *sizes(wide)), fill)
    inside = None if cover is None else cover.known_cells
    for cells, where in overlaps(wide, grid.shape, periods or (None,) * len(part)):
        shape = sizes(cells)
        held = (
            np.full(shape, field.number) if field.number is not None else field.sample_cells(cells)
        )
        held = held if inside is None else np.where(inside[where], held, fill)
        held = held.reshape(len(values), *shape)
        field.require_finite(held[0] if len(held) == 1 else held, grid, cells)
        if positive is not None:
            require_sign(held[0], field, grid, cells, positive=positive)
        values[:, *where] = held
    return values


def cells_within(field: Field, shape: Shape | None, grid: Grid, part: Part) -> np.ndarray:
    """Return a field in the cells above and to the right of the nodes of a part, zero outside of a shape.

    ``(n, rows, columns)``, of cells there are. `ValueError` if one is not finite.
    """
    values = field.sample_as_given(grid, part, checked=False)
    if shape is not None:
        inside = Apertures(inside=inside_ring(shape, grid, part), cells=shape.cells(part))
        place = tuple(slice(1, 1 + n) for n in values.shape[1:])
        values = np.where(inside.known_cells[place], values, 0.0)
    field.require_finite(values[0] if len(values) == 1 else values, grid, part)
    return values


def sample_near(
    field: Field,
    grid: Grid,
    part: Part,
    cover: Apertures | None,
    *,
    fill: float,
    positive: bool | None = None,
    periods: Periods | None = None,
) -> np.ndarray:
    """Sample values at the nodes of a part that may reach beyond a domain, ``(n, rows, columns)``.

    At the nodes beside those inside they are what is given, and where that is not finite the means of the nodes inside
    around; further out, and beyond the grid, they are ``fill``. Of values per cell they are the means over volumes.

    `ValueError` if a value inside is not finite, or has the wrong sign.

    Parameters
    ----------
    cover
        What the domain has of the cells around the nodes; None of a rectangle. Values per cell need its quarters, others
        only the nodes inside.
    positive
        Whether values of one problem must be, or not negative; None if they may be anything.
    periods
        Of the grid, by default none. The values of the last node are those of the first where there is one.
    """
    if field.number is not None:
        values = np.full((1, *sizes(part)), field.number)
    elif field.per_cell(grid) and cover is not None and cover.quarters:
        around = cells_around(
            field, grid, part, cover, positive=positive, periods=periods, fill=fill
        )
        sums, volumes = np.stack([cover.of_volumes(cells) for cells in around]), cover.volumes
        return np.where(volumes > 0, sums / np.where(volumes > 0, volumes, 1.0), fill)
    else:
        values = _at_nodes(field, grid, part, cover, fill, periods or (None,) * len(part))
        if positive is not None and field.per_cell(grid):
            cells = cells_of(part, grid)
            require_sign(field.sample_cells(cells), field, grid, cells, positive=positive)
            return values
    if positive is not None:
        require_sign(values[0], field, grid, part, positive=positive)
    return values


def _at_nodes(
    field: Field, grid: Grid, part: Part, cover: Apertures | None, fill: float, periods: Periods
) -> np.ndarray:
    """Return `sample_near` of a field that is no number, by its values at nodes."""
    inside = None if cover is None else cover.inside
    if cover is None or inside is None or field.of_rank:  # with values outside of the domain
        if all(p.start >= 0 and p.stop <= n for p, n in zip(part, grid.nodes, strict=True)):
            return field.sample(grid, part)
        values = np.full((field.problems, *sizes(part)), fill)
        for nodes, where in overlaps(part, grid.nodes, periods):
            values[:, *where] = field.sample(grid, nodes)
        return values
    known = np.zeros(inside.shape, bool)
    values = np.full((field.problems, *inside.shape), np.nan)
    for nodes, where in overlaps(grown(part), grid.nodes, periods):
        known[where] = inside[where]
        values[:, *where] = field.sample(grid, nodes, known[where])
    return NearOutline(known, known)(values, fill, cover.counts)


class NearOutline:
    """The extension of nodal values over an outline by means of neighbours inside.

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
