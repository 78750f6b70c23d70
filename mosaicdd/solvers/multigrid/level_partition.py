"""The partition of a level's nodes over the process grid, and that of coarser levels; sends nothing.

Where boxes become smaller than what they need of their neighbours, every rank has all of a level and those below.

Along a periodic axis colours and coarse nodes take turns all round, so the number of nodes must be even; a level that
has an odd number of coarse nodes puts another one between two of them, see `add_odd_ghost`.

The box of a level's nodes on a rank, with ghost nodes around it.

A rank computes a sweep of all colours, the way to the coarse nodes and the sweep back on its box and on copies of neighbours'
nodes, as many as these reach over and one: one exchange before is enough, with eight colours another one before the sweep
back, and all numbers are those that one rank alone would have.

Along a periodic axis boxes have copies all round, those of the first ranks from the last ones, and a rank that has all
along it from itself.
"""

import functools
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from mosaicdd.axes import frame
from mosaicdd.grid.partition import Range
from mosaicdd.parallel.halo import Direction, HaloExchange, Part
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.solvers.multigrid.colour_layout import CoarseningPattern, ColourLayout

# By the number of colours. A node's value goes by the right-hand sides of 3, 6 or 6 nodes to each side: from that of each
# class, backwards through the colours. There is one more, as couplings of the outermost that lead out of the box are not known.
_COPIES = {2: 4, 4: 7, 8: 7}
_WHOLE = 5000  # nodes of a level that every rank has all of; at least what a cycle factorises
# Of a round, from one node that is put between others to that of the next level: none is near another, so cells of coarse
# levels have similar widths (the golden ratio).
_TURN = (5**0.5 - 1) / 2


