"""Values that are given per cell, around nodes: what the cells there have of each node's volume counts.

A volume times the mean over it is the sum over its parts of cells, so nothing is lost of what is given in cells.
"""

import numpy as np

from mosaicdd.lattice.axes import ends
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import Field, Part, Periods, overlaps
from mosaicdd.problems.fields.signs import require_sign
from mosaicdd.problems.shapes.apertures import Cover
from mosaicdd.problems.shapes.shape import Shape, inside_ring


def cells_around(
    field: Field,
    grid: Grid,
    part: Part,
    cover: Cover,
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
    known = _known(cover)
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
        known = _known(Cover((), (), inside_ring(shape, grid, part), cells=shape.cells(part)))
        there = tuple(slice(1, 1 + n) for n in values.shape[1:])
        values = np.where(True if known is None else known[there], values, 0.0)
    field.require_finite(values[0] if len(values) == 1 else values, grid, part)
    return values


def means_in_volumes(
    field: Field,
    grid: Grid,
    part: Part,
    cover: Cover,
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


def _known(cover: Cover) -> np.ndarray | None:
    """Say of which cells around the nodes values are known, ``(rows + 1, columns + 1)``; None of all."""
    if cover.cells is not None or cover.inside is None:
        return cover.cells
    corners = cover.inside
    for axis in range(corners.ndim):
        low, high = ends(axis, corners.ndim)
        corners = corners[low] | corners[high]
    return corners
