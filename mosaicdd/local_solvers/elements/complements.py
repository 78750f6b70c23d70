"""The Schur complements of elements; of symmetric ones the blocks between sides on and above the diagonal.

Elements of a kind that many are of share one, which is applied to all of them at once.

With ``s`` nodes on each of the four sides, a symmetric complement is::

    | R0  .  .  . |    R0 (s, 4 s), R1 (s, 3 s), R2 (s, 2 s), R3 (s, s): 10 of 16 blocks;
    |    R1  .  . |    what stands right of a diagonal block stands below it, too, transposed.
    |       R2  . |
    |          R3 |

Shape letters: ``E`` elements, ``P = 4 s`` perimeter nodes; ``K`` operators, ``m`` members that have each, ``n``
vectors of each of these.
"""

from functools import cached_property
from typing import Unpack

import numpy as np
import torch

from mosaicdd.local_solvers.elements.kinds import Kinds, Piece
from mosaicdd.local_solvers.elements.products import products
from mosaicdd.tensors import Tensors

# Vectors for which whole matrices, put together, cost less than rows of their halves.
_MANY = {"cpu": 16, "cuda": 8}


class Complements:
    """Schur complements ``(E, P, P)``.

    Parameters
    ----------
    kinds
        Of the elements.

    Attributes
    ----------
    device, dtype
        Of them.
    """

    def __init__(self, kinds: Kinds, spacing: int, *, symmetric: bool, **tensors: Unpack[Tensors]):
        self.symmetric, self.kinds, self.device = symmetric, kinds, tensors["device"]
        self.dtype, self._many = tensors["dtype"], _MANY[self.device.type]
        side, height = 4 * spacing, spacing if symmetric else 4 * spacing
        starts = range(0, side, height)
        places = np.empty((side, side), dtype=int)
        sizes = [height * (side - a) for a in starts]
        for a, first in zip(starts, np.cumsum([0, *sizes]), strict=False):
            b = a + height
            places[a:b, a:] = first + np.arange(height * (side - a)).reshape(height, -1)
            places[b:, a:b] = places[a:b, b:].T
        self._places = torch.from_numpy(places).to(tensors["device"])
        self._flat = torch.empty(kinds.operators, sum(sizes), **tensors)
        self._rows = [
            (a, part.unflatten(1, (height, -1)))
            for a, part in zip(starts, self._flat.split(sizes, dim=1), strict=True)
        ]
        self._operator = torch.from_numpy(kinds.operator).to(tensors["device"])
        self._few: dict[tuple[int, int], torch.Tensor] = {}  # by the operators of a piece

    def __len__(self) -> int:
        return len(self.kinds)

    def put(self, numbers: slice | np.ndarray, values: torch.Tensor) -> None:
        """Take some of the operators, ``(.., P, P)``: the complements of `Kinds.examples`."""
        for a, rows in self._rows:
            rows[numbers] = values[:, a : a + rows.shape[1], a:]

    @cached_property
    def _shared(self) -> torch.Tensor:
        """Those that several elements have, when all are there."""
        return self._whole([(a, rows[: len(self.kinds.shared)]) for a, rows in self._rows])

    def shared(self, number: int) -> torch.Tensor:
        """Return one of those that many elements have, ``(P, P)``."""
        return self._shared[number]

    def of(self, elements: slice | torch.Tensor) -> torch.Tensor:
        """Return copies of the complements of some elements, ``(.., P, P)``."""
        at = elements if self.kinds.all_own else self._operator[elements]
        return self._whole([(a, rows[at]) for a, rows in self._rows])

    def _whole(self, parts: list[tuple[int, torch.Tensor]]) -> torch.Tensor:
        count, _, side = parts[0][1].shape
        whole = parts[0][1].new_empty(count, side, side)
        for a, rows in parts:
            b = a + rows.shape[1]
            whole[:, a:b, a:] = rows
            whole[:, b:, a:b] = rows[..., b - a :].mT
        return whole

    def among(
        self, operators: torch.Tensor, nodes: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        """Return the entries of some operators between the nodes of several sets ``(.., m)``, ``(.., m, m)``."""
        at = self._places[nodes[..., None], nodes[..., None, :]]
        rows = self._flat.index_select(0, operators).to(dtype)
        return rows.index_select(1, at.flatten()).unflatten(1, at.shape)

    def diagonal(self) -> torch.Tensor:
        """Return the diagonals, ``(E, P)``."""
        return self._flat[:, self._places.diagonal()][self._operator]

    def __call__(self, piece: Piece, values: torch.Tensor) -> torch.Tensor:
        """Return the products of a piece's operators with those of one vector, ``(K, m, P)``."""
        if piece.shared:
            return products(values, self._shared[piece.operators].mT)
        rows = [(a, every[piece.operators]) for a, every in self._rows]
        if not self.symmetric:
            return products(values, rows[0][1].mT)
        if values.shape[1] >= self._many:
            return products(values, self._whole_piece(piece, rows))
        total = products(values[..., : rows[0][1].shape[1]], rows[0][1])
        for a, matrices in rows:
            b = a + matrices.shape[1]
            if a > 0:
                total[..., a:] += products(values[..., a:b], matrices)
            if b < total.shape[-1]:
                total[..., a:b] += products(values[..., b:], matrices[..., b - a :].mT)
        return total

    def columns(self, piece: Piece, values: torch.Tensor, out: torch.Tensor) -> None:
        """Write the products of a piece's operators with those of several vectors, ``(K, m, P, n)``."""
        if piece.shared:
            products(self._shared[piece.operators, None], values, out=out)
            return
        rows = [(a, every[piece.operators]) for a, every in self._rows]
        if not self.symmetric:
            products(rows[0][1][:, None], values, out=out)
        elif values.shape[1] * values.shape[3] >= self._many:
            products(self._whole_piece(piece, rows)[:, None], values, out=out)
        else:
            first = rows[0][1]
            products(first.mT[:, None], values[..., : first.shape[1], :], out=out)
            for a, matrices in rows:
                b = a + matrices.shape[1]
                if a > 0:
                    out[..., a:, :] += products(matrices.mT[:, None], values[..., a:b, :])
                if b < out.shape[2]:
                    right = matrices[:, None, :, b - a :]
                    out[..., a:b, :] += products(right, values[..., b:, :])

    def _whole_piece(self, piece: Piece, rows: list[tuple[int, torch.Tensor]]) -> torch.Tensor:
        """Return the operators of a piece as whole matrices, kept where these are few for its members."""
        if piece.members.stop - piece.members.start < self._many * len(piece):
            return self._whole(rows)
        key = piece.operators.start, piece.operators.stop
        if key not in self._few:
            self._few[key] = self._whole(rows)
        return self._few[key]
