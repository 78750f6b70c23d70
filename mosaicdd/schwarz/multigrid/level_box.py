"""The box of a level's nodes on a rank, with ghost nodes around it.

A rank computes a sweep of all colours, the way to the coarse nodes and the sweep back on its box and on copies of neighbours'
nodes, as many as these reach over and one: one exchange before is enough, with eight colours another one before the sweep
back, and all numbers are those that one rank alone would have.

Along a periodic axis boxes have copies all round, those of the first ranks from the last ones, and a rank that has all
along it from itself.
"""

from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.block import frame
from mosaicdd.lattice.sharing import Direction
from mosaicdd.parallel.halo import HaloExchange, Part
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.multigrid.colour_layout import CoarseningPattern, ColourLayout
from mosaicdd.schwarz.multigrid.level_partition import LevelPartition


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
        """Return that of the level below; of a single rank where every one has all of it."""
        shares = self.shares.coarser(by)
        return LevelBox(self.ranks if shares.several else Ranks.alone(), shares, self._device)

    def exchange(self, vector: torch.Tensor) -> "GhostExchange | PeriodicGhosts | None":
        """Plan what refreshes the copies in vectors like this one; None if there are none."""
        if self.shared:
            return GhostExchange(self, vector)
        return PeriodicGhosts(self.nodes, self.owned, self.shares.rounds) if self.copied else None


class GhostExchange:
    """Refreshes the copies of neighbours' nodes in a vector; planned once."""

    def __init__(self, blocks: LevelBox, vector: torch.Tensor):
        self._blocks, self._nodes = blocks, blocks.nodes
        self._exchange = HaloExchange(
            blocks.ranks,
            self._by_slots(vector),
            lambda direction: self._parts(direction, own=True),
            lambda direction: self._parts(direction, own=False),
            periodic=blocks.shares.periodic,
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
