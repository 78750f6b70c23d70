"""Grids with periodic sides: the equation of natural sides, with the nodes of both sides the same.

Along a periodic axis of ``N`` cells node ``N`` is node 0, and nodes are counted on and on: a part of the
grid may reach beyond it, where it comes round. What the two sides have of volumes, faces and sources
adds up, each from its own side; so coefficients and sources may jump there.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from mosaicdd.axes import crossed, steps_across, steps_along
from mosaicdd.problems.fields.fields import Part, Periods
from mosaicdd.problems.operators.conductances import Conductances, Step


@dataclass(frozen=True)
class _Round:
    """What a part has of the grid along one axis, from one node 0 to the next."""

    source: slice  # nodes of the grid
    nodes: slice  # where they are in the part

    @property
    def edges(self) -> slice:
        """Where the edges between them are in the part."""
        return slice(self.nodes.start, self.nodes.stop - 1)


def glued(
    part: Part, periods: Periods, natural: Callable[[Part], tuple[Conductances, np.ndarray]]
) -> tuple[Conductances, np.ndarray]:
    """Return conductances and volumes of a part, from those between natural sides.

    ``natural``: returns them for a part of the grid; the reaction already times the volumes.
    """
    if not any(periods):
        return natural(part)
    shape = [p.stop - p.start for p in part]
    reaction, all_volumes = np.zeros((2, *shape))
    totals: dict[tuple[Step, bool], np.ndarray] = {}
    for rounds in _rounds(part, periods):
        between, volumes = natural(tuple(r.source for r in rounds))
        nodes = tuple(r.nodes for r in rounds)
        reaction[nodes] += between.reaction
        all_volumes[nodes] += volumes
        for step, *edges in between.edges():
            place = tuple(r.edges if s else r.nodes for s, r in zip(step, rounds, strict=True))
            size = [n - abs(s) for n, s in zip(shape, step, strict=True)]
            for back, values in enumerate(edges):
                if not back or values is not edges[0]:
                    totals.setdefault((step, bool(back)), np.zeros(size))[place] += values
    along, against, across = (
        tuple(totals[step, back] for step in steps if (step, back) in totals)
        for steps, back in (
            (steps_along(len(shape)), False),
            (steps_along(len(shape)), True),
            (steps_across(len(shape)), False),
        )
    )
    return Conductances(along, reaction, against, across), all_volumes


def glued_nodes(part: Part, periods: Periods, natural: Callable[[Part], np.ndarray]) -> np.ndarray:
    """Return values ``(n, rows, columns)`` at the nodes of a part, those of both sides added up."""
    if not any(periods):
        return natural(part)
    total = np.zeros((1, *(p.stop - p.start for p in part)))
    for rounds in _rounds(part, periods):
        values = natural(tuple(r.source for r in rounds))
        if len(values) > len(total):
            total = np.repeat(total, len(values), axis=0)
        total[:, *(r.nodes for r in rounds)] += values
    return total


def places_of(
    nodes: np.ndarray, part: Part, periods: Periods
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return which of some nodes ``(K, axes)`` lie in a part, and where in it, in every round."""
    shape = np.array([p.stop - p.start for p in part])
    which, places = [], []
    for first in itertools.product(*map(_firsts, part, periods)):
        moved = nodes + [at - p.start for at, p in zip(first, part, strict=True)]
        which.append(np.flatnonzero(((moved >= 0) & (moved < shape)).all(axis=1)))
        places.append(moved[which[-1]])
    return np.concatenate(which), tuple(np.concatenate(places).T)


class GridNodes:
    """Where the nodes of a grid, and its cells, are in a part of it.

    Parameters
    ----------
    cells
        Of the grid, per axis.
    rounds
        After how many nodes each axis comes round.
    """

    def __init__(self, cells: tuple[int, ...], rounds: Periods):
        self._cells, self._rounds = cells, rounds

    def cells(self, part: Part, periods: Periods | None = None) -> np.ndarray:
        """Say which cells around the nodes of a part are in the rectangle, ``(rows + 1, columns + 1)``."""
        inside, periods = [], periods or (None,) * len(part)
        for p, cells, period in zip(part, self._cells, periods, strict=True):
            at = np.arange(p.start - 1, p.stop)
            inside.append((at >= 0) & (at < cells) if period is None else np.ones(len(at), bool))
        return functools.reduce(np.logical_and, crossed(*inside))

    def places(self, nodes: np.ndarray, part: Part) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return which of some nodes ``(K, axes)`` lie in a part, and where in it; some at several places."""
        return places_of(nodes, part, self._rounds)


def _firsts(part: slice, period: int | None) -> list[int]:
    """Return node 0 of every round that a part has nodes of."""
    if period is None:
        return [0]
    return [k * period for k in range(part.start // period, (part.stop - 1) // period + 1)]


def _rounds(part: Part, periods: Periods) -> Iterator[tuple[_Round, ...]]:
    return itertools.product(*map(_along, part, periods))


def _along(part: slice, period: int | None) -> list[_Round]:
    """Return the rounds of a part along one axis; one is all of an axis that does not come round."""
    if period is None:
        return [_Round(part, slice(0, part.stop - part.start))]
    rounds = []
    for k in range((part.start - 1) // period, (part.stop - 1) // period + 1):
        # The last node of a round is the first of the next.
        low, high = max(part.start, k * period), min(part.stop, (k + 1) * period + 1)
        source = slice(low - k * period, high - k * period)
        rounds.append(_Round(source, slice(low - part.start, high - part.start)))
    return rounds
