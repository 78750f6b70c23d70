"""The outline of a domain: the grid nodes on it, piece by piece.

A domain is a set of grid cells, all of a rectangle by default. Its outline consists of the grid edges
with a cell of the domain on one side only; a node on it stands in the middle of *half* of both edges
that meet there, which is the length that a flux through the outline counts with in the node's equation.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.shapes.apertures import share_inside

SIDES = ("left", "right", "bottom", "top")


@dataclass(frozen=True)
class Piece:
    """A part of the outline with a name.

    Parameters
    ----------
    nodes
        ``(M, 2)``, (y, x), each once.
    lengths
        ``(M,)``: the length of the piece that belongs to each, in cells.
    axis
        The axis that it runs along, if it is a side of the rectangle: then its nodes are in order, with
        one more than cells.
    inside
        Which nodes are in the domain, or at its ends on the side, ``(M,)``; None for all.
    replaced
        Whether the outline of a shape runs along it, in its place.
    """

    nodes: np.ndarray
    lengths: np.ndarray
    axis: int | None = None
    inside: np.ndarray | None = None
    replaced: bool = False

    def within(self, level: np.ndarray) -> "Piece":
        """Return what a shape has of a side, by its level at the nodes."""
        lengths = np.zeros(len(level))
        mean = (level[1:] + level[:-1]) / 2
        lengths[1:] += 0.5 * share_inside(level[1:], mean)
        lengths[:-1] += 0.5 * share_inside(level[:-1], mean)
        # Where the outline ends in a node of the side, this belongs to both.
        beside = np.convolve(level < 0, [1, 0, 1], "same") > 0
        on = level == 0
        inside = (level < 0) | on & beside
        replaced = bool((on[1:] & on[:-1]).any() and not inside.any())
        return dataclasses.replace(self, lengths=lengths, inside=inside, replaced=replaced)


def rectangle_outline(grid: Grid) -> Mapping[str, Piece]:
    """Return the four sides of a rectangle by name."""
    pieces = {}
    for name in SIDES:
        axis = 0 if name in ("left", "right") else 1
        along = np.arange(grid.nodes[axis])
        nodes = np.zeros((len(along), 2), int)
        nodes[:, axis] = along
        nodes[:, 1 - axis] = grid.shape[1 - axis] if name in ("right", "top") else 0
        lengths = np.ones(len(along))
        lengths[[0, -1]] = 0.5
        pieces[name] = Piece(nodes, lengths, axis)
    return pieces
