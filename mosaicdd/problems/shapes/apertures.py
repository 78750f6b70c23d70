r"""Apertures: the shares of control volumes, and of their faces, that lie in the domain.

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

In space there are 48 tetrahedra, six for each corner: of the corner, the middles of an edge there, of a face that
this belongs to, and of the cell. The face across an edge has two triangles in each cell, without the corner.

So volumes, faces and the outline between them fit together exactly: what flows out of a volume flows
through its faces or the outline.
"""

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.axes import at, ends, others


@dataclass(frozen=True)
class Apertures:
    """The shares of the cells around the nodes ``(rows, columns)`` of a part that a domain has.

    Parameters
    ----------
    faces
        Per axis of the edges that they cross, (y, x), those at the low and at the high side of each
        cell: of the left and the right edge, of the lower and the upper one; ``(rows + 1,
        columns + 1)`` each, at most a half. In space four quarters, by the other axes in their order.
    quarters
        Of the volume of each corner, the last axis first; ``(rows + 1, columns + 1)``, at most a quarter.
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

    faces: tuple[tuple[np.ndarray, ...], ...] = ()
    quarters: tuple[np.ndarray, ...] = ()
    inside: np.ndarray | None = None
    counts: np.ndarray | None = None
    cells: np.ndarray | None = None

    @classmethod
    def of_cells(cls, cells: np.ndarray) -> "Apertures":
        """Return the apertures of a domain of whole cells, ``(rows + 1, columns + 1)``."""
        corners = 2**cells.ndim
        face, share = 2 / corners * cells, 1 / corners * cells
        return cls(((face,) * (corners // 2),) * cells.ndim, (share,) * corners)

    @property
    def known_cells(self) -> Any:
        """Which cells around the nodes have values inside, ``(rows + 1, columns + 1)``; None for all."""
        known = self.cells is not None or self.inside is None
        return self.cells if known else cells_touching(self.inside)

    @property
    def volumes(self) -> np.ndarray:
        """The part of a cell that each node's volume has, ``(rows, columns)``."""
        return _gathered(self.quarters, range(self.quarters[0].ndim))

    @property
    def shares(self) -> np.ndarray:
        """The shares of cells that belong to each node around them, ``(2**axes, M)``, last axis first."""
        # The corner that a cell before the node has there is its high one.
        corners = itertools.product((slice(None, -1), slice(1, None)), repeat=self.quarters[0].ndim)
        pairs = zip(reversed(self.quarters), corners, strict=True)
        return np.stack([np.pad(share, 1)[corner].ravel() for share, corner in pairs])

    @functools.cached_property
    def edge_faces(self) -> tuple[Any, ...]:
        """The faces of the grid edges along each axis, as `of_edges`."""
        return tuple(self.of_edges(axis) for axis in range(len(self.faces)))

    def of_volumes(self, cells: Any) -> Any:
        """Return the sums over each node's volume of values per cell times their shares, ``(rows, columns)``.

        In arrays of numpy's or torch's.
        """
        return _gathered(_times(self.quarters, cells), range(self.quarters[0].ndim))

    def near(self, axis: int) -> Any:
        """Mark the edges along an axis with an end inside, or beside a node inside; True for all."""
        if self.inside is None:
            return True
        near = cells_touching(cells_touching(self.inside))
        low, high = ends(axis, near.ndim)
        return near[low] | near[high]

    def of_edges(self, axis: int, cells: Any = 1.0) -> Any:
        """Return the faces of the grid edges along an axis, times values of the cells, of numpy's or torch's.

        ``(rows - 1, columns)`` or ``(rows, columns - 1)``: each edge has half a face in two cells.
        """
        faces = _times(self.faces[axis], cells)
        axes = faces[0].ndim
        return _gathered(faces, others(axis, axes))[at(axis, axes, slice(1, -1))]


def cells_touching(nodes: Any) -> Any:
    """Return the cells with a node of a mask at a corner, or the nodes with such a cell."""
    cells = nodes
    for axis in range(nodes.ndim):
        low, high = ends(axis, nodes.ndim)
        cells = cells[low] | cells[high]
    return cells


def _times(shares: Sequence[np.ndarray], cells: Any) -> list[Any]:
    """Return shares times values of the cells; those of whole cells are one array, which stays one."""
    products = {key: cells * share for key, share in {id(share): share for share in shares}.items()}
    return [products[id(share)] for share in shares]


def _gathered(shares: Sequence[np.ndarray], axes: Sequence[int]) -> np.ndarray:
    """Add up at nodes, or edges, what the cells around have for their corners along some axes."""
    if all(share is shares[0] for share in shares):
        total = shares[0]
        for axis in axes:
            before, after = ends(axis, total.ndim)
            total = total[before] + total[after]
        return total
    parts = []
    for corner, share in zip(itertools.product((0, 1), repeat=len(axes)), shares, strict=True):
        place = [slice(None)] * share.ndim
        for axis, high in zip(axes, corner, strict=True):  # the high corner is of the cell before
            place[axis] = slice(None, -1) if high else slice(1, None)
        parts.append(share[tuple(place)])
    return functools.reduce(operator.add, reversed(parts))