class LevelPartition:
    """The partition of a level's nodes over the ranks.

    Parameters
    ----------
    ranges
        Per axis, of the ranks in its order: the nodes that they own, by global indices.
    colours
        Of a sweep.
    periodic
        Along which axes the first node, 0, comes after the last, an odd one; by default none.
    put
        Per axis, how many levels above have put a node between two others.

    Attributes
    ----------
    copies
        Nodes of others that a box has on each side where there are any.
    twice
        Whether they are to be refreshed before the sweep back, too.
    """

    def __init__(
        self,
        ranges: Sequence[Sequence[Range]],
        colours: int,
        periodic: tuple[bool, ...] = (),
        put: tuple[int, ...] = (),
    ):
        self.ranges = [list(per_rank) for per_rank in ranges]
        self.periodic = periodic or (False,) * len(self.ranges)
        self._put = put or (0,) * len(self.ranges)
        self.copies, self.twice = _COPIES[colours], colours == 8

    @property
    def several(self) -> bool:
        """Whether there is more than one rank."""
        return any(len(per_rank) > 1 for per_rank in self.ranges)

    @cached_property
    def domain(self) -> list[Range]:
        """The first and the last node per axis."""
        return [(per_rank[0][0], per_rank[-1][1]) for per_rank in self.ranges]

    @property
    def count(self) -> int:
        """The number of nodes."""
        return math.prod(last - first + 1 for first, last in self.domain)

    @property
    def wide(self) -> bool:
        """Whether all copies are of next neighbours, as boxes are wide enough."""
        return all(
            last - first + 1 >= self.copies
            for per_rank, wraps in zip(self.ranges, self.periodic, strict=True)
            if len(per_rank) > 1 or wraps
            for first, last in per_rank
        )

    @cached_property
    def rounds(self) -> tuple[int | None, ...]:
        """After how many nodes each axis comes round; None where it does not."""
        ends = zip(self.domain, self.periodic, strict=True)
        return tuple(last + 1 if wraps else None for (_, last), wraps in ends)

    def between(self, by: CoarseningPattern) -> tuple[int | None, ...]:
        """Return per axis the coarse node, an even one, after which the level below has another node; None where it has not."""
        after: list[int | None] = []
        for count, put, halved in zip(self.rounds, self._put, by.axes, strict=True):
            coarse = count // 2 if count is not None and halved else 0
            turn = (put + 1) * _TURN % 1
            after.append(int(turn * coarse) // 2 * 2 if coarse % 2 else None)
        return tuple(after)

    def around(self, coords: Sequence[int]) -> list[Range]:
        """Return the first and last nodes per axis of a rank's box, copies included."""
        return [self._around(axis, c) for axis, c in enumerate(coords)]

    def _around(self, axis: int, coordinate: int) -> Range:
        first, last = self.ranges[axis][coordinate]
        first, last = first - self.copies, last + self.copies
        low, high = self.domain[axis]
        return (first, last) if self.periodic[axis] else (max(first, low), min(last, high))

    def coarser(self, by: CoarseningPattern | None = None) -> "LevelPartition":
        """Return the partition of the coarser level; of a single rank where all have the whole of it.

        Parameters
        ----------
        by
            Which nodes those are; by default every second along each axis.
        """
        by, ranges, put = by or CoarseningPattern.of_all(len(self.ranges)), [], list(self._put)
        for axis, (per_rank, after) in enumerate(zip(self.ranges, self.between(by), strict=True)):
            coarse = [by.along(axis, *ends) for ends in per_rank]
            if after is not None:
                put[axis] += 1
                coarse = [(a + (a > after), b + (b >= after)) for a, b in coarse]
            ranges.append(coarse)
        how = 2 ** len(self.ranges), self.periodic, tuple(put)
        below = LevelPartition(ranges, *how)
        if self.several and not (below.wide and below.count > _WHOLE):
            return LevelPartition([[end] for end in below.domain], *how)
        return below

    def held(self) -> np.ndarray:
        """Count the nodes in the boxes of all ranks, copies included, one per axis of the process grid."""
        return _outer(
            [
                [_length(self._around(axis, c)) for c in range(len(per_rank))]
                for axis, per_rank in enumerate(self.ranges)
            ]
        )

    def sent(self, direction: Direction) -> np.ndarray:
        """Count the nodes that every rank sends in a direction in one exchange; zero where there is no other rank."""
        along = []
        for per_rank, way, wraps in zip(self.ranges, direction, self.periodic, strict=True):
            if not way:
                along.append([_length(own) for own in per_rank])
                continue
            last = len(per_rank) - 1
            end = last if way > 0 else 0
            along.append([self.copies if wraps or c != end else 0 for c in range(len(per_rank))])
        stays = all(
            not way or len(per_rank) == 1
            for per_rank, way in zip(self.ranges, direction, strict=True)
        )
        return _outer(along) * (not stays)


def _length(ends: Range) -> int:
    return ends[1] - ends[0] + 1


def _outer(along: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the products of numbers per axis, for all ranks of the process grid."""
    return functools.reduce(np.multiply.outer, [np.array(numbers, np.int64) for numbers in along])


class LevelBox:
    """The box of this rank in one level.

    Attributes
    ----------
    shares
        Those of all ranks.
    owned
        The first and last nodes that this rank owns, per axis.
    nodes, whole
        Those of this rank, copies included; all of them, once.
    """

    def __init__(self, ranks: Ranks, shares: LevelPartition, device: torch.device | str = "cpu"):
        self.ranks, self.shares, self._device = ranks, shares, device
        coords = ranks.coords if ranks.size > 1 else (0,) * len(shares.ranges)
        self.owned = [per_rank[c] for per_rank, c in zip(shares.ranges, coords, strict=True)]
        boxes = shares.around(coords), shares.domain
        self.nodes, self.whole = (ColourLayout.of(box, device) for box in boxes)

    @property
    def shared(self) -> bool:
        """Whether there is more than one rank."""
        return self.ranks.size > 1

    @property
    def copied(self) -> bool:
        """Whether there are copies."""
        return self.shared or any(self.shares.periodic)

    def coarser(self, by: CoarseningPattern) -> "LevelBox":
        """Return the box of the coarser level; of a single rank where all have the whole of it."""
        shares = self.shares.coarser(by)
        return LevelBox(self.ranks if shares.several else Ranks.alone(), shares, self._device)

    def exchange(self, vector: torch.Tensor) -> "GhostExchange | PeriodicGhosts | None":
        """Plan the exchange of copies in vectors like this one; None if there are none."""
        if self.shared:
            return GhostExchange(self, vector)
        return PeriodicGhosts(self.nodes, self.owned, self.shares.rounds) if self.copied else None


class GhostExchange:
    """Refreshes the copies of neighbours' nodes in a vector; planned once."""

    def __init__(self, blocks: LevelBox, vector: torch.Tensor):
        self._blocks, self._nodes = blocks, blocks.nodes
        self._exchange = HaloExchange(
            blocks.ranks,
            list(self._nodes.at_slots(vector)),
            lambda direction: self._parts(direction, own=True),
            lambda direction: self._parts(direction, own=False),
            periodic=blocks.shares.periodic,
        )

    def clear(self, vector: torch.Tensor) -> None:
        """Let the copies be zero."""
        nodes = self._nodes
        for number, values in enumerate(nodes.at_slots(vector)):
            own = nodes.slots_of(number, self._blocks.owned)
            for axis, part in enumerate(own):
                before = (slice(None),) * axis
                values[(*before, slice(0, part.start))] = 0.0
                values[(*before, slice(part.stop, None))] = 0.0

    def refresh(self, vector: torch.Tensor) -> None:
        """Let them be the values of their owners; all ranks together."""
        self.clear(vector)
        self._exchange.add(list(self._nodes.at_slots(vector)))

    def _parts(self, direction: Direction, *, own: bool) -> list[Part]:
        """Return the nodes to send in a direction, or those that come from there."""
        blocks, box = self._blocks, []
        width = blocks.shares.copies
        for way, (first, last) in zip(direction, blocks.owned, strict=True):
            if not way:
                box.append((first, last))
            elif own:
                box.append((last - width + 1, last) if way > 0 else (first, first + width - 1))
            else:
                box.append((last + 1, last + width) if way > 0 else (first - width, first - 1))
        return [
            (number, self._nodes.slots_of(number, box))
            for number in range(len(self._nodes.classes))
        ]


class PeriodicGhosts:
    """Refreshes copies of a rank's own nodes, which has all along the periodic axes, in a vector; planned once.

    Parameters
    ----------
    nodes
        With the copies, which may come round several times.
    owned
        The first and the last node of each axis that is none.
    rounds
        After how many nodes each axis comes round; None where it does not.
    """

    def __init__(
        self,
        nodes: ColourLayout,
        owned: Sequence[tuple[int, int]],
        rounds: Sequence[int | None],
    ):
        outer, inner = (
            tuple(slice(first, last + 1) for first, last in box) for box in (nodes.box, owned)
        )
        there, here = [], []
        for part in frame(outer, inner):
            grid = np.meshgrid(*(np.arange(p.start, p.stop) for p in part), indexing="ij")
            copies = [node.ravel() for node in grid]
            first = [
                n if period is None else n % period
                for n, period in zip(copies, rounds, strict=True)
            ]
            there.append(nodes.places(copies))
            here.append(nodes.places(first))
        self._there, self._here = torch.cat(there), torch.cat(here)

    def clear(self, vector: torch.Tensor) -> None:
        """Let the copies be zero."""
        vector.view(-1).index_fill_(0, self._there, 0)

    def refresh(self, vector: torch.Tensor) -> None:
        """Let them be the values of their nodes."""
        flat = vector.view(-1)
        flat.index_copy_(0, self._there, flat.index_select(0, self._here))
