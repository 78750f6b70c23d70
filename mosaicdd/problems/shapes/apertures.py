r"""What a domain has of the control volumes around nodes, and of the faces between them.

Around every node lies a square of the size of a cell; every cell has a quarter of those of its four
corners, and halves of four faces, each across one of its edges. In a cell that an outline cuts, the
level is taken as linear on eight triangles around its middle, two for each corner:

```
   c---t---d     a, b, c, d  corners, nodes of the grid
   | \ | / |     l, r, u, t  middles of edges: the level there is the mean of two corners
   l---m---r     m           middle of the cell: the mean of all four
   | / | \ |
   a---u---b     faces: the lines l-m, m-r, u-m, m-t
```

So volumes, faces and the outline between them fit together exactly: what flows out of a volume flows
through its faces or the outline.
"""

import functools
import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.lattice.axes import at, ends, others

_CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))


@dataclass(frozen=True)
class Cover:
    """What a domain has of the cells around the nodes ``(rows, columns)`` of a part.

    Parameters
    ----------
    faces
        Per axis of the edges that they cross, (y, x), those at the low and at the high side of each
        cell: of the left and the right edge, of the lower and the upper one; ``(rows + 1,
        columns + 1)`` each, at most a half. In space four quarters, by the other axes in their order.
    quarters
        Of the volume of each corner, as `_CORNERS`; ``(rows + 1, columns + 1)``, at most a quarter.
    inside
        Which nodes are inside of an outline, with a node more all around, ``(rows + 2, columns +
        2)``: coefficients are known at these. None for all.
    cells
        Which cells around the nodes are in the domain, ``(rows + 1, columns + 1)``, where it consists of whole ones: those
        of which coefficients are known. None where an outline cuts them.
    counts
        Which others have a volume, on or beyond a natural outline, ``(rows, columns)``: what is given
        there counts if it is finite. Elsewhere coefficients are as near to those inside.
    """

    faces: tuple[tuple[np.ndarray, ...], ...]
    quarters: tuple[np.ndarray, ...]
    inside: np.ndarray | None = None
    counts: np.ndarray | None = None
    cells: np.ndarray | None = None

    @classmethod
    def of_cells(cls, cells: np.ndarray) -> "Cover":
        """Return what a domain of whole cells has, ``(rows + 1, columns + 1)``."""
        corners = 2**cells.ndim
        face, share = 2 / corners * cells, 1 / corners * cells
        return cls(((face,) * (corners // 2),) * cells.ndim, (share,) * corners)

    @property
    def volumes(self) -> np.ndarray:
        """The part of a cell that each node's volume has, ``(rows, columns)``."""
        return _gathered(self.quarters, range(self.quarters[0].ndim))

    def near(self, axis: int) -> Any:
        """Say which edges along an axis have an end inside of an outline, or beside a node that is; True for all."""
        if self.inside is None:
            return True
        near = self.inside
        for along in range(near.ndim):
            parts = [
                near[at(along, near.ndim, slice(k, n))] for k, n in ((0, -2), (1, -1), (2, None))
            ]
            near = functools.reduce(operator.or_, parts)
        low, high = ends(axis, near.ndim)
        return near[low] | near[high]

    def of_edges(self, axis: int, cells: Any = 1.0) -> Any:
        """Return the faces of the grid edges along an axis, times values of the cells, of numpy's or torch's.

        ``(rows - 1, columns)`` or ``(rows, columns - 1)``: each edge has half a face in two cells.
        """
        faces = [cells * face for face in self.faces[axis]]
        between = at(axis, faces[0].ndim, slice(1, -1))
        return _gathered([face[between] for face in faces], others(axis, faces[0].ndim))


def _gathered(shares: Sequence[np.ndarray], axes: Sequence[int]) -> np.ndarray:
    """Add up at nodes, or edges, what the cells around have for their corners along some axes."""
    parts = []
    corners = itertools.product((0, 1), repeat=len(axes))
    for corner, share in zip(corners, shares, strict=True):
        place = [slice(None)] * share.ndim
        for axis, high in zip(axes, corner, strict=True):  # the high corner is of the cell before
            place[axis] = slice(None, -1) if high else slice(1, None)
        parts.append(share[tuple(place)])
    return functools.reduce(operator.add, reversed(parts))


@dataclass(frozen=True)
class Segments:
    """Pieces of an outline, each in the volume of one node."""

    nodes: np.ndarray  # ``(S, 2)``, (y, x), from the first of the array of levels
    middles: np.ndarray  # ``(S, 2)``, likewise
    lengths: np.ndarray  # ``(S,)``, in cells; in space areas
    # How far inside of the outline the nodes are, ``(S,)``, in cells; negative outside
    distances: np.ndarray
    outlines: np.ndarray  # the numbers of those that they belong to, ``(S,)``


def cut_cells(
    level: np.ndarray, cells: np.ndarray, numbers: np.ndarray | None = None
) -> tuple[Cover, Segments]:
    """Return what a domain has of cells, and the outline in them.

    Parameters
    ----------
    level
        At the corners of the cells, ``(rows + 2, columns + 2)``.
    cells
        Which there are at all, ``(rows + 1, columns + 1)``.
    numbers
        Of the outlines that the corners outside belong to; by default all are one.
    """
    if numbers is None:
        numbers = np.zeros(level.shape, int)
    of_corners = [_corner(np.where(level >= 0, numbers, 0), y, x) for y, x in _CORNERS]
    inside = level < 0
    corners = [_corner(inside, y, x) for y, x in _CORNERS]
    whole = cells & np.logical_and.reduce(corners)
    cut = np.argwhere(cells & np.logical_or.reduce(corners) & ~whole)
    cover = Cover(
        tuple((0.5 * whole, 0.5 * whole) for _ in (0, 1)), tuple(0.25 * whole for _ in _CORNERS)
    )
    here = cut[:, 0], cut[:, 1]
    values = np.array([_corner(level, y, x)[here] for y, x in _CORNERS]).reshape(2, 2, -1)
    middle = values.mean((0, 1))
    edges = values.mean(0), values.mean(1)  # lower and upper end in turn; left and right
    for side in (0, 1):
        # The face across the left edge, then the right one; across the lower edge, then the upper.
        cover.faces[0][side][here] = 0.5 * share_inside(edges[0][side], middle)
        cover.faces[1][side][here] = 0.5 * share_inside(edges[1][side], middle)
    outlines = np.maximum.reduce([values[here] for values in of_corners])
    pieces: list[tuple[np.ndarray, ...]] = []
    for number, (y, x) in enumerate(_CORNERS):
        corner = np.array([y, x], float)
        for axis in (0, 1):
            # The middle of the cell's edge from this corner along an axis.
            mid = np.array([0.5, x]) if axis == 0 else np.array([y, 0.5])
            of_mid = edges[0][x] if axis == 0 else edges[1][y]
            points = np.stack([corner, mid, np.array([0.5, 0.5])])
            share, ends, slope = _triangle(np.stack([values[y, x], of_mid, middle]), points)
            cover.quarters[number][here] += share / 8
            lengths = np.linalg.norm(ends[0] - ends[1], axis=1)
            crossed = np.flatnonzero(lengths > 0)  # also along the edge of a triangle
            pieces.append(
                (
                    cut[crossed] + (y, x),
                    cut[crossed] + ends.mean(0)[crossed],
                    lengths[crossed],
                    (-values[y, x] / np.where(slope > 0, slope, 1.0))[crossed],
                    outlines[crossed],
                )
            )
    segments = Segments(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
    return cover, segments


def staircase(level: np.ndarray, cells: np.ndarray) -> Cover:
    """Return what a domain of whole volumes has of cells, those of the nodes inside.

    Parameters are those of `cut_cells`.
    """
    inside = level < 0
    corner = {place: cells & _corner(inside, *place) for place in _CORNERS}
    faces = (
        (0.5 * (corner[0, 0] & corner[1, 0]), 0.5 * (corner[0, 1] & corner[1, 1])),
        (0.5 * (corner[0, 0] & corner[0, 1]), 0.5 * (corner[1, 0] & corner[1, 1])),
    )
    return Cover(faces, tuple(0.25 * corner[place] for place in _CORNERS))


def _corner(nodes: np.ndarray, y: int, x: int) -> np.ndarray:
    """Return one corner of all cells."""
    rows, columns = nodes.shape
    return nodes[y : rows - 1 + y, x : columns - 1 + x]


def share_inside(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return the part of lines with levels at both ends that is inside."""
    crossed = (p < 0) != (q < 0)
    fraction = np.minimum(p, q) / np.where(crossed, np.minimum(p, q) - np.maximum(p, q), 1.0)
    return np.where(crossed, fraction, (p < 0) & (q < 0))


def _triangle(level: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what share of triangles with levels ``(3, T)`` at points ``(3, 2)`` is inside, ``(T,)``.

    And the ends of the outline in them, ``(2, T, 2)``, and the slope of the level per cell, ``(T,)``.
    """
    inside = level < 0
    share = inside.all(0).astype(float)
    ends = np.zeros((2, level.shape[1], 2))
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        alone = (inside[i] != inside[j]) & (inside[i] != inside[k])
        ends_at = level[:, alone]
        t = [ends_at[i] / (ends_at[i] - ends_at[other]) for other in (j, k)]
        small = t[0] * t[1]
        share[alone] = np.where(inside[i, alone], small, 1.0 - small)
        for end, other, part in zip(ends, (j, k), t, strict=True):
            end[alone] = points[i] + part[:, None] * (points[other] - points[i])
    sides = np.stack([points[1] - points[0], points[2] - points[0]])
    gradient = np.linalg.solve(sides, np.stack([level[1] - level[0], level[2] - level[0]]))
    return share, ends, np.linalg.norm(gradient, axis=0)
