"""The all-gather of one value per lattice node, for the replicated coarse solve."""

import numpy as np
import torch

from mosaicdd.parallel.process_grid import Dims, ProcessGrid


class NodeGather:
    """Put the blocks of all ranks together on every rank; planned once.

    Parameters
    ----------
    counts
        Lattice nodes inside the domain per axis.
    """

    def __init__(self, grid: ProcessGrid, counts: Dims, *, device: torch.device):
        self._grid = grid
        self._whole = torch.empty(counts, dtype=torch.float64)
        self._device = device
        self._blocks = []
        sizes = []
        for rank in range(grid.size):
            start, stop = grid.partition(counts, rank)
            self._blocks.append(tuple(slice(a, b) for a, b in zip(start, stop, strict=True)))
            sizes.append(int(np.prod([b - a for a, b in zip(start, stop, strict=True)])))
        self._sizes = sizes
        self._mine = torch.empty(sizes[grid.rank], dtype=torch.float64)
        self._all = torch.empty(sum(sizes), dtype=torch.float64)

    def __call__(self, nodes: torch.Tensor) -> torch.Tensor:
        """Return all nodes, ``counts``, from this rank's block of them."""
        if self._grid.size == 1:
            return nodes.to(torch.float64)
        self._mine.view(nodes.shape).copy_(nodes)
        self._grid.comm.Allgatherv(self._mine.numpy(), (self._all.numpy(), self._sizes))
        for block, part in zip(self._blocks, self._all.split(self._sizes), strict=True):
            whole = self._whole[block]
            whole.copy_(part.view(whole.shape))
        return self._whole.to(self._device)
