"""The one collective of an iteration: lattice nodes to every rank, and sums over the ranks.

Every rank solves the whole coarse problem, so each needs all lattice nodes. The few numbers that are
added up over the ranks in every iteration travel with them.
"""

import numpy as np
import torch

from mosaicdd.parallel.process_grid import Dims, ProcessGrid


class NodeGather:
    """Put the blocks of all ranks together on every rank; planned once.

    Parameters
    ----------
    counts
        Lattice nodes inside the domain per axis.
    problems
        Problems ``n`` that are solved at once.
    sums
        Numbers, at most, to add up over the ranks.
    device
        Of the nodes of a single rank, which need not leave it; those of several are on the host.
    """

    def __init__(
        self,
        grid: ProcessGrid,
        counts: Dims,
        *,
        problems: int = 1,
        sums: int = 0,
        device: torch.device | None = None,
    ):
        self._grid = grid
        alone = grid.size == 1
        kind = {"dtype": torch.float64, "device": device if alone else None}
        self.nodes = torch.empty(problems, *counts, **kind)
        if alone:
            return
        blocks, sizes = [], []
        for rank in range(grid.size):
            start, stop = grid.partition(counts, rank)
            blocks.append(tuple(slice(a, b) for a, b in zip(start, stop, strict=True)))
            sizes.append(problems * int(np.prod([b - a for a, b in zip(start, stop, strict=True)])))
        lengths = [size + sums for size in sizes]
        own = sizes[grid.rank]
        self._mine = torch.zeros(lengths[grid.rank], dtype=torch.float64)
        self._my_nodes = self._mine[:own].view(self.nodes[..., *blocks[grid.rank]].shape)
        self._my_sums = self._mine[own:].numpy()
        everything = torch.empty(sum(lengths), dtype=torch.float64)
        self._request = (self._mine.numpy(), (everything.numpy(), lengths))
        self._placed = []  # what arrives from each rank, and where it belongs
        self._sums = []
        for block, size, part in zip(blocks, sizes, everything.split(lengths), strict=True):
            place = self.nodes[..., *block]
            self._placed.append((place, part[:size].view(place.shape)))
            self._sums.append(part[size:].numpy())

    def __call__(self, mine: torch.Tensor, sums: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
        """Return all nodes, ``(n, *counts)`` in a buffer of this object, and the sums over the ranks.

        Parameters
        ----------
        mine
            This rank's block of the nodes, of every problem.
        sums
            Numbers to add up; added in the order of the ranks, so they are the same on all.
        """
        if self._grid.size == 1:
            self.nodes.copy_(mine)
            return self.nodes, sums
        count = len(sums)
        self._my_nodes.copy_(mine)
        self._my_sums[:count] = sums
        self._grid.comm.Allgatherv(*self._request)
        for place, part in self._placed:
            place.copy_(part)
        return self.nodes, np.sum([part[:count] for part in self._sums], axis=0)
