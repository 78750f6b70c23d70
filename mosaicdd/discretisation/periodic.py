"""Periodic sides: the equation of natural sides, with the nodes of both sides the same.

Along a periodic axis of ``N`` cells node ``N`` is node 0, and nodes are counted on and on: a part of the
grid may reach beyond it, where it comes round. What the two sides have of volumes, faces and sources
adds up, each from its own side; so coefficients and sources may jump there.

Lattices that come round after more nodes than their grid: the same equation, with nodes between.

A lattice's *period* ``P`` along a periodic axis may be larger than the grid's, its ``N`` cells. Its nodes
``N .. P - 1`` then lie on the edge between node ``N - 1`` and node 0: conductances in series with the same
sum, and nothing else, so without them the equation is that of the grid.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mosaicdd.axes import crossed, ends, last, sizes, steps_across, steps_along
from mosaicdd.problems.fields.fields import Part, Periods
from mosaicdd.problems.operators.conductances import Conductances, Step


def glued(
    part: Part, periods: Periods, natural: Callable[[Part], tuple[Conductances, np.ndarray]]
) -> tuple[Conductances, np.ndarray]:
    """Return conductances and volumes of a part, from those between natural sides.

    ``natural``: returns them for a part of the grid; the reaction already times the volumes.
    """
    if not any(periods):
        return natural(part)
    shape = sizes(part)
    reaction, all_volumes = np.zeros((2, *shape))
    totals: dict[tuple[Step, bool], np.ndarray] = {}
    for rounds in _rounds(part, periods):
        source, nodes = zip(*rounds, strict=True)
        between, volumes = natural(source)
        reaction[nodes] += between.reaction
        all_volumes[nodes] += volumes
        for step, *edges in between.edges():
            place = tuple(
                slice(p.start, p.stop - 1) if s else p for s, p in zip(step, nodes, strict=True)
            )
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
    total = np.zeros((1, *sizes(part)))
    for rounds in _rounds(part, periods):
        source, nodes = zip(*rounds, strict=True)
        values = natural(source)
        if len(values) > len(total):
            total = np.repeat(total, len(values), axis=0)
        total[:, *nodes] += values
    return total


def places_of(
    nodes: np.ndarray, part: Part, periods: Periods
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return the indices of nodes ``(K, axes)`` that lie in a part, and their places, in all rounds."""
    shape = np.array(sizes(part))
    which, places = [], []
    for first in itertools.product(*map(firsts, part, periods)):
        moved = nodes + [at - p.start for at, p in zip(first, part, strict=True)]
        which.append(np.flatnonzero(((moved >= 0) & (moved < shape)).all(axis=1)))
        places.append(moved[which[-1]])
    return np.concatenate(which), tuple(np.concatenate(places).T)


def grid_cells(part: Part, cells: tuple[int, ...], periods: Periods | None = None) -> np.ndarray:
    """Say which cells around the nodes of a part are in the grid, ``(rows + 1, columns + 1)``.

    ``cells``: of the grid per axis; ``periods``: along axes with one there are cells everywhere, by default along none.
    """
    inside = []
    for p, count, period in zip(part, cells, periods or (None,) * len(part), strict=True):
        at = np.arange(p.start - 1, p.stop)
        inside.append(((at >= 0) & (at < count)) | (period is not None))
    return functools.reduce(np.logical_and, crossed(*inside))


