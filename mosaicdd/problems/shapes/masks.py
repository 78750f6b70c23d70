"""Masks of nodes and of cells of a rectangle, as levels: the outline is a staircase, or runs along grid lines."""

import numpy as np
import scipy.ndimage

from mosaicdd.problems.shapes.shape import Level, enclosed


def level_of_mask(mask: np.ndarray) -> Level:
    """Return the shape of a mask of nodes ``(ny + 1, nx + 1)``, true inside.

    `ValueError` if it is empty, or has a hole thinner than a cell.
    """
    if not mask.any():
        raise ValueError("the mask is true nowhere: there is no domain")
    numbers, count = scipy.ndimage.label(~mask, np.ones((3, 3)))
    wide = _two_by_two(~mask)
    thin = np.setdiff1d(enclosed(numbers, count), numbers[wide])
    if len(thin):
        row, column = np.argwhere(numbers == thin[0])[0]
        raise ValueError(
            f"the mask has {len(thin)} holes thinner than a cell, the first at node "
            f"({row}, {column}) (row, column): a hole has 2 x 2 nodes somewhere; widen or fill them, or "
            "take a finer grid"
        )
    return Level(-mask.astype(np.int8), staircase=True)


def level_of_cells(cells: np.ndarray) -> Level:
    """Return the shape of a mask of cells ``(ny, nx)``, true inside: its outline runs along grid lines.

    The level is 0 on the outline; so what the cells beside it have of volumes and faces is exact.

    `ValueError` if it is empty, falls apart where it is one cell wide, or has a hole thinner than a cell.
    """
    nodes = mask_of_cells(cells)
    level_of_mask(nodes)  # checks it
    held = _of_corners(nodes, np.logical_or)
    inside = np.pad(held, 1)
    on = inside[:-1, :-1] | inside[1:, :-1] | inside[:-1, 1:] | inside[1:, 1:]
    level = np.where(nodes, -1, np.where(on, 0, 1)).astype(np.int8)
    return Level(level, lost=np.argwhere(cells & ~held), of_cells=True)


def mask_of_cells(cells: np.ndarray) -> np.ndarray:
    """Return the nodes inside a domain of whole cells ``(ny, nx)``: those with no other cell around.

    `ValueError` if parts of the domain hang together by cells without such a node, which would be lost.
    """
    around = np.pad(cells, 1, mode="edge")
    nodes = around[:-1, :-1] & around[1:, :-1] & around[:-1, 1:] & around[1:, 1:]
    whole, count = scipy.ndimage.label(cells)
    parts, _ = scipy.ndimage.label(nodes)
    y, x = np.nonzero(nodes)
    of_node = whole[np.minimum(y, len(cells) - 1), np.minimum(x, cells.shape[1] - 1)]
    apart = np.bincount(np.unique([of_node, parts[y, x]], axis=1)[0], minlength=count + 1) > 1
    if apart.any():
        corners = _of_corners(nodes, np.logical_or)
        split = cells & apart[whole]
        thin = split & ~corners  # or none: then it is two cells wide, but not side by side
        row, column = np.argwhere(thin if thin.any() else split)[0]
        raise ValueError(
            f"the mask falls apart where it is one cell wide, as near cell ({row}, {column}) (row, column): "
            "a bridge is 2 cells wide, with nodes inside; widen or cut it, or take a finer grid"
        )
    return nodes


def _of_corners(nodes: np.ndarray, both: np.ufunc) -> np.ndarray:
    """Return what the four corners of cells have together."""
    return both(both(nodes[:-1, :-1], nodes[1:, :-1]), both(nodes[:-1, 1:], nodes[1:, 1:]))


def _two_by_two(mask: np.ndarray) -> np.ndarray:
    """Return the nodes that are in a square of 2 x 2 nodes of a mask."""
    corners = _of_corners(mask, np.logical_and)
    covered = np.zeros_like(mask)
    for y in (slice(None, -1), slice(1, None)):
        for x in (slice(None, -1), slice(1, None)):
            covered[y, x] |= corners
    return covered