@dataclass(frozen=True)
class Segments:
    """Pieces of an outline, each in the volume of one node."""

    nodes: np.ndarray  # ``(S, axes)``, (y, x), from the first of the array of levels
    middles: np.ndarray  # ``(S, axes)``, likewise
    lengths: np.ndarray  # ``(S,)``, in units of the grid's spacing; in space areas
    # How far inside of the outline the nodes are, ``(S,)``, likewise; negative outside
    distances: np.ndarray
    outlines: np.ndarray  # the numbers of those that they belong to, ``(S,)``


def cut_cells(
    level: np.ndarray,
    cells: np.ndarray,
    numbers: np.ndarray | None = None,
    aspect: Sequence[float] = (),
    *,
    joined: bool = False,
) -> tuple[Apertures, Segments]:
    """Return the shares of cells below a level, and the outline in them.

    Parameters
    ----------
    level
        At the corners of the cells, ``(rows + 2, columns + 2)``.
    cells
        Which there are at all, ``(rows + 1, columns + 1)``.
    numbers
        Of the outlines that the corners outside belong to; by default all are one.
    aspect
        The sides of a cell per axis, in the unit of lengths and distances; by default all are 1.
    joined
        Whether cells with a corner inside are in the domain as a whole: then there is no outline between two of them,
        though the level is zero along a bridge of one cell.
    """
    if numbers is None:
        numbers = np.zeros(level.shape, int)
    axes, places = level.ndim, _corners(level.ndim)
    sides = np.array(aspect or (1.0,) * axes)
    belongs = np.where(level >= 0, numbers, 0)
    inside = level < 0
    whole, reached = cells & ~cells_touching(~inside), cells & cells_touching(inside)
    cut, beside = np.argwhere(reached & ~whole), np.pad(reached, 1)
    cover, here = _whole(whole), tuple(cut.T)
    values = np.array([_corner(level, place)[here] for place in places]).reshape(*(2,) * axes, -1)

    @functools.cache
    def level_at(place: tuple[float, ...]) -> np.ndarray:
        """Return the levels ``(T,)`` at a place in the cells, means over the corners around it."""
        corners = tuple([slice(None) if along == 0.5 else int(along) for along in place])
        return values[corners].mean(tuple(range(place.count(0.5))))

    outlines = np.maximum.reduce([_corner(belongs, place)[here] for place in places])
    pieces: list[tuple[np.ndarray, ...]] = []
    for number, corner in enumerate(places):
        for order in itertools.permutations(range(axes)):
            # From the corner on, axis by axis, to the middles of an edge, of a face, and of the cell.
            chain = [
                tuple([0.5 if axis in order[:k] else float(c) for axis, c in enumerate(corner)])
                for k in range(axes + 1)
            ]
            simplex, points = np.stack([level_at(place) for place in chain]), np.array(chain)
            parts = math.factorial(axes) * 2**axes
            cover.quarters[number][here] += _share(simplex) / parts
            if not corner[order[0]]:  # the face across an edge belongs to both of its ends
                slot = np.ravel_multi_index(
                    [corner[a] for a in others(order[0], axes)], (2,) * (axes - 1)
                )
                cover.faces[order[0]][slot][here] += _share(simplex[1:]) * (2 * axes / parts)
            slope = np.linalg.norm(_gradient(simplex, points * sides), axis=0)
            distances = -simplex[0] / np.where(slope > 0, slope, 1.0)
            for piece in _outline(simplex, points):
                lengths = _size(piece * sides)
                there = lengths > 0  # also along the edge of a triangle
                if joined:
                    middles = piece.mean(0)
                    step = (middles == 1).astype(int) - (middles == 0)
                    there &= ~(step.any(axis=1) & beside[tuple((cut + step + 1).T)])
                crossed = np.flatnonzero(there)
                pieces.append(
                    (
                        cut[crossed] + corner,
                        cut[crossed] + piece.mean(0)[crossed],
                        lengths[crossed],
                        distances[crossed],
                        outlines[crossed],
                    )
                )
    segments = Segments(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
    return cover, segments


def _whole(cells: np.ndarray) -> Apertures:
    """Return the apertures of whole cells, in separate arrays to be written into."""
    every = Apertures.of_cells(cells)
    faces = tuple(tuple(face.copy() for face in along) for along in every.faces)
    return Apertures(faces, tuple(share.copy() for share in every.quarters))


def staircase(level: np.ndarray, cells: np.ndarray) -> Apertures:
    """Return the apertures of the whole control volumes of the nodes inside.

    Parameters are those of `cut_cells`.
    """
    inside = level < 0
    corner = {place: cells & _corner(inside, place) for place in _corners(2)}
    faces = (
        (0.5 * (corner[0, 0] & corner[1, 0]), 0.5 * (corner[0, 1] & corner[1, 1])),
        (0.5 * (corner[0, 0] & corner[0, 1]), 0.5 * (corner[1, 0] & corner[1, 1])),
    )
    return Apertures(faces, tuple(0.25 * inner for inner in corner.values()))


def _corners(axes: int) -> list[tuple[int, ...]]:
    """List the corners of a cell, the last axis first."""
    return list(itertools.product((0, 1), repeat=axes))


def _corner(nodes: np.ndarray, place: tuple[int, ...]) -> np.ndarray:
    """Return one corner of all cells."""
    return nodes[tuple(slice(end, n - 1 + end) for end, n in zip(place, nodes.shape, strict=True))]


def share_inside(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return the part of lines with levels at both ends that is inside."""
    crossed = (p < 0) != (q < 0)
    fraction = np.minimum(p, q) / np.where(crossed, np.minimum(p, q) - np.maximum(p, q), 1.0)
    return np.where(crossed, fraction, (p < 0) & (q < 0))


def _share(level: np.ndarray) -> np.ndarray:
    """Return the shares inside of points, lines, triangles or tetrahedra with levels ``(1 to 4, T)``."""
    if len(level) == 2:
        return share_inside(*level)
    inside = level < 0
    share = inside.all(0).astype(float)
    for vertex, alone in _alone(inside):
        at = level[:, alone]
        small = math.prod(
            at[vertex] / (at[vertex] - at[other]) for other in others(vertex, len(level))
        )
        share[alone] = np.where(inside[vertex, alone], small, 1.0 - small)
    for (a, b), (c, d), both in _pairs(inside):
        ac, ad, bc, bd = _cuts(level[:, both], (a, c), (a, d), (b, c), (b, d))
        share[both] = ac * ad + bc * bd * (1 - ac) + bd * ac * (1 - ad)
    return share


def _outline(level: np.ndarray, points: np.ndarray) -> list[np.ndarray]:
    """Return the outline in triangles, or tetrahedra, with levels ``(k, T)`` at points ``(k, axes)``.

    Lines, or triangles, by their ends ``(axes, T, axes)``, which fall together where there is none. A tetrahedron whose
    outline has four ends has two of these.
    """
    inside, axes = level < 0, points.shape[1]
    pieces = [np.zeros((axes, level.shape[1], axes)) for _ in range(max(axes - 1, 1))]
    for vertex, alone in _alone(inside):
        at = level[:, alone]
        for end, other in zip(pieces[0], others(vertex, len(level)), strict=True):
            (part,) = _cuts(at, (vertex, other))
            end[alone] = points[vertex] + part[:, None] * (points[other] - points[vertex])
    for (a, b), (c, d), both in _pairs(inside):
        lines = (a, c), (a, d), (b, d), (b, c)
        ac, ad, bd, bc = (
            points[p] + part[:, None] * (points[q] - points[p])
            for (p, q), part in zip(lines, _cuts(level[:, both], *lines), strict=True)
        )
        for piece, corners in zip(pieces, ((ac, ad, bd), (ac, bd, bc)), strict=True):
            piece[:, both] = corners
    return pieces


def _cuts(level: np.ndarray, *lines: tuple[int, int]) -> list[np.ndarray]:
    """Return the shares of lines before the outline crosses them."""
    return [level[p] / (level[p] - level[q]) for p, q in lines]


def _alone(inside: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return the simplices of which each vertex is inside alone, or outside; of lines none."""
    if len(inside) < 3:
        return []
    count, most = inside.sum(0), len(inside) - 1
    return [(i, np.where(within, count == 1, count == most)) for i, within in enumerate(inside)]


def _pairs(inside: np.ndarray) -> list[tuple[tuple[int, int], tuple[int, int], np.ndarray]]:
    """Return the pairs of vertices inside and outside, and the tetrahedra with these."""
    if len(inside) < 4:
        return []
    pairs = list(itertools.combinations(range(4), 2))  # the complements come in reversed order
    return [
        ((a, b), (c, d), inside[a] & inside[b] & ~inside[c] & ~inside[d])
        for (a, b), (c, d) in zip(pairs, reversed(pairs), strict=True)
    ]


def _size(ends: np.ndarray) -> np.ndarray:
    """Return the lengths of lines, or the areas of triangles, with ends ``(axes, T, axes)``; 1 for points."""
    if len(ends) == 1:
        return np.ones(ends.shape[1])
    if len(ends) == 2:
        return np.linalg.norm(ends[0] - ends[1], axis=1)
    return np.linalg.norm(np.cross(ends[1] - ends[0], ends[2] - ends[0]), axis=1) / 2


def _gradient(level: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the gradients of levels ``(k, T)`` that are linear between points, ``(axes, T)``."""
    return np.linalg.solve(points[1:] - points[0], level[1:] - level[0])
