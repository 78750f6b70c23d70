"""The outline of a domain: the grid nodes on it, piece by piece.

A domain is a set of grid cells, all of a rectangle by default. Its outline consists of the grid edges
with a cell of the domain on one side only; a node on it stands in the middle of *half* of both edges
that meet there, which is the length that a flux through the outline counts with in the node's equation.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
import scipy.ndimage

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.shapes.apertures import Apertures, cells_touching, cut_cells

Side = tuple[int, int]
"""A side of a rectangle, or of a box: the axis that it is constant in, and its low (0) or high end (1)."""

_NAMES = ("left", "right"), ("bottom", "top"), ("back", "front")  # of the sides along x, y and z
_FEW = 2**14  # nodes of the largest side, whose outlines are kept


def sides(axes: int = 2) -> list[Side]:
    """List the sides of a rectangle, or box, axis by axis."""
    return list(itertools.product(range(axes), (0, 1)))


def side_names(axes: int = 2) -> dict[str, Side]:
    """Return the sides by name, those along x first."""
    return {
        name: (axes - 1 - place, end)
        for place, names in enumerate(_NAMES[:axes])
        for end, name in enumerate(names)
    }


def name_of_side(side: Side, axes: int = 2) -> str:
    """Return the name of a side."""
    axis, end = side
    return _NAMES[axes - 1 - axis][end]


@dataclass(frozen=True)
class OutlinePiece:
    """A part of the outline with a name.

    Parameters
    ----------
    nodes
        ``(M, 2)``, (y, x), each once.
    shares
        ``(2, M)``: the lengths of the piece that belong to each, in cells, of the half before it and of that after
        it; in space areas, ``(4, M)``, of its quarters, the last axis first. Of what lies inside, ``(1, M)``.
    side
        Which side of the rectangle it is: then its nodes are in order, with one more than cells; None if
        it is no side.
    inside
        Which nodes are in the domain, or at its ends on the side, ``(M,)``; None for all.
    replaced
        Whether the outline of a shape runs along it, in its place.
    """

    nodes: np.ndarray
    shares: np.ndarray
    side: Side | None = None
    inside: np.ndarray | None = None
    replaced: bool = False

    @cached_property
    def lengths(self) -> np.ndarray:
        """The length, or area, of each node, ``(M,)``."""
        return self.shares.sum(axis=0)

    def as_side(self, values: np.ndarray, grid: Grid) -> np.ndarray:
        """Return values at its nodes, ``(.., M)``, as an array over its side, of two axes in space."""
        if self.side is None:
            return values
        axis = self.side[0]
        return values.reshape(*values.shape[:-1], *grid.nodes[:axis], *grid.nodes[axis + 1 :])

    @property
    def place(self) -> tuple[slice, ...]:
        """The part of the grid that a side is."""
        return tuple(slice(int(n.min()), int(n.max()) + 1) for n in self.nodes.T)

    def within(self, level: np.ndarray) -> "OutlinePiece":
        """Return the part of a side that a shape has, by its level at the nodes."""
        level = level.reshape([count for count in level.shape if count > 1])
        # Where the outline ends in a node of the side, this belongs to both.
        beside = scipy.ndimage.binary_dilation(level < 0, np.ones((3,) * level.ndim))
        on = level == 0
        inside = (level < 0) | on & beside
        replaced = bool((~cells_touching(~on)).any() and not inside.any())
        shares = cut_cells(level, np.ones([n - 1 for n in level.shape], bool))[0].shares
        return dataclasses.replace(self, shares=shares, inside=inside.ravel(), replaced=replaced)


def rectangle_outline(grid: Grid) -> Mapping[str, OutlinePiece]:
    """Return the four sides of a rectangle by name, or the six of a box; arrays to be read only."""
    return (
        _sides_of(grid)
        if math.prod(grid.nodes) // min(grid.nodes) <= _FEW
        else _sides_of.__wrapped__(grid)
    )


@functools.lru_cache(maxsize=4)  # each step in time asks for them
def _sides_of(grid: Grid) -> Mapping[str, OutlinePiece]:
    axes, pieces = len(grid.shape), dict[str, OutlinePiece]()
    for name, (axis, end) in side_names(axes).items():
        side = (*grid.nodes[:axis], 1, *grid.nodes[axis + 1 :])
        nodes = np.indices(side).reshape(axes, -1).T
        nodes[:, axis] = end * grid.shape[axis]
        shares = Apertures.of_cells(np.ones((*grid.shape[:axis], *grid.shape[axis + 1 :]))).shares
        for values in (nodes, shares):
            values.flags.writeable = False
        pieces[name] = OutlinePiece(nodes, shares, (axis, end))
    return MappingProxyType(pieces)