def firsts(part: slice, period: int | None) -> list[int]:
    """Return node 0 of every round that a part has nodes of."""
    if period is None:
        return [0]
    return [k * period for k in range(part.start // period, (part.stop - 1) // period + 1)]


def _rounds(part: Part, periods: Periods) -> Iterator[tuple[tuple[slice, slice], ...]]:
    """Yield the rounds that a part has of the grid: per axis nodes of the grid, and where they are in the part."""
    return itertools.product(*map(_along, part, periods))


def _along(part: slice, period: int | None) -> list[tuple[slice, slice]]:
    """Return the rounds of a part along one axis; one is all of an axis that does not come round."""
    if period is None:
        return [(part, slice(0, part.stop - part.start))]
    rounds = []
    for k in range((part.start - 1) // period, (part.stop - 1) // period + 1):
        # The last node of a round is the first of the next.
        low, high = max(part.start, k * period), min(part.stop, (k + 1) * period + 1)
        source = slice(low - k * period, high - k * period)
        rounds.append((source, slice(low - part.start, high - part.start)))
    return rounds


@dataclass(frozen=True)
class _Axis:
    """The nodes of a padded lattice along one axis."""

    part: slice  # of the grid, whose nodes they lie at and between
    nodes: np.ndarray  # of the part that each is at; of one between, any
    there: np.ndarray  # which are at a node
    edges: np.ndarray  # of the part that each edge between them lies on
    ways: np.ndarray  # along the edge that begins there or that it lies on, from 0 to 1
    factors: np.ndarray  # by which their conductances are larger than that edge's

    @classmethod
    def of(cls, part: slice, cells: int | None, period: int | None) -> "_Axis":
        """Return the nodes of a part of a lattice along one axis."""
        at = np.arange(part.start, part.stop)
        if cells is None or period is None:
            nodes, edges = at - part.start, at[:-1] - part.start
            ways, factors = np.zeros(len(at)), np.ones(len(edges))
            return cls(part, nodes, np.ones(len(nodes), bool), edges, ways, factors)
        first, place = at // period * cells, at % period
        edges, high = first + np.minimum(place, cells - 1), first + np.minimum(place, cells)
        source = slice(int(edges[0]), int(high[-1]) + 1)
        on_last, more = place[:-1] >= cells - 1, period - cells + 1.0
        return cls(
            source,
            edges - source.start,
            place < cells,
            edges[:-1] - source.start,
            (place - (cells - 1)).clip(min=0) / more,
            np.where(on_last, more, 1.0),
        )

    @cached_property
    def places(self) -> np.ndarray:
        """The places of the grid's nodes in the part of the lattice, -1 where they are not."""
        places = np.full(self.part.stop - self.part.start, -1)
        places[self.nodes[self.there]] = np.flatnonzero(self.there)
        return places


class PeriodicPadding:
    """A part of a lattice with more nodes than its grid along periodic axes.

    Attributes
    ----------
    part
        The nodes of the grid that its nodes lie at and between; they may reach beyond the grid.
    there
        Which nodes of the lattice are at one, per axis.
    """

    def __init__(self, part: Part, cells: Periods, periods: Periods):
        self._axes = tuple(_Axis.of(*axis) for axis in zip(part, cells, periods, strict=True))
        self.part: Part = tuple(axis.part for axis in self._axes)
        self.there = tuple(axis.there for axis in self._axes)

    @property
    def at_nodes(self) -> np.ndarray:
        """Which nodes of the lattice are nodes of the grid, ``(rows, columns)``."""
        return functools.reduce(np.logical_and, self._open)

    @property
    def nodes(self) -> Part:
        """The nodes of the grid that nodes of the lattice are at."""
        return tuple(
            slice(axis.part.start + int(at[0]), axis.part.start + int(at[-1]) + 1)
            for axis in self._axes
            for at in [axis.nodes[axis.there]]
        )

    @property
    def places(self) -> tuple[np.ndarray, ...]:
        """The places of the nodes of `part` in the lattice's, per axis; -1 where they are not."""
        return tuple(axis.places for axis in self._axes)

    def values(self, on_grid: np.ndarray) -> np.ndarray:
        """Return values ``(.., rows, columns)`` at the nodes of the lattice; zero between those of the grid."""
        return on_grid[last(np.ix_(*(axis.nodes for axis in self._axes)))] * self.at_nodes

    def interpolated(self, on_grid: np.ndarray) -> np.ndarray:
        """Return values at the nodes of the lattice; linear between those of the grid."""
        for number, axis in enumerate(self._axes):
            values = np.moveaxis(on_grid, number, -1)
            beside = values[..., np.minimum(axis.nodes + 1, values.shape[-1] - 1)]
            values = (1 - axis.ways) * values[..., axis.nodes] + axis.ways * beside
            on_grid = np.moveaxis(values, -1, number)
        return on_grid

    def conductances(self, between: Conductances) -> Conductances:
        """Return the lattice's conductances from those between the nodes of `part`; without reaction between.

        `ValueError` if nodes are coupled across cells, of which there is no part along an edge.
        """
        if between.across:
            raise ValueError("nodes that are coupled across cells have none between them")

        def stretched(edges: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            arrays = []
            # of parts of an edge in series more, between nodes none
            for axis, values in enumerate(edges):
                is_axis = [axis == other for other in range(len(edges))]
                axes = list(zip(is_axis, self._axes, strict=True))
                shares = crossed(*(a.factors if along else a.there for along, a in axes))
                places = np.ix_(*(a.edges if along else a.nodes for along, a in axes))
                arrays.append(functools.reduce(np.multiply, shares) * values[places])
            return tuple(arrays)

        along, reaction = stretched(between.along), self.values(between.reaction)
        if between.symmetric:
            return Conductances(along, reaction)
        against = stretched(between.against)
        # Between nodes of the grid there is no velocity: any conductance is right there, if it is the same
        # all along; in a fast flow the lesser one is zero.
        both = []
        for forth, back, axis, at_node in zip(
            along, against, range(len(along)), self._open, strict=True
        ):
            low, high = ends(axis, len(along))
            most = np.maximum(forth, back)
            both.append((np.where(at_node[low], forth, most), np.where(at_node[high], back, most)))
        along, against = zip(*both, strict=True)
        return Conductances(along, reaction, against)

    @property
    def _open(self) -> tuple[np.ndarray, ...]:
        """Which nodes of each axis are nodes of the grid, shaped to be compared with all nodes."""
        return crossed(*self.there)
