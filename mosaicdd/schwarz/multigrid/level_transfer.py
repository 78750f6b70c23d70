"""Transfers between a level and the next coarser one: of values at its coarse nodes, between layouts and over ranks."""

import functools
import itertools
from collections.abc import Callable

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.schwarz.multigrid.colour_layout import CoarseningPattern, ColourLayout
from mosaicdd.schwarz.multigrid.level_box import LevelBox
from mosaicdd.schwarz.multigrid.level_partition import Range

Parts = list[tuple[list[Slices], list[Slices]]]
"""For each class of the level below, at which slots its nodes are among coarse nodes, and in a vector of that level."""


@functools.lru_cache(256)
def _parts(
    fine: ColourLayout,
    nodes: ColourLayout,
    by: CoarseningPattern,
    box: tuple[Range, ...],
    rounds: tuple[int | None, ...],
    between: tuple[int | None, ...],
) -> Parts:
    """Return where the coarse nodes of a box lie in two levels.

    Along periodic axes it is cut where the level below has another node (`between`): each part is as much further there as
    nodes are put between others before it.
    """
    axes: list[list[tuple[Range, int]]] = []
    for (first, last), count, after in zip(box, rounds, between, strict=True):
        if count is None or after is None:
            axes.append([((first, last), 0)])
            continue
        coarse, parts = count // 2, []
        turns = [(end - after - 1) // coarse + 1 for end in (first, last)]
        for turn in range(turns[0], turns[1] + 1):
            low = max(first, after + 1 + (turn - 1) * coarse)
            parts.append(((low, min(last, after + turn * coarse)), turn))
        axes.append(parts)
    places: Parts = []
    for several in itertools.product(*axes):
        there = [(first + turn, last + turn) for (first, last), turn in several]
        slots: tuple[list[Slices], list[Slices]] = [], []
        for number in range(len(nodes.classes)):
            ends = zip(nodes.indices_of(number, there), several, strict=True)
            indices = [slice(i.start - turn, i.stop - turn, i.step) for i, (_, turn) in ends]
            slots[0].append(fine.of_coarse(by, tuple(indices)))
            slots[1].append(nodes.slots_of(number, there))
        places.append(slots)
    return places


class LevelTransfer:
    """Moves values at the coarse nodes of a level to the vectors of the level below, and back.

    Parameters
    ----------
    blocks
        How the level lies over the ranks.
    by
        Which nodes are coarse.
    dtype
        Of values.

    Attributes
    ----------
    below
        How the level below does.
    nodes
        Of that level, on this rank.
    between
        The coarse nodes, per axis, after which that level has another node; see `LevelBox`.
    """

    def __init__(self, blocks: LevelBox, by: CoarseningPattern, dtype: torch.dtype = torch.float32):
        self._fine, self.below, self.by = blocks.nodes, blocks.coarser(by), by
        self.between = blocks.shares.between(by)
        self.nodes = self.below.nodes
        self._copies = self.below.exchange(self.nodes.room(dtype))
        self._ranks = blocks.ranks if blocks.shared and not self.below.shared else None
        self._owned, self._around = [
            _parts(
                self._fine,
                self.nodes,
                by,
                tuple(by.coarse(box)),
                blocks.shares.rounds,
                self.between,
            )
            for box in (blocks.owned, blocks.nodes.box)
        ]

    def down(self, coarse: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Fill a vector of the level below, copies included, with values at the coarse nodes, ``(K, M)``.

        Where the level below has another node it stays as it is.
        """
        self.way_down(coarse, out)()
        return out

    def way_down(self, coarse: torch.Tensor, out: torch.Tensor) -> Callable[[], None]:
        """Plan `down` for vectors that are used again."""
        pairs = self._pairs(self._owned, coarse, out)
        copies = [_copying(slots, below) for slots, below in pairs]

        def fill() -> None:
            if self._ranks is not None:
                out.zero_()
            for copy in copies:
                copy()
            if self._ranks is not None:
                out.copy_(torch.from_numpy(self._ranks.sum(out.double().cpu().numpy())))
            self.refresh(out)

        return fill

    def way_up(self, values: torch.Tensor, out: torch.Tensor) -> Callable[[], None]:
        """Plan to fill the coarse nodes, ``(K, M)``, with values of the level below, whose copies are refreshed."""
        pairs = self._pairs(self._around, out, values)
        copies = [_copying(below, slots) for slots, below in pairs]

        def fill() -> None:
            self.refresh(values)
            for copy in copies:
                copy()

        return fill

    def refresh(self, vector: torch.Tensor) -> None:
        """Let the copies in a vector of the level below be the values of their owners; all ranks together."""
        if self._copies is not None:
            self._copies.refresh(vector)

    def _pairs(
        self, parts: Parts, coarse: torch.Tensor, of: torch.Tensor
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return views of values at coarse nodes, and of where they are in a vector of the level below."""
        slots = [self._fine.at_slots(values) for values in coarse]
        return [
            (
                slots[self.by.number_of[below]][here[number]],
                self.nodes.at_slots(values)[there[number]],
            )
            for number, (below, values) in enumerate(zip(self.nodes.classes, of, strict=True))
            for here, there in parts
        ]


def _copying(values: torch.Tensor, to: torch.Tensor) -> Callable[[], object]:
    """Plan a copy; of every second number by numpy, which takes half as long."""
    if to.device.type != "cpu":
        return functools.partial(to.copy_, values)
    return functools.partial(np.copyto, to.numpy(), values.numpy())
