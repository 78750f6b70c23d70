"""The outline of a domain: the grid nodes on it, piece by piece.

A domain is a set of grid cells, all of a rectangle by default. Its outline consists of the grid edges
with a cell of the domain on one side only; a node on it stands in the middle of *half* of both edges
that meet there, which is the length that a flux through the outline counts with in the node's equation.
"""

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.axes import crossed
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.shapes.apertures import share_inside

Side = tuple[int, int]
"""A side of a rectangle, or of a box: the axis that it is constant in, and its low (0) or high end (1)."""

_NAMES = ("left", "right"), ("bottom", "top"), ("back", "front")  # of the sides along x, y and z


def sides(axes: int = 2) -> list[Side]:
    """List the sides of a rectangle, or box, axis by axis."""
    return list(itertools.product(range(axes), (0, 1)))


def side_names(axes: int = 2) -> dict[str, Side]:
    """Return the sides by the names that people and files give them, those along x first."""
    return {
        name: (axes - 1 - place, end)
        for place, names in enumerate(_NAMES[:axes])
        for end, name in enumerate(names)
    }


def name_of_side(side: Side, axes: int = 2) -> str:
    """Return what people and files call a side."""
    axis, end = side
    return _NAMES[axes - 1 - axis][end]


SIDES = tuple(side_names())
"""The names of the sides of a rectangle."""


@dataclass(frozen=True)
class OutlinePiece:
    """A part of the outline with a name.

    Parameters
    ----------
    nodes
        ``(M, 2)``, (y, x), each once.
    lengths
        ``(M,)``: the length of the piece that belongs to each, in cells; in space its area.
    side
        Which side of the rectangle it is: then its nodes are in order, with one more than cells; None if
        it is no side.
    inside
        Which nodes are in the domain, or at its ends on the side, ``(M,)``; None for all.
    replaced
        Whether the outline of a shape runs along it, in its place.
    """

    nodes: np.ndarray
    lengths: np.ndarray
    side: Side | None = None
    inside: np.ndarray | None = None
    replaced: bool = False

    def as_side(self, values: np.ndarray, grid: Grid) -> np.ndarray:
        """Return values at its nodes, ``(.., M)``, as arrays of its side lie: in space they have two axes."""
        if self.side is None:
            return values
        axis = self.side[0]
        return values.reshape(*values.shape[:-1], *grid.nodes[:axis], *grid.nodes[axis + 1 :])

    @property
    def place(self) -> tuple[slice, ...]:
        """The part of the grid that a side is."""
        return tuple(slice(int(n.min()), int(n.max()) + 1) for n in self.nodes.T)

    def within(self, level: np.ndarray) -> "OutlinePiece":
        """Return what a shape has of a side of a rectangle, by its level at the nodes."""
        level = level.ravel()
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


def rectangle_outline(grid: Grid) -> Mapping[str, OutlinePiece]:
    """Return the four sides of a rectangle by name, or the six of a box."""
    axes, pieces = len(grid.shape), {}
    shares = [np.pad(np.ones(cells - 1), 1, constant_values=0.5) for cells in grid.shape]
    for name, (axis, end) in side_names(axes).items():
        side = (*grid.nodes[:axis], 1, *grid.nodes[axis + 1 :])
        nodes = np.indices(side).reshape(axes, -1).T
        nodes[:, axis] = end * grid.shape[axis]
        across = [*shares[:axis], np.ones(1), *shares[axis + 1 :]]
        lengths = functools.reduce(np.multiply, crossed(*across)).ravel()
        pieces[name] = OutlinePiece(nodes, lengths, (axis, end))
    return pieces
