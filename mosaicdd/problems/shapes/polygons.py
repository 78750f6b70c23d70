"""Domains between polygons: one around them, and holes in it.

The level at a node is its distance to the nearest edge, negative inside, as far as two cells from the
polygons; beyond, only the sign counts. A node is inside where a line to the left of it crosses an odd
number of edges.
"""

from collections.abc import Sequence

import numpy as np

from mosaicdd.axes import all_of, common, sizes, times, within
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Part, Periods
from mosaicdd.problems.fields.given import real_array, same_values
from mosaicdd.problems.shapes.shape import Shape
from mosaicdd.unsupported import Unsupported

_BAND = 2.0  # cells from the polygons to which distances are right
_ON = 1e-6  # cells from the outline within which a node lies on it
_PAIRS = 2**22  # of edges that are tested for a crossing at once


class Polygons(Shape):
    """The part of a rectangle that is inside one polygon and outside of others.

    `ValueError` if a polygon has fewer than three corners, an outline crosses itself or another, or a hole is not
    inside, or inside of another one.

    Parameters
    ----------
    outer
        Corners ``(N, 2)``, (x, y), in units of domain length; the first may be repeated at the end.
    holes
        Likewise.
    """

    staircase = False

    def __init__(self, outer: object, holes: Sequence[object] = ()):
        if not isinstance(holes, Sequence | np.ndarray) or isinstance(holes, str):
            raise TypeError(
                f"holes are polygons, as [[(x, y), ...], ...], got {type(holes).__name__}"
            )
        names = ["outer", *(f"hole{k + 1}" for k in range(len(holes)))]
        self.rings = [
            _ring(corners, name) for corners, name in zip((outer, *holes), names, strict=True)
        ]
        self._names = tuple(names)
        self._edges = [np.stack([ring, np.roll(ring, -1, axis=0)], axis=1) for ring in self.rings]
        _require_apart(self._edges, names)
        for name, ring in zip(names[1:], self.rings[1:], strict=True):
            if not _odd(self._edges[0], ring[:1])[0]:
                raise ValueError(f"the polygon {name} is not inside of outer")
        _require_no_islands(self.rings[1:], self._edges[1:], names[1:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polygons) and same_values(self.rings, other.rings)

    def __hash__(self) -> int:
        return hash(self._names)

    def __str__(self) -> str:
        corners = sum(map(len, self.rings))
        return f"{len(self.rings)} polygon{'s' * (len(self.rings) > 1)} of {corners} corners"

    def require_shape(self, grid: Grid) -> None:
        """Raise `ValueError` unless polygons lie in the rectangle, and every hole has a node of the grid."""
        if len(grid.shape) != 2:
            raise Unsupported(
                f"polygons are of a rectangle, and {times(grid.shape)} cells are a box: give a signed distance, "
                "Domain.from_distance(distance, cells, spacing), or --domain 'expr:..'"
            )
        (first, last), h = np.transpose(grid.ends[::-1]), min(grid.steps)
        for name, ring in zip(self._names, self.rings, strict=True):
            low, high = ring.min(axis=0), ring.max(axis=0)
            if (low < first - _ON * h).any() or (high > last + _ON * h).any():
                raise ValueError(
                    f"the polygon {name} reaches from ({low[0]:.10g}, {low[1]:.10g}) to ({high[0]:.10g}, "
                    f"{high[1]:.10g}), the cells {grid.reach}; give more cells, or another origin"
                )
        for name, edges, ring in zip(self._names[1:], self._edges[1:], self.rings[1:], strict=True):
            part = _box(ring, grid)
            if not _inside(edges, grid, part).any():
                raise ValueError(
                    f"the polygon {name} is thinner than a cell, {grid.cell}: there is no node of the grid in "
                    "it; leave it out, or take a finer grid"
                )

    def level(self, grid: Grid, part: Part) -> np.ndarray:
        """Return the level at the nodes of a part, ``(rows, columns)``."""
        inside = _inside(np.concatenate(self._edges), grid, part)
        distance = self._distances(grid, part)[0]
        distance[distance < _ON * min(grid.steps)] = 0.0
        return np.where(inside, -distance, distance)

    def outlines(self, grid: Grid, periods: Periods) -> tuple[tuple[str, ...], np.ndarray]:
        """Return the names of the outlines, as given, and which one each node outside belongs to."""
        whole = all_of(grid.nodes)
        distance, numbers = self._distances(grid, whole)
        off = distance >= _ON * min(grid.steps)
        numbers[off] = 0
        for hole, edges in enumerate(self._edges[1:], start=1):
            numbers[off & _inside(edges, grid, whole)] = hole
        return self._names, numbers

    def _distances(self, grid: Grid, part: Part) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances to the nearest polygon, and its number, near to the polygons."""
        h = max(grid.steps)  # edges of the grid that cross a polygon are as long
        more = [int(np.ceil(_BAND * h / step)) + 1 for step in grid.steps]
        shape = sizes(part)
        distance, number = np.full(shape, _BAND * h), np.zeros(shape, np.int32)
        for which, edges in enumerate(self._edges):
            for edge in _short(edges, 32 * h):
                box = _box(edge, grid, more)
                near = common(box, part)
                if any(p.start == p.stop for p in near):
                    continue
                own = within(near, part)
                y, x = grid.places(near)
                far = _from_edge(edge, x, y[:, None])
                nearer = far < distance[*own]
                distance[*own][nearer] = far[nearer]
                number[*own][nearer] = which
        return distance, number


def _ring(corners: object, name: str) -> np.ndarray:
    ring = real_array(corners, f"the polygon {name}").copy()  # the caller's own may change
    if ring.ndim != 2 or ring.shape[1] != 2:
        raise ValueError(
            f"the polygon {name} must have corners (x, y), got an array of the shape {ring.shape}"
        )
    lacking = np.flatnonzero(~np.isfinite(ring).all(axis=1))
    if len(lacking):
        x, y = ring[lacking[0]]
        raise ValueError(
            f"the polygon {name} must have finite numbers at its {len(ring)} corners, number {lacking[0] + 1} is "
            f"({x:.10g}, {y:.10g}): correct it, or leave it out"
        )
    ring = ring[
        (ring != np.roll(ring, -1, axis=0)).any(axis=1)
    ]  # the first stands again at the end
    if len(ring) < 3:
        raise ValueError(f"the polygon {name} has {len(ring)} corners, it needs 3 or more")
    return ring


def _require_no_islands(
    rings: Sequence[np.ndarray], edges: Sequence[np.ndarray], names: Sequence[str]
) -> None:
    """Check that no hole lies in another one: as they do not cross, by one corner each."""
    first = np.array([ring[0] for ring in rings]).reshape(-1, 2)
    for around, own, name in zip(rings, edges, names, strict=True):
        near = np.flatnonzero(((first > around.min(0)) & (first < around.max(0))).all(axis=1))
        inside = near[_odd(own, first[near])]
        if len(inside):
            other = names[inside[0]]
            raise ValueError(
                f"the polygon {other} is inside of {name}, where there is no domain: leave {other} out; an island in a "
                f"hole is a problem of its own, with {other} as its outer polygon"
            )


def _require_apart(rings: Sequence[np.ndarray], names: Sequence[str]) -> None:
    """Check that edges neither cross nor touch, but for neighbours at their common corner."""
    edges, counts = np.concatenate(rings), [len(ring) for ring in rings]
    ring = np.repeat(np.arange(len(rings)), counts)
    first = np.concatenate([[0], np.cumsum(counts)])
    step = max(1, _PAIRS // len(edges))
    for start in range(0, len(edges), step):
        portion = np.arange(start, min(start + step, len(edges)))
        touching = _touching(edges[portion, None], edges[None])
        i, j = np.nonzero(touching)
        i = portion[i]
        after = first[ring[i]] + (i - first[ring[i]] + 1) % np.diff(first)[ring[i]]
        before = first[ring[i]] + (i - first[ring[i]] - 1) % np.diff(first)[ring[i]]
        along = edges[:, 1] - edges[:, 0]
        back = (along[i, 0] * along[j, 1] == along[i, 1] * along[j, 0]) & (
            (along[i] * along[j]).sum(axis=1) < 0
        )
        bad = (i < j) & (((j != after) & (j != before)) | back)
        if bad.any():
            a, b = i[bad][0], j[bad][0]
            names_of = [names[ring[k]] for k in (a, b)]
            what = (
                f"the polygon {names_of[0]} crosses itself"
                if ring[a] == ring[b]
                else f"the polygons {names_of[0]} and {names_of[1]} cross or touch"
            )
            ends = " and ".join(
                f"({p[0]:.10g}, {p[1]:.10g}) to ({q[0]:.10g}, {q[1]:.10g})"
                for p, q in edges[[a, b]]
            )
            raise ValueError(f"{what}: the edges {ends}")


def _touching(edges: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Say which pairs of edges ``(.., 2, 2)`` have a point in common."""

    def side(edge: np.ndarray, point: np.ndarray) -> np.ndarray:
        along, to = edge[..., 1, :] - edge[..., 0, :], point - edge[..., 0, :]
        return np.sign(along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0])

    ends = [
        side(first, second[..., k, :])
        for first, second in ((edges, other), (other, edges))
        for k in (0, 1)
    ]
    boxes = (edges.max(-2) >= other.min(-2)) & (other.max(-2) >= edges.min(-2))
    return boxes.all(-1) & (ends[0] * ends[1] <= 0) & (ends[2] * ends[3] <= 0)


