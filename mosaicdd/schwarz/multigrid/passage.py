"""The way between a level and the one below: by the slots of its coarse nodes to another layout, and over the ranks."""

import torch

from mosaicdd.schwarz.multigrid.blocks import Blocks
from mosaicdd.schwarz.multigrid.parities import Parities


class Passage:
    """Moves values at the coarse nodes of a level to the vectors of the level below, and back.

    Parameters
    ----------
    fine
        The level's nodes, those of this rank and the copies around them.
    blocks
        How it lies over the ranks; None where every rank has all of it.

    Attributes
    ----------
    below
        How the level below does.
    nodes
        Of that level, on this rank.
    """

    def __init__(self, fine: Parities, blocks: Blocks | None):
        self._fine = fine
        self.below = None if blocks is None else blocks.coarser()
        around = fine.coarser()
        self._around = around.box
        self._ranks = self._copies = None
        if blocks is None:
            self.nodes, self._owned = around, around.box
        elif self.below is not None:
            self.nodes, self._owned = self.below.nodes, self.below.owned
            self._copies = self.below.exchange(self.nodes.new())
        else:  # which every rank has all of
            self.nodes, self._owned = blocks.whole.coarser(), blocks.owned_coarse
            self._ranks = blocks.ranks

    def down(self, coarse: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Fill a vector of the level below, copies included, with values at the coarse nodes, ``(M,)``."""
        slots = self._fine.at_slots(coarse)
        if self._ranks is not None:
            out.zero_()
        for number in range(len(out)):
            there = self.nodes.at_slots(out[number])[self.nodes.slots_of(number, self._owned)]
            there.copy_(slots[self._fine.of_coarse(self.nodes.indices_of(number, self._owned))])
        if self._copies is not None:
            self._copies.refresh(out)
        if self._ranks is not None:
            out.copy_(torch.from_numpy(self._ranks.sum(out.double().cpu().numpy())))
        return out

    def up(self, values: torch.Tensor, out: torch.Tensor) -> None:
        """Fill the coarse nodes, ``(M,)``, with values of the level below, whose copies are refreshed."""
        if self._copies is not None:
            self._copies.refresh(values)
        slots = self._fine.at_slots(out)
        for number in range(len(values)):
            there = self.nodes.at_slots(values[number])[self.nodes.slots_of(number, self._around)]
            slots[self._fine.of_coarse(self.nodes.indices_of(number, self._around))] = there
