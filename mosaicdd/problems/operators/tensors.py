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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
    _require_definite(every, cells)
    total[:, *where] = mean_of_corners(every)
    return total


def mean_of_corners(corners: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Return the harmonic mean of some tensors, in arrays of numpy's or torch's."""
    if len(corners) == 1:
        return tuple(corners[0])
    xx, yy, xy = 0.0, 0.0, 0.0
    for ayy, axx, axy in corners:
        share = 1 / len(corners) / (axx * ayy - axy * axy)
        xx, yy, xy = xx + share * ayy, yy + share * axx, xy - share * axy
    determinant = xx * yy - xy * xy
    return xx / determinant, yy / determinant, -xy / determinant


def between_nodes(
    tensors: Iterable[Any], *, bilinear: bool = False
) -> tuple[tuple[Any, ...], tuple[Any, Any]]:
    """Return what conducts along each axis between the nodes of a part, and across its cells.

    Parameters
    ----------
    tensors
        Of the cells around the nodes: ``ayy``, ``axx`` and ``axy``, in units of cells, arrays of numpy's or torch's
        ``(rows + 1, columns + 1)``.
    bilinear
        Whether cells are bilinear elements.
    """
    ayy, axx, axy = tensors
    twist = (ayy + axx) / 6 if bilinear else 0.0 * ayy
    along = tuple(sum_around(values / 2 - twist, axis) for axis, values in enumerate((ayy, axx)))
    half, twist = axy[1:-1, 1:-1] / 2, twist[1:-1, 1:-1]
    return along, (twist + half, twist - half)


def _sampled(field: Field, grid: Grid, cells: Part) -> np.ndarray:
    """Return a field in some cells, or at the nodes around them, or as one number."""
    if field.number is not None:
        return np.array(field.number)
    if field.per_cell(grid):
        return require_finite(field.sample_cells(cells), f"the field {field.name}")
    return field.sample(grid, tuple(slice(p.start, p.stop + 1) for p in cells))[0]


def _require_definite(corners: Sequence[Tensors], cells: Part) -> None:
    """Raise `ValueError` with the first of some cells at whose corners a tensor is not positive definite."""
    wrong = [~((axx > 0) & (ayy > 0) & (axx * ayy - axy * axy > 0)) for ayy, axx, axy in corners]
    anywhere = np.logical_or.reduce(wrong)
    if not anywhere.any():
        return
    first = tuple(np.argwhere(anywhere)[0])
    ayy, axx, axy = next(t for t, bad in zip(corners, wrong, strict=True) if bad[first])
    place = tuple(int(i) + p.start for i, p in zip(first, cells, strict=True))
    raise ValueError(
        "the diffusion tensor must be positive definite everywhere (axx > 0, ayy > 0, axy^2 < axx ayy); in the cell "
        f"{place} (y, x) axx is {axx[first]:g}, axy {axy[first]:g}, ayy {ayy[first]:g}"
    )
