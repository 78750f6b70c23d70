"""``P^T S`` of the coarse basis: of the functions of all elements by elements, of modes of few edges sparse.

Shape letters: ``E`` elements, ``K`` operators, ``M`` modes of an edge, ``P`` nodes of a perimeter, ``n`` problems.
"""

import numpy as np
import torch

from mosaicdd.local_solvers.elements.kinds import Piece
from mosaicdd.local_solvers.elements.products import products
from mosaicdd.schwarz.condensed.coarse_elements import CoarseElements
from mosaicdd.schwarz.condensed.parts import Parts, add_at, values_at
from mosaicdd.schwarz.condensed.strips import Strips
from mosaicdd.schwarz.sparse import sparse_rows


class SweptBasis:
    """``P^T S`` of a region.

    Parameters
    ----------
    elements
        With the coarse basis.
    common
        ``P^T S`` of the hats and the first ``m`` modes of each edge, ``(K, 4 + 4 m, P)``.
    parts
        The same elements, in the order of their kinds.
    places
        Of all elements in the interface, ``(E, P)``.
    columns
        Where each element has its coarse values among those of the region, ``(E, 4 + 4 M)``.
    known
        Which of these are unknowns.
    size
        How many coarse values the region has.
    """

    def __init__(
        self,
        elements: CoarseElements,
        common: torch.Tensor,
        parts: Parts,
        places: torch.Tensor,
        columns: np.ndarray,
        known: np.ndarray,
        size: int,
    ):
        self._parts, self._common, self._size, device = parts, common, size, common.device
        kinds, first = parts.kinds, common.shape[1] // 4 - 1
        hats, modes = columns[:, :4], columns[:, 4:].reshape(len(columns), 4, -1)
        every = np.concatenate([hats, modes[..., :first].reshape(len(hats), -1)], axis=1)
        self._columns = torch.from_numpy(every[kinds.order]).to(device)
        self._strips: Strips | None = None
        self._targets: list[torch.Tensor] = []  # of each of these
        element, side, mode = np.nonzero(known[:, 4:].reshape(modes.shape)[..., first:])
        self._others: torch.Tensor | None = None
        if len(element):
            rows = modes[element, side, first + mode]
            order = np.argsort(rows, kind="stable")
            element, side, mode = element[order], side[order], first + mode[order]
            starts = np.append(0, np.cumsum(np.bincount(rows, minlength=size))) * places.shape[1]
            self._others = sparse_rows(
                torch.from_numpy(starts).to(device),
                places[torch.from_numpy(element).to(device)].flatten(),
                elements.rows(kinds.operator[element], side, mode).flatten(),
                parts.size,
            )

    def __call__(self, z: torch.Tensor) -> torch.Tensor:
        """Return ``P^T S z`` at all coarse values of the region, ``(n, size)``, right where they are unknowns.

        Parameters
        ----------
        z
            ``(n, L)``.
        """
        if self._others is None:
            total = z.new_zeros(self._size, len(z)).T
        else:
            total = (self._others @ z.T).T
        if len(z) > 1:
            self._add_several(total.T, z)
            return total
        self._parts.give_back()
        for common in self._parts.common:
            for members, sums in common.products(z[0], self._common[common.operator]):
                add_at(total, self._columns[members], sums)
        for piece, at in self._parts.others():
            sums = products(values_at(z, at), self._common[piece.operators].mT)
            add_at(total, self._columns[piece.members].view(sums.shape), sums)
        return total

    def _add_several(self, total: torch.Tensor, z: torch.Tensor) -> None:
        """Add to ``(size, n)`` what the functions of all elements by elements have."""
        strips = self._parts.strips(z, self._common.shape[1])
        if self._strips is not strips:  # they are new
            numbered = self._columns[
                torch.from_numpy(np.argsort(self._parts.kinds.order)).to(z.device)
            ]
            self._strips, self._targets = strips, [strip.along(numbered) for strip in strips]
        common = self._common

        def of_piece(piece: Piece, values: torch.Tensor, out: torch.Tensor) -> None:
            products(common[piece.operators, None], values, out=out)

        for at, sums in zip(self._targets, strips.products(z.T, of_piece), strict=True):
            total.index_add_(0, at, sums)
