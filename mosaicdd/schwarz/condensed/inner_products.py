"""Inner products of vectors over the nodes of all ranks, each node once."""

from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.lattice.interface import Interface
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.condensed.vectors import Vectors

_PART = {"cpu": 2**16, "cuda": 2**30}  # numbers of vectors that are handled at once, for the cache

Pair = tuple[torch.Tensor, torch.Tensor]
"""Vectors ``(n, L)``, of which one is zero where no unknown is: on edges, and at copies of lattice nodes."""


class InnerProducts:
    """Adds up products, by parts of the vectors and over the ranks.

    Parameters
    ----------
    inside
        ``(L,)``, see `region_interior`.

    Attributes
    ----------
    parts
        Of the nodes.
    """

    def __init__(self, ranks: Ranks, vectors: Vectors, inside: torch.Tensor):
        self._ranks = ranks
        self._owned = Interface(vectors.block, **vectors.tensors).ownership().flat
        self.parts = even(vectors.size, max(1, _PART[inside.device.type] // vectors.problems))
        # The nodes of each part that other ranks own.
        others = (self._owned == 0) & (inside > 0)
        self._others = [part.start + others[part].nonzero()[:, 0] for part in self.parts]

    def __call__(self, *pairs: Pair) -> np.ndarray:
        """Add up products over the nodes of all ranks, ``(len(pairs), n)``."""
        total, _ = self.over_ranks(self.here(*pairs))
        return total

    def here(self, *pairs: Pair) -> torch.Tensor:
        """Return products over all owned nodes, ``(len(pairs), n)``."""
        return torch.stack([self.of_part(k, *pairs) for k in range(len(self.parts))]).sum(0)

    def of_part(self, number: int, *pairs: Pair) -> torch.Tensor:
        """Return products over the owned nodes of a part, ``(len(pairs), n)``."""
        part, others = self.parts[number], self._others[number]
        every = torch.stack([_inner(a[:, part], b[:, part]) for a, b in pairs])
        if len(others):
            every -= torch.stack([_inner(a[:, others], b[:, others]) for a, b in pairs])
        return every

    def squares(self, x: torch.Tensor) -> torch.Tensor:
        """Return the squares of any vector over the owned nodes, ``(1, n)``."""
        total = x.new_zeros(1, len(x))
        for part in self.parts:
            total += _inner(x[:, part] * self._owned[part], x[:, part])
        return total

    def over_ranks(
        self, products: torch.Tensor, also: Sequence[float] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add up what ranks have here ``(.., n)``, and numbers by the way; one collective."""
        mine = products.flatten().double().cpu().numpy()
        total = self._ranks.sum(np.concatenate([mine, also]))
        return total[: len(mine)].reshape(products.shape), total[len(mine) :]


def _inner(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the products of the rows of ``(n, L)``, ``(n,)``."""
    if len(a) == 1:
        return torch.dot(a[0], b[0])[None]
    return (a * b).sum(1)
