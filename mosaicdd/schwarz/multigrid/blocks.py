"""How the nodes of a level lie over the ranks: a box each, on the process grid, and copies of what is around it.

A rank computes a sweep of all colours, the way to the coarse nodes and the sweep back on its box and on copies of neighbours'
nodes, as many as the colours reach over and one: one exchange before each sweep is enough, and all numbers are those that
one rank alone would have. Where boxes become smaller than that, every rank has all of a level and those below.
"""

from collections.abc import Sequence

import torch

from mosaicdd.lattice.sharing import Direction
from mosaicdd.parallel.halo import HaloExchange, Part
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.multigrid.parities import Parities

Range = tuple[int, int]
"""The first and the last of some nodes."""

_WHOLE = 2**12  # nodes of a level that every rank has all of


class Blocks:
    """The boxes of the ranks in one level.

    Parameters
    ----------
    ranges
        Per axis, of the ranks in its order: the nodes that they own, by global indices.
    colours
        Of a sweep.
    """

    def __init__(self, ranks: Ranks, ranges: Sequence[Sequence[Range]], colours: int):
        self.ranks, self.ranges = ranks, [list(per_rank) for per_rank in ranges]
        # One more than sweeps reach over: couplings from the outermost count as if they led to given values.
        self.copies = 2 * colours
        coords = ranks.coords if ranks.size > 1 else (0,) * len(self.ranges)
        self.owned = [per_rank[c] for per_rank, c in zip(self.ranges, coords, strict=True)]
        self._domain = [(per_rank[0][0], per_rank[-1][1]) for per_rank in self.ranges]
        shared = [len(per_rank) > 1 for per_rank in self.ranges]
        around = [
            (max(first - self.copies, low), min(last + self.copies, high))
            if several
            else (first, last)
            for (first, last), (low, high), several in zip(
                self.owned, self._domain, shared, strict=True
            )
        ]
        self.nodes = Parities([first for first, _ in around], [last for _, last in around])
        self.whole = Parities(
            [first for first, _ in self._domain], [last for _, last in self._domain]
        )

    @property
    def wide(self) -> bool:
        """Whether all boxes are so wide that copies are of next neighbours only."""
        return all(
            last - first + 1 >= self.copies
            for per_rank in self.ranges
            if len(per_rank) > 1
            for first, last in per_rank
        )

    @property
    def shared(self) -> bool:
        """Whether there is more than one rank."""
        return self.ranks.size > 1

    @property
    def owned_coarse(self) -> list[Range]:
        """The coarse nodes that this rank owns, by their indices in the level below."""
        return [((first + 1) >> 1, last >> 1) for first, last in self.owned]

    def coarser(self) -> "Blocks | None":
        """Return those of the level below, whose classes are its colours; None where every rank has all of it."""
        ranges = [[((a + 1) >> 1, b >> 1) for a, b in per_rank] for per_rank in self.ranges]
        below = Blocks(self.ranks, ranges, len(self.nodes.classes))
        return below if below.wide and below.whole.count > _WHOLE else None

    def exchange(self, vector: torch.Tensor) -> "Copies | None":
        """Plan what refreshes the copies in vectors like this one; None on one rank."""
        return Copies(self, vector) if self.shared else None


class Copies:
    """Refreshes the copies of neighbours' nodes in a vector; planned once."""

    def __init__(self, blocks: Blocks, vector: torch.Tensor):
        self._blocks, self._nodes = blocks, blocks.nodes
        self._exchange = HaloExchange(
            blocks.ranks,
            self._by_slots(vector),
            lambda direction: self._parts(direction, own=True),
            lambda direction: self._parts(direction, own=False),
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
