"""Tensors that are not diagonal: one in each cell of the plane, and what couples the corners of cells.

With the rises of a cell's values along x and y, each the mean of two edges, ``gx`` and ``gy``, and what is twisted in it,
``s = (u00 - u10 - u01 + u11) / 2``, a cell holds half of ``axx (gx^2 + s^2) + 2 axy gx gy + ayy (gy^2 + s^2)``, which is
positive wherever the tensor is. So each of its edges along x conducts ``axx / 2``, along y ``ayy / 2``, and of its
diagonals the rising one ``axy / 2``, the falling one ``-axy / 2``: the stencil of `EllipticOperator`, where the tensor is
the same everywhere, and where ``axy`` is zero five points.

Of a bilinear element the twist counts a third: ``axx gx^2 + 2 axy gx gy + ayy gy^2 + (axx + ayy) s^2 / 3``. That moves
``(axx + ayy) / 6`` from each edge to both diagonals.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.evaluated import require_finite
from mosaicdd.problems.fields.fields import Field, Part, overlap
from mosaicdd.problems.operators.edge_means import sum_around

Tensors = tuple[np.ndarray, ...]
"""``ayy``, ``axx`` and ``axy``, arrays that broadcast against each other."""


def tensors_of_cells(fields: Mapping[str, Field], grid: Grid, part: Part) -> np.ndarray:
    """Return the tensors of the cells around the nodes of a part, which may reach beyond the grid.

    Where the coefficients are given at nodes, a cell has the harmonic mean of the tensors at its corners.

    Parameters
    ----------
    fields
        ``axy``, and ``axx`` and ``ayy`` or ``a`` for both.

    Returns
    -------
    ndarray
        ``(3, rows + 1, columns + 1)``: ``ayy``, ``axx`` and ``axy``; zero where there is no cell.

    Raises
    ------
    ValueError
        If a value is not finite, or a tensor is not positive definite: with the first cell where it is not.
    """
    wide = tuple(slice(p.start - 1, p.stop) for p in part)
    cells, where = overlap(wide, grid.shape)
    shape = tuple(p.stop - p.start for p in cells)
    total = np.zeros((3, *(p.stop - p.start for p in wide)))
    if not all(shape):
        return total
    coefficients = [fields.get(f"a{name}", fields.get("a")) for name in ("yy", "xx", "xy")]
    sampled = [_sampled(field, grid, cells) for field in coefficients if field is not None]
    nodes = tuple(count + 1 for count in shape)
    corners = [
        tuple(slice(c, c + count) for c, count in zip(corner, shape, strict=True))
        for corner in itertools.product((0, 1), repeat=2)
    ]
    at_nodes = any(values.shape == nodes for values in sampled)
    every = [
        tuple(np.broadcast_to(v[there] if v.shape == nodes else v, shape) for v in sampled)
        for there in (corners if at_nodes else corners[:1])
    ]
    determinants = _definite(every, cells)
    if not at_nodes:
        total[:, *where] = every[0]
        return total
    inverse = np.zeros((3, *shape))
    for (ayy, axx, axy), determinant in zip(every, determinants, strict=True):
        for sums, values in zip(inverse, (axx, ayy, -axy), strict=True):
            sums += values / determinant / 4
    yy, xx, xy = inverse
    determinant = xx * yy - xy * xy
    total[:, *where] = xx / determinant, yy / determinant, -xy / determinant
    return total


def between_nodes(
    tensors: np.ndarray, *, bilinear: bool = False
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Return what conducts along each axis between the nodes of a part, and across its cells.

    Parameters
    ----------
    tensors
        Of the cells around the nodes, ``(3, rows + 1, columns + 1)``, in units of cells.
    bilinear
        Whether cells are bilinear elements.
    """
    every, crosswise = tensors[:2] / 2, np.zeros_like(tensors[0])
    if bilinear:
        crosswise = (tensors[0] + tensors[1]) / 6
        every -= crosswise
    along = tuple(sum_around(values, axis) for axis, values in enumerate(every))
    half, crosswise = tensors[2, 1:-1, 1:-1] / 2, crosswise[1:-1, 1:-1]
    return along, np.stack([crosswise + half, crosswise - half])


def _sampled(field: Field, grid: Grid, cells: Part) -> np.ndarray:
    """Return a field in some cells, or at the nodes around them, or as one number."""
    if field.number is not None:
        return np.array(field.number)
    if field.per_cell(grid):
        return require_finite(field.sample_cells(cells), f"the field {field.name}")
    return field.sample(grid, tuple(slice(p.start, p.stop + 1) for p in cells))[0]


def _definite(corners: Sequence[Tensors], cells: Part) -> list[np.ndarray]:
    """Return the determinants of tensors at corners of some cells.

    `ValueError` with the first cell where one is not positive definite.
    """
    determinants = [axx * ayy - axy * axy for ayy, axx, axy in corners]
    wrong = [
        ~((axx > 0) & (ayy > 0) & (determinant > 0))
        for (ayy, axx, _), determinant in zip(corners, determinants, strict=True)
    ]
    anywhere = np.logical_or.reduce(wrong)
    if not anywhere.any():
        return determinants
    first = tuple(np.argwhere(anywhere)[0])
    ayy, axx, axy = next(t for t, bad in zip(corners, wrong, strict=True) if bad[first])
    place = tuple(int(i) + p.start for i, p in zip(first, cells, strict=True))
    raise ValueError(
        "the diffusion tensor must be positive definite everywhere (axx > 0, ayy > 0, axy^2 < axx ayy); in the cell "
        f"{place} (y, x) axx is {axx[first]:g}, axy {axy[first]:g}, ayy {ayy[first]:g}"
    )
