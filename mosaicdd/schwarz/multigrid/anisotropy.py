"""Along which axes a level is halved: all, or those alone along which couplings are much stronger.

A sweep smooths an error along strong couplings only. Across them it stays as it is, so the level below has to have all nodes
there (semicoarsening). Each such halving makes couplings along the halved axes four times weaker beside the others, so after some
levels all are alike.
"""

import numpy as np
import torch

from mosaicdd.schwarz.multigrid.colour_layout import CoarseningPattern
from mosaicdd.schwarz.multigrid.level_box import LevelBox
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator

# Of couplings along the axes, from which fewer are halved. Cells three times as long as high, a ratio of 9, took 20 iterations
# with all axes halved, and 8 like this, as square ones; SPE10's model takes as many with 2 (`scripts/bench_effective.py`).
_RATIO = 2.9


def halving(level: LevelOperator, blocks: LevelBox) -> CoarseningPattern:
    """Return which nodes of a level the one below has; all ranks together.

    What couplings along an axis are is their mean over nodes, of logarithms, as a few good conductors say nothing of others.
    """
    if level.directed:  # sweeps go along lines anyway
        return CoarseningPattern.of_all(level.nodes.axes)
    sums, counts = blocks.ranks.sum(_logarithms(level, blocks))
    strengths = np.where(counts > 0, np.exp(sums / np.maximum(counts, 1)), 0.0)
    return CoarseningPattern.of(tuple((_RATIO * strengths >= strengths.max()).tolist()))


def _logarithms(level: LevelOperator, blocks: LevelBox) -> np.ndarray:
    """Return per axis the sum of the logarithms of nodes' couplings along it, and of how many, of this rank's in one class."""
    nodes, numbers = level.nodes, np.zeros((2, level.nodes.axes))
    here = [nodes.slots_of(number, blocks.owned) for number in range(len(nodes.classes))]
    unknowns = [
        float(torch.count_nonzero(nodes.at_slots(inverse)[own]))
        for inverse, own in zip(level.inverse, here, strict=True)
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
        own = nodes.at_slots(along)[here[number]]
        there = own > 0
        logarithms = torch.where(there, own, 1.0).log_()
        numbers[:, axis] = float(logarithms.sum(dtype=torch.float64)), float(there.sum())
    return numbers
