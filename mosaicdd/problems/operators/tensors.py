"""Tensors that are not diagonal: one in each cell, and what couples the corners of its faces.

With the rises of a face's values along x and y, each the mean of two edges, ``gx`` and ``gy``, and what is twisted in it,
``s = (u00 - u10 - u01 + u11) / 2``, a cell of the plane holds half of ``axx (gx^2 + s^2) + 2 axy gx gy + ayy (gy^2 + s^2)``, which
is positive wherever the tensor is. So each of its edges along x conducts ``axx / 2``, along y ``ayy / 2``, and of its
diagonals the rising one ``axy / 2``, the falling one ``-axy / 2``: the stencil of `EllipticOperator`, where the tensor is
the same everywhere, and where ``axy`` is zero five points.

In space each of the two faces of a cell across z has half of ``axy``, and each edge along x a quarter of ``axx``: nineteen
points. The energy is positive, too: of ``T = sum n n'``, what the faces' twists ``t_yz``, ``t_xz``, ``t_xy`` hold is a sum of squares
``(n_x t_yz + n_y t_xz)^2`` for each pair of axes, and what is twisted in all three only adds.

Of a bilinear element the twist counts a third: ``axx gx^2 + 2 axy gx gy + ayy gy^2 + (axx + ayy) s^2 / 3``. That moves
``(axx + ayy) / 6`` from each edge to both diagonals.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mosaicdd.axes import at, ends, letters, sizes
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.evaluated import require_finite
from mosaicdd.problems.fields.fields import Field, Part, overlap

MIXED = "axy", "axz", "ayz"
"""The names of mixed derivatives."""

Tensors = tuple[np.ndarray, ...]
"""By `names_of`, arrays that broadcast against each other."""


def names_of(axes: int) -> list[str]:
    """Return the names of a tensor's fields: the diagonal in the order of axes, then each pair of axes: ``ayy, axx, axy``."""
    pairs = itertools.combinations(letters(axes), 2)
    return [f"a{k}{k}" for k in letters(axes)] + [f"a{low}{high}" for high, low in pairs]


def products(sides: Sequence[float]) -> list[float]:
    """Return the products of a cell's sides along both axes of each of `names_of`."""
    return [side**2 for side in sides] + [a * b for a, b in itertools.combinations(sides, 2)]


def at_corners(tensor: Sequence[Any], cells: Sequence[int]) -> list[list[Any]]:
    """Return the tensors at each corner of cells; a single one where all are the same.

    ``tensor``: its components at the nodes around the cells, per cell, or as numbers, in arrays of numpy's or torch's.
    """
    nodes = tuple(count + 1 for count in cells)
    several = any(values.shape == nodes for values in tensor)
    corners = list(itertools.product((0, 1), repeat=len(cells)))
    places = [
        tuple(slice(c, c + count) for c, count in zip(corner, cells, strict=True))
        for corner in (corners if several else corners[:1])
    ]
    return [
        [values[place] if values.shape == nodes else values for values in tensor]
        for place in places
    ]


def tensors_of_cells(fields: Mapping[str, Field], grid: Grid, part: Part) -> np.ndarray:
    """Return the tensors of the cells around the nodes of a part, which may reach beyond the grid.

    Where the coefficients are given at nodes, a cell has the harmonic mean of the tensors at its corners.

    ``fields``: those of `names_of`, or ``a`` for the diagonal; of pairs of axes by default zero. `ValueError` if a
    value is not finite, or a tensor is not positive definite: with the first cell where it is not.

    Returns
    -------
    ndarray
        ``(3, rows + 1, columns + 1)``, in space 6 with an axis more: as `names_of`; zero where there is no cell.
    """
    wide = tuple(slice(p.start - 1, p.stop) for p in part)
    cells, where = overlap(wide, grid.shape)
    shape = sizes(cells)
    names, axes = names_of(len(part)), len(part)
    total = np.zeros((len(names), *sizes(wide)))
    if not all(shape):
        return total
    defaults = [fields.get("a", Field("", 1.0))] * axes + [Field("", 0.0)] * (len(names) - axes)
    known = [fields.get(name, other) for name, other in zip(names, defaults, strict=True)]
    sampled = [_sampled(field, grid, cells) for field in known]
    every = [
        tuple(np.broadcast_to(values, shape) for values in tensor)
        for tensor in at_corners(sampled, shape)
    ]
    _require_definite(every, cells)
    total[:, *where] = mean_of_corners(every)
    return total


