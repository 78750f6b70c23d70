"""Subdomains of a coarse medium by themselves: graphs of 9 x 9 nodes, the inner ones eliminated.

Shape letters: ``B`` subdomains, ``P = 32`` nodes on the perimeter, ``I = 49`` inside, row by row.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from mosaicdd.lattice.perimeter import square_perimeter

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
        tables = _tables()
        inner = torch.cat([right[:, 1:-1].flatten(1), up[:, :, 1:-1].flatten(1)], dim=1)
        matrix = inner.new_zeros(len(inner), INSIDE**2)
        matrix[:, :: INSIDE + 1] = self.reaction
        for places, chosen, sign in tables.entries:
            matrix.index_add_(1, places, inner[:, chosen], alpha=sign)
        factor = torch.linalg.cholesky(matrix.unflatten(1, (INSIDE, INSIDE)))
        self.inverse = torch.cholesky_inverse(factor)
        self._tables, self._ties = tables, inner[:, tables.ties]

    def operator(self) -> torch.Tensor:
        """Return ``X K (B, I, P)``: values inside for values around, of which corners do not count."""
        total = self.inverse.new_zeros(len(self.inverse), INSIDE, AROUND)
        beside = self.inverse[:, :, self._tables.beside]
        total[:, :, self._tables.around] = beside.mul_(self._ties[:, None])
        return total


def windows(values: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Cut out what belongs to each of the subdomains, which half overlap, ``(B, rows, columns)``."""
    half = CELLS // 2
    return values.unfold(0, rows, half).unfold(1, columns, half).flatten(0, 1)


@dataclass(frozen=True)
class _Tables:
    """Where the conductances of inner lines stand: those constant in y, row by row, then the others."""

    # Places in the matrix of inner nodes, which conductances are added there, and by what sign
    entries: list[tuple[torch.Tensor, torch.Tensor, int]]
    # around, beside, ties: perimeter nodes but corners, the inner node next to each, and the
    # conductance between them
    around: torch.Tensor
    beside: torch.Tensor
    ties: torch.Tensor


@lru_cache
def _tables() -> _Tables:
    side = CELLS + 1
    numbers = np.full((side, side), -1)
    numbers[1:-1, 1:-1] = np.arange(INSIDE).reshape(CELLS - 1, -1)
    lines = numbers[1:-1], numbers[:, 1:-1]
    low = np.concatenate([lines[0][:, :-1].ravel(), lines[1][:-1].ravel()])
    high = np.concatenate([lines[0][:, 1:].ravel(), lines[1][1:].ravel()])
    entries = []
    for i, j, sign in ((low, low, 1), (high, high, 1), (low, high, -1), (high, low, -1)):
        (chosen,) = np.nonzero((i >= 0) & (j >= 0))
        places = i[chosen] * INSIDE + j[chosen]
        entries.append((torch.from_numpy(places), torch.from_numpy(chosen), sign))
    around, beside, ties = [], [], []
    for number, (y, x) in enumerate(square_perimeter(CELLS)):
        row, column = np.clip((y, x), 1, CELLS - 1)
        if (row != y) == (column != x):
            continue  # a corner
        at = (y - 1) * CELLS + min(x, column) if row == y else min(y, row) * (CELLS - 1) + x - 1
        around.append(number)
        beside.append(int(numbers[row, column]))
        ties.append(int(at + (row != y) * CELLS * (CELLS - 1)))
    return _Tables(entries, *map(torch.tensor, (around, beside, ties)))
