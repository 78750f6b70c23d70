"""The elements of a block's region and the stars of its subdomains, as places in its interface.

An *element* is a lattice cell, its perimeter runs counter-clockwise from the lower-left corner. A *star*
are the nodes of the lattice lines inside a subdomain: the centre and four arms. Of the two copies that
an interface has of a lattice node, the one in the lines constant in y is meant.
"""

import numpy as np

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.perimeter import square_perimeter

# The four elements around a centre, from their lower-left corners relative to it, in lattice cells.
QUARTERS = ((-1, -1), (-1, 0), (0, -1), (0, 0))


def places(block: Block, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return where nodes on lattice lines, counted from the region's corner, lie in its interface."""
    s, (lines, nodes) = block.lattice.spacing, block.line_shape(0)
    in_rows = y // s * nodes + x
    in_columns = lines * nodes + x // s * block.line_shape(1)[1] + y
    return np.where(y % s == 0, in_rows, in_columns)


def element_shape(block: Block) -> tuple[int, ...]:
    """Return the elements of the region per axis."""
    (bottom, left), (top, right) = block.first, block.last
    return top - bottom, right - left


def element_places(block: Block) -> np.ndarray:
    """Return the places of the elements' perimeters, ``(E, 4 s)``, row by row from the bottom."""
    s = block.lattice.spacing
    return _placed(block, [np.arange(n) for n in element_shape(block)], square_perimeter(s))


def star_shape(block: Block) -> tuple[int, ...]:
    """Return the owned subdomains per axis."""
    return tuple(b - a for a, b in zip(block.start, block.stop, strict=True))


def star_nodes(spacing: int, *, turned: bool = False) -> np.ndarray:
    """Return the nodes of a star, (y, x) from its centre, ``(4 s - 3, 2)`` integers.

    The arm to the left, the one to the right, and the line along y with the centre in it; turned, the arm
    below, the one above, and the line along x.
    """
    line = np.arange(1 - spacing, spacing)
    arms = line[line != 0]
    row, column = np.stack([0 * arms, arms], 1), np.stack([line, 0 * line], 1)
    nodes = np.concatenate([row, column])
    return nodes[:, ::-1] if turned else nodes


def turned_stars(block: Block) -> np.ndarray:
    """Return which of the owned subdomains' stars are turned, ``(B,)``, row by row: as the fields of a chessboard.

    So each lattice edge between two stars is an arm of one of them, and in the line of the other; around
    a periodic axis of an odd number of lattice cells, some are the same of both.
    """
    y, x = np.indices(star_shape(block)) + np.reshape(block.start, (2, 1, 1))
    return ((y + x) % 2).ravel() == 1


def star_places(block: Block) -> np.ndarray:
    """Return the places of the owned subdomains' stars, ``(B, 4 s - 3)``, row by row, as `star_nodes`."""
    ends = zip(block.start, block.stop, block.first, strict=True)
    centres = [np.arange(a - first, b - first) for a, b, first in ends]
    s, turned = block.lattice.spacing, turned_stars(block)
    stars = _placed(block, centres, star_nodes(s))
    stars[turned] = _placed(block, centres, star_nodes(s, turned=True))[turned]
    return stars


def quarter_numbers(block: Block) -> np.ndarray:
    """Return the numbers of the elements around the owned subdomains' centres, ``(B, 4)``, row by row.

    Those of the `QUARTERS`, of the elements of the region; of turned stars with the axes exchanged.
    """
    ends = zip(block.start, block.stop, block.first, strict=True)
    y, x = np.meshgrid(*(np.arange(a - first, b - first) for a, b, first in ends), indexing="ij")
    columns = element_shape(block)[1]
    numbers = np.stack([((y + dy) * columns + x + dx).ravel() for dy, dx in QUARTERS], axis=1)
    turned = turned_stars(block)
    numbers[turned] = numbers[turned][:, [QUARTERS.index((dx, dy)) for dy, dx in QUARTERS]]
    return numbers


def star_parts(spacing: int, *, turned: bool = False) -> list[np.ndarray]:
    """Return, for each of the `QUARTERS`, which perimeter nodes lie on the star, ``(2 s - 1,)``.

    Those of its arm, then those of its half of the line, as in `star_nodes`.
    """
    star, parts = star_nodes(spacing, turned=turned), []
    for corner in QUARTERS:
        corner = corner[::-1] if turned else corner
        ring = (square_perimeter(spacing) + spacing * np.array(corner)).tolist()
        number = {(y, x): i for i, (y, x) in enumerate(ring)}
        parts.append(np.array([number[y, x] for y, x in star.tolist() if (y, x) in number]))
    return parts


def loose_edges(block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the lattice edges that are not just an arm of one of two stars, by an owned star they are of.

    Returns the numbers of the stars; which of its edges it is: 0 and 1 for the arms, low and high, 2 and 3 for the
    halves of the line; and how often it is an arm beyond the times that it is in two stars.
    """
    lattice = block.lattice
    turned = turned_stars(block)
    at = (np.indices(star_shape(block)) + np.reshape(block.start, (2, 1, 1))).reshape(2, -1)
    loose = []
    for axis, around in enumerate(lattice.periodic):
        is_arm = turned == (axis == 0)
        low, high = at[axis] == lattice.first_centre[axis], at[axis] == lattice.cells[axis] - 1
        if around:
            odd = lattice.cells[axis] % 2 == 1
            ends = [(1, high & odd, np.where(is_arm, 1, -1))]
        else:
            ends = [
                (0, low & is_arm, np.ones(len(turned))),
                (1, high & is_arm, np.ones(len(turned))),
            ]
        for end, those, times in ends:
            stars = np.flatnonzero(those)
            loose.append((stars, np.where(is_arm, 0, 2)[stars] + end, times[stars]))
    stars, edges, times = (np.concatenate(parts) for parts in zip(*loose, strict=True))
    return stars, edges, times


def _placed(block: Block, corners: list[np.ndarray], nodes: np.ndarray) -> np.ndarray:
    """Return the places of nodes around each of a grid of lattice nodes of the region."""
    s, (y, x) = block.lattice.spacing, nodes.T
    # What a step of one lattice node adds to the place of a node on a line constant in y, or in x.
    in_row, (along, across) = y % s == 0, (block.line_shape(axis)[1] for axis in (0, 1))
    up, right = np.where(in_row, along, s), np.where(in_row, s, across)
    rows, columns = (
        corner[:, None] * step for corner, step in zip(corners, (up, right), strict=True)
    )
    first = places(block, y, x)
    return (rows[:, None] + (columns + first)[None]).reshape(-1, len(nodes))
