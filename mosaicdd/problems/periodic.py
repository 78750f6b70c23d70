"""Grids with periodic sides: the equation of natural sides, with the nodes of both sides the same.

Along a periodic axis of ``N`` cells node ``N`` is node 0, and nodes are counted on and on: a part of the
grid may reach beyond it, where it comes round. What the two sides have of volumes, faces and sources
adds up, each from its own side; so coefficients and sources may jump there.

A lattice may come round after more nodes, its *period* ``P >= N``. The nodes ``N .. P - 1`` then lie on
the edge between node ``N - 1`` and node 0: conductances in series with the same sum, and nothing else,
so without them the equation is what it was.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.axes import pair
from mosaicdd.problems.conductances import Conductances
from mosaicdd.problems.fields import Part

Periods = tuple[int | None, int | None]
"""After how many nodes each axis comes round, (y, x); None where it does not."""


@dataclass(frozen=True)
class _Round:
    """What a part has of the grid along one axis, from one node 0 to the next.

    Parameters
    ----------
    source
        Nodes of the grid.
    nodes
        Which of these, and where they are in the part.
    edges
        Which edges between these, and where: several lie on the one to the last node.
    factors
        By which conductances of these are larger than that of the edge they lie on.
    middle
        Which of these do not end at the last node.
    """

    source: slice
    nodes: tuple[np.ndarray, np.ndarray]
    edges: tuple[np.ndarray, np.ndarray]
    factors: np.ndarray
    middle: np.ndarray


def glued(
    part: Part,
    cells: tuple[int, int],
    periods: Periods,
    natural: Callable[[Part], tuple[Conductances, np.ndarray]],
) -> tuple[Conductances, np.ndarray]:
    """Return conductances and volumes of a part, from those between natural sides.

    Parameters
    ----------
    natural
        Returns them for a part of the grid; the reaction already times the volumes.
    """
    if periods == (None, None):
        return natural(part)
    rows, columns = (p.stop - p.start for p in part)
    reaction, all_volumes = np.zeros((2, rows, columns))
    up, down = np.zeros((2, rows - 1, columns))
    right, left = np.zeros((2, rows, columns - 1))
    symmetric = True
    for y, x in _rounds(part, cells, periods):
        one, volumes = natural((y.source, x.source))
        symmetric &= one.symmetric
        (y_from, y_to), (x_from, x_to) = y.nodes, x.nodes
        for total, values in ((reaction, one.reaction), (all_volumes, volumes)):
            total[np.ix_(y_to, x_to)] += values[np.ix_(y_from, x_from)]
        edges, at = np.ix_(y.edges[0], x_from), np.ix_(y.edges[1], x_to)
        factors, middle = y.factors[:, None], y.middle[:, None]
        up[at] += factors * one.up[edges]
        down[at] += factors * np.where(middle, one.up[edges], one.down[edges])
        edges, at = np.ix_(y_from, x.edges[0]), np.ix_(y_to, x.edges[1])
        right[at] += x.factors * one.right[edges]
        left[at] += x.factors * np.where(x.middle, one.right[edges], one.left[edges])
    if symmetric:
        return Conductances(up, right, reaction), all_volumes
    return Conductances(up, right, reaction, down, left), all_volumes


def glued_nodes(
    part: Part,
    cells: tuple[int, int],
    periods: Periods,
    natural: Callable[[Part], np.ndarray],
) -> np.ndarray:
    """Return values ``(n, rows, columns)`` at the nodes of a part, those of both sides added up."""
    if periods == (None, None):
        return natural(part)
    total = np.zeros((1, *(p.stop - p.start for p in part)))
    for y, x in _rounds(part, cells, periods):
        values = natural((y.source, x.source))
        if len(values) > len(total):
            total = np.repeat(total, len(values), axis=0)
        (y_from, y_to), (x_from, x_to) = y.nodes, x.nodes
        total[:, y_to[:, None], x_to] += values[:, y_from[:, None], x_from]
    return total


def between_rounds(part: Part, cells: tuple[int, int], periods: Periods) -> np.ndarray:
    """Say which nodes of a part lie on the way from the last cell back to the first."""
    rows, columns = (
        np.zeros(p.stop - p.start, bool)
        if period is None
        else np.arange(p.start, p.stop) % period >= count
        for p, count, period in zip(part, cells, periods, strict=True)
    )
    return rows[:, None] | columns


def places_of(
    nodes: np.ndarray, part: Part, periods: Periods
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which of some nodes ``(K, 2)`` lie in a part, and where in it, in every round."""
    found = []
    for dy in _firsts(part[0], periods[0]):
        for dx in _firsts(part[1], periods[1]):
            y, x = nodes[:, 0] + dy - part[0].start, nodes[:, 1] + dx - part[1].start
            inside = (y >= 0) & (y < part[0].stop - part[0].start)
            inside &= (x >= 0) & (x < part[1].stop - part[1].start)
            at = np.flatnonzero(inside)
            found.append((at, y[at], x[at]))
    at, y, x = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return at, y, x


def _firsts(part: slice, period: int | None) -> list[int]:
    """Return node 0 of every round that a part has nodes of."""
    if period is None:
        return [0]
    return [k * period for k in range(part.start // period, (part.stop - 1) // period + 1)]


def _rounds(
    part: Part, cells: tuple[int, int], periods: Periods
) -> Iterator[tuple[_Round, _Round]]:
    rows, columns = pair(_along(*axis) for axis in zip(part, cells, periods, strict=True))
    return ((y, x) for y in rows for x in columns)


def _along(part: slice, cells: int, period: int | None) -> list[_Round]:
    """Return the rounds of a part along one axis; one is all of an axis that does not come round."""
    if period is None:
        nodes, edges = (np.arange(part.stop - part.start - k) for k in (0, 1))
        one, no = np.ones(len(edges)), np.zeros(len(edges), bool)
        return [_Round(part, (nodes, nodes), (edges, edges), one, no)]
    # The last node of a round is the first of the next.
    firsts = [first - period for first in _firsts(part, period)[:1]] + _firsts(part, period)
    found = [_of_round(part, first, cells, period) for first in firsts]
    return [one for one in found if one is not None]


def _of_round(part: slice, first: int, cells: int, period: int) -> _Round | None:
    """Return what a part has of the round that begins with a node."""
    nodes = np.arange(max(part.start, first), min(part.stop, first + period + 1)) - first
    nodes = nodes[(nodes < cells) | (nodes == period)]
    edges = np.arange(max(part.start, first), min(part.stop - 1, first + period)) - first
    there = np.minimum(nodes, cells), np.minimum(edges, cells - 1)
    if not len(nodes) + len(edges):
        return None
    low = min([*there[0][:1], *there[1][:1]])
    high = max([*there[0][-1:], *(there[1][-1:] + 1)])
    return _Round(
        source=slice(int(low), int(high) + 1),
        nodes=(there[0] - low, nodes + first - part.start),
        edges=(there[1] - low, edges + first - part.start),
        factors=np.where(edges < cells - 1, 1.0, period - cells + 1.0),
        middle=(edges >= cells - 1) & (edges < period - 1),
    )
