"""Subdomains of a coarse medium by themselves: graphs of 9 x 9 nodes, the inner ones eliminated.

Shape letters: ``B`` subdomains, ``P = 32`` nodes on the perimeter, ``I = 49`` inside, row by row.
"""

from functools import lru_cache

import numpy as np
import torch

from mosaicdd.lattice.subdomain import perimeter_nodes

CELLS = 8
"""Coarse cells a side."""
AROUND, INSIDE = 4 * CELLS, (CELLS - 1) ** 2


class SubdomainGraphs:
    """The discrete equation on subdomains, by the conductances between their nodes.

    Parameters
    ----------
    right, up, reaction
        Of each, ``(B, 9, 8)``, ``(B, 8, 9)`` and ``(B, 9, 9)``.

    Attributes
    ----------
    inverse
        ``X (B, I, I)``: values inside for sources there, with zeros around.
    reaction
        ``(B, I)``, inside.
    """

    def __init__(self, right: torch.Tensor, up: torch.Tensor, reaction: torch.Tensor):
        self.reaction = reaction[:, 1:-1, 1:-1].flatten(1)
        places, inner, around, self._beside = _tables()
        k = torch.cat([right.flatten(1), up.flatten(1)], dim=1)
        matrix = torch.diag_embed(reaction.flatten(1)).flatten(1)
        for at, sign in zip(places, (1, 1, -1, -1), strict=True):
            matrix.index_add_(1, at, k, alpha=sign)
        matrix = matrix.unflatten(1, ((CELLS + 1) ** 2, -1))
        factor = torch.linalg.cholesky(matrix[:, inner[:, None], inner])
        self.inverse = torch.cholesky_inverse(factor)
        self._ties = -matrix[:, inner[self._beside], around]  # (B, P)

    def operator(self) -> torch.Tensor:
        """Return ``X K (B, I, P)``: values inside for values around, of which corners do not count."""
        return self.inverse[:, :, self._beside] * self._ties[:, None]


def windows(values: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Cut out what belongs to each of the subdomains, which half overlap, ``(B, rows, columns)``."""
    half = CELLS // 2
    return values.unfold(0, rows, half).unfold(1, columns, half).flatten(0, 1)


@lru_cache
def _tables() -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return where conductances stand in the matrix of all nodes, which are inside, and which around.

    The last two are the perimeter's, and for each which of the inner nodes is beside it.
    """
    side = CELLS + 1
    nodes = torch.arange(side**2).view(side, side)
    pairs = (nodes[:, :-1], nodes[:, 1:]), (nodes[:-1], nodes[1:])
    i, j = torch.cat([torch.stack(pair).flatten(1) for pair in pairs], dim=1)
    places = [a * side**2 + b for a, b in ((i, i), (j, j), (i, j), (j, i))]
    perimeter = perimeter_nodes(CELLS)
    around = nodes[tuple(perimeter.T)]
    row, column = np.clip(perimeter, 1, CELLS - 1).T - 1
    return places, nodes[1:-1, 1:-1].flatten(), around, torch.from_numpy(row * (CELLS - 1) + column)