def _box(points: np.ndarray, grid: Grid, more: Sequence[int] = (0, 0)) -> Part:
    """Return the box of nodes around points (x, y), with ``more`` along each axis."""
    points = points.reshape(-1, 2)[:, ::-1]
    low = np.floor(grid.cells(points.min(axis=0))).astype(int) - more
    high = np.ceil(grid.cells(points.max(axis=0))).astype(int) + more
    ends = zip(low, high, grid.nodes, strict=True)
    return tuple(slice(max(int(a), 0), min(int(b) + 1, n)) for a, b, n in ends)


def _short(edges: np.ndarray, length: float) -> np.ndarray:
    """Cut edges into pieces of at most a length."""
    pieces = []
    for p, q in edges:
        count = max(1, int(np.ceil(np.abs(q - p).max() / length)))
        t = np.linspace(0.0, 1.0, count + 1)[:, None]
        places = p + t * (q - p)
        pieces.append(np.stack([places[:-1], places[1:]], axis=1))
    return np.concatenate(pieces)


def _from_edge(edge: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the distances of places from an edge."""
    (x0, y0), (dx, dy) = edge[0], edge[1] - edge[0]
    square = dx * dx + dy * dy
    t = (((x - x0) * dx + (y - y0) * dy) / (square or 1.0)).clip(0.0, 1.0)
    return np.hypot(x - x0 - t * dx, y - y0 - t * dy)


def _inside(edges: np.ndarray, grid: Grid, part: Part) -> np.ndarray:
    """Say which nodes of a part have an odd number of edges to their left."""
    rows, columns = sizes(part)
    crossed = np.zeros((rows, columns + 1), np.int32)
    for (y0, x0), (y1, x1) in grid.cells(edges[..., ::-1]):
        if y0 > y1:
            x0, y0, x1, y1 = x1, y1, x0, y0
        low, high = (int(np.ceil(y)) for y in (y0, y1))  # lower end counts, upper does not
        row = np.arange(max(low, part[0].start), min(high, part[0].stop))
        if len(row):
            x = x0 + (row - y0) * (x1 - x0) / (y1 - y0)
            first = np.ceil(x).astype(int) - part[1].start
            np.add.at(crossed, (row - part[0].start, first.clip(0, columns)), 1)
    return crossed.cumsum(axis=1)[:, :-1] % 2 == 1


def _odd(edges: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Say which points ``(M, 2)`` have an odd number of edges to their left."""
    p, q = edges[None, :, 0], edges[None, :, 1]
    y = points[:, None, 1]
    spans = (p[..., 1] <= y) != (q[..., 1] <= y)
    slope = np.where(spans, q[..., 1] - p[..., 1], 1.0)
    x = p[..., 0] + (y - p[..., 1]) * (q[..., 0] - p[..., 0]) / slope
    return (spans & (x < points[:, None, 0])).sum(axis=1) % 2 == 1
