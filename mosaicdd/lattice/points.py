"""Points between grid nodes: where they lie on the grid, and which subdomains cover them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.grid import Grid

_ROUNDING = 1e-9  # cells by which a coordinate may miss a node that is meant


def as_points(points: Any) -> np.ndarray:
    """Return points as an array ``(q, 2)``; they may be a list, a tensor, or a single point.

    Raises
    ------
    ValueError
        If they are not pairs of numbers.
    """
    given = points.detach().cpu() if hasattr(points, "detach") else points
    try:
        array = np.asarray(given, float)
    except (ValueError, TypeError) as error:
        raise ValueError(f"points must be rows (x, y) of numbers, got {points!r}") from error
    if array.shape == (2,):
        array = array[None]
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"points must have the shape (q, 2), rows (x, y), got {array.shape}")
    return array


def on_grid(points: np.ndarray, grid: Grid) -> np.ndarray:
    """Turn points ``(q, 2)``, (x, y) in domain coordinates, into (y, x) in cells.

    Raises
    ------
    ValueError
        If one is not finite or lies outside of the domain.
    """
    cells = points[:, ::-1] / grid.spacing
    nodes = np.rint(cells)
    cells = np.where(np.abs(cells - nodes) < _ROUNDING, nodes, cells)
    outside = ~((cells >= 0) & (cells <= grid.shape)).all(axis=1)  # NaN, too
    if outside.any():
        first = int(outside.argmax())
        (x, y), (height, width) = points[first], grid.size
        raise ValueError(
            f"{outside.sum()} of {len(points)} points lie outside of the domain, 0 to {width:g} along "
            f"x and 0 to {height:g} along y; the first is number {first + 1}, ({x:g}, {y:g})"
        )
    return cells


def interpolate(field: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Interpolate fields ``(n, rows, columns)`` bilinearly at ``(q, 2)``, (y, x): ``(n, q)``.

    Raises
    ------
    ValueError
        If a point lies beside the field, in a window of the domain.
    """
    last = np.array(field.shape[1:]) - 1
    if ((cells < 0) | (cells > last)).any():
        raise ValueError("a point lies outside of the window that the field is known in")
    low = np.minimum(cells.astype(int), np.maximum(last - 1, 0))
    high = np.minimum(low + 1, last)
    t = cells - low
    (y0, x0), (y1, x1), (ty, tx) = low.T, high.T, t.T
    below = (1 - tx) * field[:, y0, x0] + tx * field[:, y0, x1]
    above = (1 - tx) * field[:, y1, x0] + tx * field[:, y1, x1]
    return (1 - ty) * below + ty * above


def interpolate_within(field: np.ndarray, level: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Interpolate fields that are NaN outside of a domain; outside, where the level is positive, NaN.

    In cells that have nodes outside, the weights of the others are scaled up.

    Parameters
    ----------
    level
        At the nodes of the fields, negative inside.
    """
    inside = np.isfinite(field).all(axis=0)
    weights = interpolate(inside[None].astype(float), cells)[0]
    outside = (interpolate(level[None], cells)[0] > 0) | (weights == 0)
    values = interpolate(np.where(inside, field, 0.0), cells)
    return np.where(outside, np.nan, values / np.where(weights > 0, weights, 1.0))


@dataclass(frozen=True)
class Cover:
    """For some points, one of the subdomains that cover each, and its weight there.

    Parameters
    ----------
    index
        Which of the points, ``(B,)``.
    centres
        Lattice nodes in the middle of the subdomains, ``(B, 2)``.
    local
        The points in cells from the lower-left corners of the subdomains, ``(B, 2)``.
    weights
        Of the partition of unity, ``(B,)``.
    """

    index: np.ndarray
    centres: np.ndarray
    local: np.ndarray
    weights: np.ndarray


def owned_points(points: np.ndarray, block: Block) -> np.ndarray:
    """Say which points ``(q, 2)`` on the grid lie in lattice cells that a block owns: ``(q,)``."""
    cells = _lattice_cells(points, block)
    owned = np.ones(len(points), bool)
    for axis in (0, 1):
        part = block.owned_cells(axis)
        first = block.first[axis]
        owned &= (cells[:, axis] >= first + part.start) & (cells[:, axis] < first + part.stop)
    return owned


def covers(points: np.ndarray, index: np.ndarray, block: Block) -> Iterator[Cover]:
    """Yield up to four covers of the points ``points[index]``, whose weights add up to 1.

    The weights are hats along both axes, at any point: in a lattice cell they are bilinear, and 1
    towards an edge of the domain, where no other subdomain reaches.
    """
    s, chosen = block.lattice.spacing, points[index]
    cells = _lattice_cells(chosen, block)
    fraction = chosen / s - cells
    fraction[cells == 0] = 1.0
    fraction[cells == np.array(block.lattice.cells) - 1] = 0.0
    for dy in (0, 1):
        for dx in (0, 1):
            upper = np.array((dy, dx))
            weights = np.where(upper == 1, fraction, 1.0 - fraction).prod(axis=1)
            some = weights > 0
            centres = (cells + upper)[some]
            local = chosen[some] - (centres - 1) * s
            yield Cover(index[some], centres, local, weights[some])


def _lattice_cells(points: np.ndarray, block: Block) -> np.ndarray:
    """Return the lattice cells ``(q, 2)`` that points lie in; the last ones are closed."""
    last = np.array(block.lattice.cells) - 1
    return np.minimum(np.floor(points / block.lattice.spacing).astype(int), last)
