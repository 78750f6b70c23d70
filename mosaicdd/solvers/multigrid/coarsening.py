"""Along which axes a level is halved: all, or those alone along which couplings are much stronger.

A sweep smooths an error along strong couplings only. Across them it stays as it is, so the level below has to have all nodes
there (semicoarsening). Each such halving makes couplings along the halved axes four times weaker beside the others, so after some
levels all are alike.

Transfers between a level and the next coarser one: of values at its coarse nodes, between layouts and over ranks.
"""

import functools
import itertools
from collections.abc import Callable

import numpy as np
import torch

from mosaicdd.axes import Slices
from mosaicdd.grid.partition import Range
from mosaicdd.solvers.multigrid.colour_layout import CoarseningPattern, ColourLayout
from mosaicdd.solvers.multigrid.level_operator import LevelOperator
from mosaicdd.solvers.multigrid.level_partition import LevelBox

# Of couplings along the axes, from which fewer are halved. Cells three times as long as high, a ratio of 9, took 20 iterations
# with all axes halved, and 8 like this, as square ones; SPE10's model takes as many with 2 (`benchmarks/effective.py`).
_RATIO = 2.9


def halving(level: LevelOperator, blocks: LevelBox) -> CoarseningPattern:
    """Return the coarsening pattern of a level; all ranks together.

    What couplings along an axis are is their mean over nodes, of logarithms, as a few good conductors say nothing of others.
    """
    if level.directed:  # sweeps go along lines anyway
        return CoarseningPattern.of_all(level.nodes.axes)
    sums, counts = blocks.ranks.sum(_logarithms(level, blocks))
    strengths = np.where(counts > 0, np.exp(sums / np.maximum(counts, 1)), 0.0)
    return CoarseningPattern.of(tuple((_RATIO * strengths >= strengths.max()).tolist()))


def _logarithms(level: LevelOperator, blocks: LevelBox) -> np.ndarray:
    """Return per axis the sum of logarithms of couplings along it, and their number, of this rank's nodes in one class."""
    nodes, numbers = level.nodes, np.zeros((2, level.nodes.axes))
    unknowns = [
        float(torch.count_nonzero(inverse))
        for inverse in nodes.by_class(level.inverse, blocks.owned)
    ]
    number = int(blocks.ranks.sum(np.array(unknowns)).argmax())  # thin domains have none in some
    reach = nodes.distance([1] * nodes.axes)
    every = slice(reach, nodes.size - reach)
    couplings = level.couplings_of(nodes.classes[number], every)
    for axis in range(nodes.axes):
        along = level.inverse.new_zeros(nodes.size)
        for step, coupling in couplings.items():
            if step[axis]:
                along[every] += coupling
        own = nodes.at_slots(along)[nodes.slots_of(number, blocks.owned)]
        there = own > 0
        logarithms = torch.where(there, own, 1.0).log_()
        numbers[:, axis] = float(logarithms.sum(dtype=torch.float64)), float(there.sum())
    return numbers


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
    """Return the places of a box's coarse nodes in two levels.

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
    """Transfers values at coarse nodes to vectors of the coarser level, and back.

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
        if self._ranks is not None:
            out.zero_()
        for slots, below in self._pairs(self._owned, coarse, out):
            below.copy_(slots)
        self._share(out)
        return out

    def way_down(self, coarse: torch.Tensor, out: torch.Tensor) -> Callable[[], None]:
        """Plan `down` for vectors that are used again."""
        copies = [_copying(*pair) for pair in self._pairs(self._owned, coarse, out)]

        def fill() -> None:
            if self._ranks is not None:
                out.zero_()
            for copy in copies:
                copy()
            self._share(out)

        return fill

    def _share(self, out: torch.Tensor) -> None:
        """Let all ranks have all values where each has the whole level, and refresh copies."""
        if self._ranks is not None:
            out.copy_(torch.from_numpy(self._ranks.sum(out.double().cpu().numpy())))
        self.refresh(out)

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
        """Return pairs of views: of values at coarse nodes, and of the same nodes in a vector of the coarser level."""
        slots, below = self._fine.at_slots(coarse), self.nodes.at_slots(of)
        return [
            (slots[self.by.number_of[name]][here[number]], below[number][there[number]])
            for number, name in enumerate(self.nodes.classes)
            for here, there in parts
        ]


def _copying(values: torch.Tensor, to: torch.Tensor) -> Callable[[], object]:
    """Plan a copy; of every second number by numpy, which takes half as long."""
    if to.device.type != "cpu":
        return functools.partial(to.copy_, values)
    return functools.partial(np.copyto, to.numpy(), values.numpy())
