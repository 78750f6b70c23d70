"""Points between grid nodes: where they lie on the grid, and which subdomains cover them."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from mosaicdd.axes import letters
from mosaicdd.grid.grid import Grid


def as_points(points: Any, axes: int = 2) -> np.ndarray:
    """Return points as an array ``(q, axes)``; they may be a list, a tensor, or a single point.

    `ValueError` if they are not rows of so many numbers.
    """
    row = f"rows ({', '.join(reversed(letters(axes)))})"
    try:
        array = np.asanyarray(points.detach().cpu() if hasattr(points, "detach") else points)
        array = np.ma.filled(array.astype(float), np.nan)  # as what is no place is
    except (ValueError, TypeError) as error:
        raise ValueError(f"points must be {row} of numbers, got {points!r}") from error
    if array.shape == (axes,):
        array = array[None]
    if array.ndim != 2 or array.shape[1] != axes:
        raise ValueError(f"points must have the shape (q, {axes}), {row}, got {array.shape}")
    return array


def on_grid(points: np.ndarray, grid: Grid) -> np.ndarray:
    """Turn points ``(q, 2)``, (x, y) in domain coordinates, into cells in the order of the axes.

    `ValueError` if one is not finite or lies outside of the domain.
    """
    cells = grid.cells(points[:, ::-1])
    outside = ~((cells >= 0) & (cells <= grid.shape)).all(axis=1)  # NaN, too
    if outside.any():
        first = int(outside.argmax())
        ends = zip(reversed(letters(len(grid.size))), reversed(grid.ends), strict=True)
        domain = " and ".join(
            f"{low:.10g} to {high:.10g} along {letter}" for letter, (low, high) in ends
        )
        raise ValueError(
            f"{outside.sum()} of {len(points)} points lie outside of the domain, {domain}; the first is "
            f"number {first + 1}, ({', '.join(f'{x:g}' for x in points[first])})"
        )
    return cells


def interpolate(field: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Interpolate fields ``(n, rows, columns)`` linearly along each axis at ``(q, 2)``: ``(n, q)``.

    `ValueError` if a point lies beside the field, in a window of the domain.
    """
    values = np.zeros((len(field), len(cells)))
    for nodes, weights in nodes_around(cells, field.shape[1:]):
        index: tuple[slice | np.ndarray, ...] = (slice(None), *nodes)
        values += weights * field[index]
    return values


def nodes_around(
    cells: np.ndarray, nodes: tuple[int, ...]
) -> Iterator[tuple[tuple[np.ndarray, ...], np.ndarray]]:
    """Yield the nodes at the corners of the cells that points lie in, an index per axis, and their weights ``(q,)``.

    `ValueError` if a point lies beside the array of so many nodes, in a window of the domain.
    """
    last = np.array(nodes) - 1
    if ((cells < 0) | (cells > last)).any():
        raise ValueError("a point lies outside of the window that the field is known in")
    low = np.minimum(cells.astype(int), np.maximum(last - 1, 0))
    ends, above = (low, np.minimum(low + 1, last)), cells - low
    for corner in itertools.product((0, 1), repeat=len(last)):
        place = tuple(ends[end][:, axis] for axis, end in enumerate(corner))
        shares = [above[:, axis] if end else 1 - above[:, axis] for axis, end in enumerate(corner)]
        yield place, np.prod(shares, axis=0)


def interpolate_within(
    field: np.ndarray, inside: np.ndarray, level: np.ndarray, cells: np.ndarray
) -> np.ndarray:
    """Interpolate fields that are NaN outside of a domain; outside, where the level is positive, NaN.

    In cells that have nodes without values, the weights of the others are scaled up.
    ``inside``: the nodes where the fields have values; ``level``: at their nodes, negative inside.
    """
    weights = interpolate(inside[None].astype(float), cells)[0]
    outside = (interpolate(level[None], cells)[0] > 0) | (weights == 0)
    values = interpolate(np.where(inside, field, 0.0), cells)
    return np.where(outside, np.nan, values / np.where(weights > 0, weights, 1.0))