def mean_of_corners(corners: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Return the harmonic mean of some tensors, in arrays of numpy's or torch's."""
    if len(corners) == 1:
        return corners[0]
    inverses = [_inverse(tensor)[0] for tensor in corners]
    return _inverse([sum(parts) / len(corners) for parts in zip(*inverses, strict=True)])[0]


def is_definite(tensor: Sequence[Any]) -> Any:
    """Say where a tensor is positive definite: where elimination meets positive pivots only."""
    with np.errstate(all="ignore"):
        return np.logical_and.reduce([pivot > 0 for pivot in _inverse(tensor)[1]])


def _inverse(tensor: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the inverses of tensors, by Gauss and Jordan in place, and the pivots, in arrays of numpy's or torch's."""
    axes = math.isqrt(2 * len(tensor))
    places = [(i, i) for i in range(axes)] + list(itertools.combinations(range(axes), 2))
    a, pivots = dict(zip(places, tensor, strict=True)), []
    for k in range(axes):
        pivot, rest = a[k, k], [i for i in range(axes) if i != k]
        column = {i: a[min(i, k), max(i, k)] for i in rest}
        pivots.append(pivot)
        for i, j in itertools.combinations_with_replacement(rest, 2):
            a[i, j] = a[i, j] - column[i] * column[j] / pivot
        for i in rest:
            a[min(i, k), max(i, k)] = column[i] / pivot
        a[k, k] = -1.0 / pivot
    return [-a[place] for place in places], pivots


def between_nodes(
    tensors: Iterable[Any], *, bilinear: bool = False
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the conductances of tensors: along each axis, and across the faces of cells.

    Parameters
    ----------
    tensors
        Of the cells around the nodes, as `names_of`, in units of cells, arrays of numpy's or torch's
        ``(rows + 1, columns + 1)``, in space with an axis more.
    bilinear
        Whether cells are bilinear elements, of the plane.
    """
    every = list(tensors)
    axes = every[0].ndim
    diagonal, mixed = every[:axes], every[axes:]
    twist = sum(diagonal) / 6 if bilinear else 0.0 * every[0]
    along = tuple(
        sum_around(values / 2 ** (axes - 1) - twist, axis) for axis, values in enumerate(diagonal)
    )
    across: list[Any] = []
    for values, pair in zip(mixed, itertools.combinations(range(axes), 2), strict=True):
        half, twisted = sum_around(values / 2 ** (axes - 1), *pair), sum_around(twist, *pair)
        across += [twisted + half, twisted - half]
    return along, tuple(across)


def sum_around(cells: Any, *axes: int) -> Any:
    """Return the sums over the cells around each grid edge, or face, along some axes.

    ``cells``: an array of numpy's or torch's.
    """
    total = cells
    for axis in range(cells.ndim):
        low, high = ends(axis, cells.ndim)
        inner = at(axis, cells.ndim, slice(1, -1))
        total = total[inner] if axis in axes else total[low] + total[high]
    return total


def _sampled(field: Field, grid: Grid, cells: Part) -> np.ndarray:
    """Return a field in some cells, or at the nodes around them, or as one number."""
    if field.number is not None:
        return np.array(field.number)
    if field.per_cell(grid):
        return require_finite(field.sample_cells(cells), f"the field {field.name}")
    return field.sample(grid, tuple(slice(p.start, p.stop + 1) for p in cells))[0]


def _require_definite(corners: Sequence[Tensors], cells: Part) -> None:
    """Check that tensors are positive definite at the corners of cells; else raise `ValueError`."""
    wrong = [~is_definite(tensor) for tensor in corners]
    anywhere = np.logical_or.reduce(wrong)
    if not anywhere.any():
        return
    first = tuple(np.argwhere(anywhere)[0])
    tensor = next(t for t, bad in zip(corners, wrong, strict=True) if bad[first])
    place = tuple(int(i) + p.start for i, p in zip(first, cells, strict=True))
    order = ", ".join(letters(len(cells)))
    raise ValueError(
        f"{not_definite(len(cells))}; in the cell {place} ({order}) {spelled_tensor(values[first] for values in tensor)}"
    )


def not_definite(axes: int) -> str:
    """Return the text of the condition on a tensor."""
    but = "axx > 0, ayy > 0, axy^2 < axx ayy" if axes == 2 else "all of its eigenvalues > 0"
    return f"the diffusion tensor must be positive definite everywhere ({but})"


def spelled_tensor(tensor: Iterable[float]) -> str:
    """Return the numbers of a tensor by their names, in the order of the alphabet: ``axx is 1, axy 0, ayy 1``."""
    values = list(tensor)
    names = names_of(math.isqrt(2 * len(values)))
    first, *more = (f"{name} {value:g}" for name, value in sorted(zip(names, values, strict=True)))
    return ", ".join([first.replace(" ", " is ", 1), *more])
