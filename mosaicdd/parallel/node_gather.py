"""The one collective of an iteration: lattice nodes to every rank, and sums over the ranks.

Every rank solves the whole coarse problem, so each needs all lattice nodes. The few numbers that are
added up over the ranks in every iteration travel with them.
"""

import numpy as np
import torch

from mosaicdd.parallel.ranks import Dims, Ranks


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
        ranks: Ranks,
        counts: Dims,
        *,
        problems: int = 1,
        sums: int = 0,
        device: torch.device | None = None,
    ):
        self._ranks = ranks
        alone = ranks.size == 1
        kind = {"dtype": torch.float64, "device": device if alone else None}
        self.nodes = torch.empty(problems, *counts, **kind)
        if alone:
            return
        numbers = np.arange(self.nodes.numel()).reshape(self.nodes.shape)
        blocks = [self._block(counts, rank) for rank in range(ranks.size)]
        lengths = [numbers[..., *block].size + sums for block in blocks]
        starts = np.cumsum([0, *lengths[:-1]])
        mine, own = numbers[..., *blocks[ranks.rank]], lengths[ranks.rank] - sums
        self._mine = torch.zeros(own + sums, dtype=torch.float64)
        self._my_nodes = self._mine[:own].view(mine.shape)
        self._my_sums = self._mine[own:].numpy()
        self._everything = torch.empty(sum(lengths), dtype=torch.float64)
        self._request = (self._mine.numpy(), (self._everything.numpy(), lengths))
        origin = np.empty(self.nodes.numel(), np.int64)  # where in what arrives each node stands
        for start, block in zip(starts, blocks, strict=True):
            places = numbers[..., *block].ravel()
            origin[places] = start + np.arange(len(places))
        self._origin = torch.from_numpy(origin)
        ends = starts + lengths
        self._sums = np.stack([np.arange(end - sums, end) for end in ends])  # (ranks, sums)

    def _block(self, counts: Dims, rank: int) -> tuple[slice, slice]:
        return tuple(map(slice, *self._ranks.partition(counts, rank)))

    def __call__(self, mine: torch.Tensor, sums: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
        """Return all nodes, ``(n, *counts)`` in a buffer of this object, and the sums over the ranks.

        Parameters
        ----------
        mine
            This rank's block of the nodes, of every problem.
        sums
            Numbers to add up; added in the order of the ranks, so they are the same on all.
        """
        if self._ranks.size == 1:
            self.nodes.copy_(mine)
            return self.nodes, sums
        count = len(sums)
        self._my_nodes.copy_(mine)
        self._my_sums[:count] = sums
        self._ranks.comm.Allgatherv(*self._request)
        torch.index_select(self._everything, 0, self._origin, out=self.nodes.view(-1))
        return self.nodes, self._everything.numpy()[self._sums[:, :count]].sum(axis=0)
