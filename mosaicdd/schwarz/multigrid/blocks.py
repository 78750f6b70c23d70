"""How the nodes of a level lie over the ranks: a box each, on the process grid, and copies of what is around it.

A rank computes a sweep of all colours, the way to the coarse nodes and the sweep back on its box and on copies of neighbours'
nodes, as many as these reach over and one: one exchange before is enough, with eight colours another one before the sweep
back, and all numbers are those that one rank alone would have. Where boxes become smaller than that, every rank has all of
a level and those below.

Along a periodic axis boxes have copies all round, those of the first ranks from the last ones, and a rank that has all
along it from itself. Colours and coarse nodes take turns all round, so the number of nodes must be even; a level that has an odd
number of coarse nodes puts another one between two of them, see `odd_rounds`.
"""

from collections.abc import Sequence

import torch

from mosaicdd.lattice.sharing import Direction
from mosaicdd.parallel.halo import HaloExchange, Part
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.multigrid.own_copies import OwnCopies
from mosaicdd.schwarz.multigrid.parities import Parities

Range = tuple[int, int]
"""The first and the last of some nodes."""

# By the number of colours. A node's value goes by the right-hand sides of 3, 6 or 6 nodes to each side: from that of each
# class, backwards through the colours. There is one more, as couplings of the outermost that lead out of the box are not known.
_COPIES = {2: 4, 4: 7, 8: 7}
_WHOLE = 2**12  # nodes of a level that every rank has all of
# Of a round, from one node that is put between others to that of the next level: none is near another, so cells of coarse
# levels have similar widths (the golden ratio).
_TURN = (5**0.5 - 1) / 2


class Blocks:
    """The boxes of the ranks in one level.

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
    owned
        The first and last nodes that this rank owns, per axis.
    nodes, whole
        Those of this rank, copies included; all of them, once.
    """

    def __init__(
        self,
        ranks: Ranks,
        ranges: Sequence[Sequence[Range]],
        colours: int,
        periodic: tuple[bool, ...] = (),
        put: tuple[int, ...] = (),
    ):
        self.ranks, self.ranges = ranks, [list(per_rank) for per_rank in ranges]
        self.periodic = periodic or (False,) * len(self.ranges)
        self._put = put or (0,) * len(self.ranges)
        self.copies, self.twice = _COPIES[colours], colours == 8
        coords = ranks.coords if ranks.size > 1 else (0,) * len(self.ranges)
        self.owned = [per_rank[c] for per_rank, c in zip(self.ranges, coords, strict=True)]
        domain = [(per_rank[0][0], per_rank[-1][1]) for per_rank in self.ranges]
        around = [
            (first - self.copies, last + self.copies)
            if wraps
            else (max(first - self.copies, low), min(last + self.copies, high))
            for (first, last), (low, high), wraps in zip(
                self.owned, domain, self.periodic, strict=True
            )
        ]
        self.nodes = Parities([first for first, _ in around], [last for _, last in around])
        self.whole = Parities([first for first, _ in domain], [last for _, last in domain])

    @property
    def wide(self) -> bool:
        """Whether all boxes are so wide that copies are of next neighbours only."""
        return all(
            last - first + 1 >= self.copies
            for per_rank, wraps in zip(self.ranges, self.periodic, strict=True)
            if len(per_rank) > 1 or wraps
            for first, last in per_rank
        )

    @property
    def shared(self) -> bool:
        """Whether there is more than one rank."""
        return self.ranks.size > 1

    @property
    def copied(self) -> bool:
        """Whether there are copies."""
        return self.shared or any(self.periodic)

    @property
    def owned_coarse(self) -> list[Range]:
        """The coarse nodes that this rank owns, by their indices in the level below."""
        return [((first + 1) >> 1, last >> 1) for first, last in self.owned]

    @property
    def rounds(self) -> tuple[int | None, ...]:
        """After how many nodes each axis comes round; None where it does not."""
        ends = zip(self.whole.last, self.periodic, strict=True)
        return tuple(last + 1 if wraps else None for last, wraps in ends)

    @property
    def between(self) -> tuple[int | None, ...]:
        """Per axis, the coarse node, an even one, after which the level below has another node; None where it has not."""
        after: list[int | None] = []
        for count, put in zip(self.rounds, self._put, strict=True):
            coarse = 0 if count is None else count // 2
            turn = (put + 1) * _TURN % 1
            after.append(int(turn * coarse) // 2 * 2 if coarse % 2 else None)
        return tuple(after)

    def coarser(self) -> "Blocks":
        """Return those of the level below, whose classes are its colours; of a single rank where every one has all of it."""
        ranges, put = [], list(self._put)
        for axis, (per_rank, after) in enumerate(zip(self.ranges, self.between, strict=True)):
            coarse = [((a + 1) >> 1, b >> 1) for a, b in per_rank]
            if after is not None:
                put[axis] += 1
                coarse = [(a + (a > after), b + (b >= after)) for a, b in coarse]
            ranges.append(coarse)
        how = len(self.nodes.classes), self.periodic, tuple(put)
        below = Blocks(self.ranks, ranges, *how)
        if self.shared and not (below.wide and below.whole.count > _WHOLE):
            return Blocks(Ranks.alone(), [[end] for end in below.whole.box], *how)
        return below

    def exchange(self, vector: torch.Tensor) -> "Copies | OwnCopies | None":
        """Plan what refreshes the copies in vectors like this one; None if there are none."""
        if self.shared:
            return Copies(self, vector)
        return OwnCopies(self.nodes, self.owned, self.rounds) if self.copied else None


class Copies:
    """Refreshes the copies of neighbours' nodes in a vector; planned once."""

    def __init__(self, blocks: Blocks, vector: torch.Tensor):
        self._blocks, self._nodes = blocks, blocks.nodes
        self._exchange = HaloExchange(
            blocks.ranks,
            self._by_slots(vector),
            lambda direction: self._parts(direction, own=True),
            lambda direction: self._parts(direction, own=False),
            periodic=blocks.periodic,
        )

    def clear(self, vector: torch.Tensor) -> None:
        """Let the copies be zero."""
        nodes = self._nodes
        for number, values in enumerate(self._by_slots(vector)):
            own = nodes.slots_of(number, self._blocks.owned)
            for axis, part in enumerate(own):
                before = (slice(None),) * axis
                values[(*before, slice(0, part.start))] = 0.0
                values[(*before, slice(part.stop, None))] = 0.0

    def refresh(self, vector: torch.Tensor) -> None:
        """Let them be the values of their owners; all ranks together."""
        self.clear(vector)
        self._exchange.add(self._by_slots(vector))

    def _by_slots(self, vector: torch.Tensor) -> list[torch.Tensor]:
        return [self._nodes.at_slots(values) for values in vector]

    def _parts(self, direction: Direction, *, own: bool) -> list[Part]:
        """Return the nodes to send in a direction, or those that come from there."""
        blocks, box = self._blocks, []
        width = blocks.copies
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
