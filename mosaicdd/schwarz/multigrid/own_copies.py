"""Copies all round on a rank that has all nodes along the periodic axes, which are of its own ones."""

from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.block import frame
from mosaicdd.schwarz.multigrid.parities import Parities


class OwnCopies:
    """Refreshes them in a vector; planned once.

    Parameters
    ----------
    nodes
        With the copies, which may come round several times.
    owned
        The first and the last node of each axis that is none.
    rounds
        After how many nodes each axis comes round; None where it does not.
    """

    def __init__(
        self,
        nodes: Parities,
        owned: Sequence[tuple[int, int]],
        rounds: Sequence[int | None],
    ):
        outer, inner = (
            tuple(slice(first, last + 1) for first, last in box) for box in (nodes.box, owned)
        )
        there, here = [], []
        for part in frame(outer, inner):
            grid = np.meshgrid(*(np.arange(p.start, p.stop) for p in part), indexing="ij")
            copies = [node.ravel() for node in grid]
            first = [
                n if period is None else n % period
                for n, period in zip(copies, rounds, strict=True)
            ]
            there.append(nodes.places(copies))
            here.append(nodes.places(first))
        self._there, self._here = torch.cat(there), torch.cat(here)

    def clear(self, vector: torch.Tensor) -> None:
        """Let the copies be zero."""
        vector.view(-1).index_fill_(0, self._there, 0)

    def refresh(self, vector: torch.Tensor) -> None:
        """Let them be the values of their nodes."""
        flat = vector.view(-1)
        flat.index_copy_(0, self._there, flat.index_select(0, self._here))
