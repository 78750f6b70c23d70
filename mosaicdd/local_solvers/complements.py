"""The Schur complements of elements; of symmetric ones the blocks between sides on and above the diagonal.

With ``s`` nodes on each of the four sides, a symmetric complement is::

    | R0  .  .  . |    R0 (s, 4 s), R1 (s, 3 s), R2 (s, 2 s), R3 (s, s): 10 of 16 blocks;
    |    R1  .  . |    what stands right of a diagonal block stands below it, too, transposed.
    |       R2  . |
    |          R3 |

Shape letters: ``E`` elements, ``P = 4 s`` perimeter nodes, ``n`` problems.
"""

from typing import Unpack

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.tensors import Tensors

_MANY = 8  # vectors that are worth whole matrices


class Complements:
    """Schur complements ``(E, P, P)`` of a rectangle of elements.

    Parameters
    ----------
    shape
        Elements per axis; they are numbered row by row.
    symmetric
        Whether the complements are, to rounding.
    """

    def __init__(
        self, shape: tuple[int, int], spacing: int, *, symmetric: bool, **tensors: Unpack[Tensors]
    ):
        self.symmetric = symmetric
        side, height = 4 * spacing, spacing if symmetric else 4 * spacing
        starts = range(0, side, height)
        places = np.empty((side, side), dtype=int)
        sizes = [height * (side - a) for a in starts]
        for a, first in zip(starts, np.cumsum([0, *sizes]), strict=False):
            b = a + height
            places[a:b, a:] = first + np.arange(height * (side - a)).reshape(height, -1)
            places[b:, a:b] = places[a:b, b:].T
        self._places = torch.from_numpy(places).to(tensors["device"])
        flat = torch.empty(*shape, sum(sizes), **tensors)
        self._flat = flat
        parts = flat.flatten(0, 1).split(sizes, dim=1)
        self._rows = [
            (a, part.unflatten(1, (height, -1))) for a, part in zip(starts, parts, strict=True)
        ]

    def __len__(self) -> int:
        return self._flat.shape[:2].numel()

    def put(self, numbers: slice, values: torch.Tensor) -> None:
        """Take the complements of some elements, ``(.., P, P)``."""
        for a, rows in self._rows:
            rows[numbers] = values[:, a : a + rows.shape[1], a:]

    def of(self, numbers: slice) -> torch.Tensor:
        """Return copies of the complements of some elements, ``(.., P, P)``."""
        parts = [(a, rows[numbers]) for a, rows in self._rows]
        count, _, side = parts[0][1].shape
        whole = parts[0][1].new_empty(count, side, side)
        for a, rows in parts:
            b = a + rows.shape[1]
            whole[:, a:b, a:] = rows
            whole[:, b:, a:b] = rows[..., b - a :].mT
        return whole

    def among(self, place: Slices, nodes: torch.Tensor) -> torch.Tensor:
        """Return the entries between some nodes, of the elements of a rectangle, ``(.., nodes, nodes)``."""
        at = self._places[nodes[:, None], nodes]
        flat = self._flat[place].flatten(0, 1)
        return flat.gather(1, at.flatten().expand(len(flat), -1)).unflatten(1, at.shape)

    def diagonal(self) -> torch.Tensor:
        """Return the diagonals, ``(E, P)``."""
        return self._flat.flatten(0, 1)[:, self._places.diagonal()]

    def __call__(self, numbers: slice, values: torch.Tensor) -> torch.Tensor:
        """Return the products of some elements with vectors ``(.., n, P)``."""
        if not self.symmetric:
            return torch.bmm(values, self._rows[0][1][numbers].mT)
        if values.shape[1] >= _MANY:
            return torch.bmm(values, self.of(numbers))
        # Vectors are rows before matrices: behind them as columns they take several times as long.
        total = torch.bmm(values[..., : self._rows[0][1].shape[1]], self._rows[0][1][numbers])
        for a, rows in self._rows:
            b, rows = a + rows.shape[1], rows[numbers]
            if a > 0:
                total[..., a:] += torch.bmm(values[..., a:b], rows)
            total[..., a:b] += torch.bmm(values[..., b:], rows[..., b - a :].mT)
        return total
