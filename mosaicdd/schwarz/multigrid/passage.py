"""The way between a level and the one below: by the slots of its coarse nodes to another layout, and over the ranks."""

import itertools
from collections.abc import Iterator, Sequence

import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.schwarz.multigrid.blocks import Blocks
from mosaicdd.schwarz.multigrid.shares import Range


class Passage:
    """Moves values at the coarse nodes of a level to the vectors of the level below, and back.

    Parameters
    ----------
    blocks
        How the level lies over the ranks.

    Attributes
    ----------
    below
        How the level below does.
    nodes
        Of that level, on this rank.
    between
        The coarse nodes, per axis, after which that level has another node; see `Blocks`.
    """

    def __init__(self, blocks: Blocks):
        self._fine, self.below = blocks.nodes, blocks.coarser()
        self.between = blocks.shares.between
        self.nodes = self.below.nodes
        self._copies = self.below.exchange(self.nodes.new())
        self._ranks = blocks.ranks if blocks.shared and not self.below.shared else None
        self._owned = list(self._parts(blocks, blocks.owned_coarse))
        self._around = list(self._parts(blocks, blocks.nodes.coarser().box))

    def down(self, coarse: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Fill a vector of the level below, copies included, with values at the coarse nodes, ``(M,)``.

        Where the level below has another node it stays as it is.
        """
        slots = self._fine.at_slots(coarse)
        if self._ranks is not None:
            out.zero_()
        for number in range(len(out)):
            below = self.nodes.at_slots(out[number])
            for here, there in self._owned:
                below[there[number]] = slots[here[number]]
        if self._ranks is not None:
            out.copy_(torch.from_numpy(self._ranks.sum(out.double().cpu().numpy())))
        self.refresh(out)
        return out

    def up(self, values: torch.Tensor, out: torch.Tensor) -> None:
        """Fill the coarse nodes, ``(M,)``, with values of the level below, whose copies are refreshed."""
        self.refresh(values)
        slots = self._fine.at_slots(out)
        for number in range(len(values)):
            below = self.nodes.at_slots(values[number])
            for here, there in self._around:
                slots[here[number]] = below[there[number]]

    def refresh(self, vector: torch.Tensor) -> None:
        """Let the copies in a vector of the level below be the values of their owners; all ranks together."""
        if self._copies is not None:
            self._copies.refresh(vector)

    def _parts(
        self, blocks: Blocks, box: Sequence[Range]
    ) -> Iterator[tuple[list[Slices], list[Slices]]]:
        """Yield, for each class of the level below, at which slots coarse nodes of a box are here, and there.

        Each part is as much further there as nodes are put between others before it.
        """
        axes: list[list[tuple[Range, int]]] = []
        for (first, last), count, after in zip(
            box, blocks.shares.rounds, self.between, strict=True
        ):
            if count is None or after is None:
                axes.append([((first, last), 0)])
                continue
            coarse, parts = count // 2, []
            turns = [(end - after - 1) // coarse + 1 for end in (first, last)]
            for turn in range(turns[0], turns[1] + 1):
                low = max(first, after + 1 + (turn - 1) * coarse)
                parts.append(((low, min(last, after + turn * coarse)), turn))
            axes.append(parts)
        for several in itertools.product(*axes):
            there = [(first + turn, last + turn) for (first, last), turn in several]
            numbers = range(len(self.nodes.classes))
            yield (
                [
                    self._fine.of_coarse(
                        tuple(
                            slice(i.start - turn, i.stop - turn, i.step)
                            for i, (_, turn) in zip(
                                self.nodes.indices_of(number, there), several, strict=True
                            )
                        )
                    )
                    for number in numbers
                ],
                [self.nodes.slots_of(number, there) for number in numbers],
            )
