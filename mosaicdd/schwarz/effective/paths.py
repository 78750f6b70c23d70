"""Which voxels lie on paths from face to face: connected parts of a medium, over all ranks.

Each rank labels its own box. Where boxes touch, voxels that conduct on both sides of the face form patches, which both ranks
see alike, as each has the medium: a patch joins one part of the one box and one of the other. What is sent is a label per patch.
"""

from collections.abc import Sequence

import numpy as np
import scipy.ndimage
import scipy.sparse
import torch
from scipy.sparse.csgraph import connected_components

from mosaicdd.lattice.axes import Slices, at
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.effective.voxels import Voxels
from mosaicdd.schwarz.multigrid.blocks import Blocks


class Paths:
    """The connected parts of what conducts, through faces of voxels.

    Parameters
    ----------
    own
        The voxels of this rank.

    Attributes
    ----------
    part_of
        Of this rank's voxels, the connected part of its box that they belong to, from 1 on; 0 where nothing conducts.
    """

    def __init__(self, ranks: Ranks, voxels: Voxels, own: Slices):
        self._ranks, self._voxels, self._own = ranks, voxels, own
        conducts = voxels.conducts(own)
        self.part_of = np.empty(conducts.shape, np.int32)
        count = scipy.ndimage.label(conducts, output=self.part_of)
        patches = {}
        for axis in range(voxels.axes):
            for end, forth in ((0, -1), (-1, 1)):
                there = ranks.neighbour(at(axis, voxels.axes, forth, 0))
                if there is not None:
                    pair = min(ranks.rank, there), max(ranks.rank, there), axis
                    patches[pair] = self._patches(axis, end)
        everywhere = ranks.allgather((count, patches))
        counts = [number for number, _ in everywhere]
        # A part's number in all is that in its box and how many there are in boxes before, with a 0 for each box.
        self._first = np.concatenate([[0], np.cumsum(np.array(counts) + 1)])
        edges = [
            (labels + self._first[low], everywhere[high][1][low, high, axis] + self._first[high])
            for low, (_, of_rank) in enumerate(everywhere)
            for (first, high, axis), labels in of_rank.items()
            if first == low
        ]
        ones, others = np.concatenate([np.zeros((2, 0), int), *map(np.array, edges)], axis=1)
        shape = (self._first[-1],) * 2
        joined = scipy.sparse.coo_array((np.ones(len(ones)), (ones, others)), shape=shape)
        self._whole = connected_components(joined, directed=False)[1]

    def _patches(self, axis: int, end: int) -> np.ndarray:
        """Return to which parts the patches at an end of the box belong, in the order of the patches."""
        layer, beyond = self._layer(axis, end), list(self._own)
        edge = self._own[axis].start - 1 if end == 0 else self._own[axis].stop
        beyond[axis] = slice(edge, edge + 1)
        outside = self._voxels.conducts(tuple(beyond)).squeeze(axis)
        patch, count = scipy.ndimage.label((layer > 0) & outside)
        labels = np.zeros(count + 1, np.int64)
        labels[patch] = layer
        return labels[1:]

    def _layer(self, axis: int, end: int) -> np.ndarray:
        return self.part_of[at(axis, self.part_of.ndim, end)]

    def along(self, axis: int) -> np.ndarray:
        """Return which of this rank's voxels are connected to both faces across an axis; all ranks together."""
        own, mine = self._own[axis], self._first[self._ranks.rank]
        at_faces = [
            np.unique(self._layer(axis, end)) + mine if here else np.zeros(0, int)
            for end, here in ((0, own.start == 0), (-1, own.stop == self._voxels.shape[axis]))
        ]
        reached = np.ones(self._whole.max() + 1, bool)
        for parts in zip(*self._ranks.allgather(at_faces), strict=True):
            of_face = np.setdiff1d(np.concatenate(parts), self._first[:-1])
            touches = np.zeros_like(reached)
            touches[self._whole[of_face]] = True
            reached &= touches
        count = self._first[self._ranks.rank + 1] - mine
        connected = reached[self._whole[mine : mine + count]]
        connected[0] = False
        return connected[self.part_of]


def with_copies(blocks: Blocks, own: np.ndarray) -> np.ndarray:
    """Return what is said of a rank's voxels with what others say of the copies around them; all ranks together."""
    nodes = blocks.nodes
    vector = nodes.new()
    start: Sequence[int] = [first for first, _ in blocks.owned]
    nodes.take(torch.from_numpy(own.astype(np.float32)), vector, start)
    copies = blocks.exchange(vector)
    if copies is not None:
        copies.refresh(vector)
    box = [last - first + 1 for first, last in nodes.box]
    return nodes.give(vector, torch.empty(box)).numpy() > 0
