"""Elements, or stars, that are handled piece by piece: what vectors have there, and sums of what they add.

Vectors ``(n, L)`` lie best node after node in memory, with the values of all problems side by side
(`by_node`): a place is then a row of numbers, and what operators read serves all problems.

Shape letters: ``K`` operators of a piece, ``m`` members that have each, ``P`` places of a member, ``n`` problems,
``L`` places in all.
"""

from collections.abc import Callable, Iterator

import torch

from mosaicdd.local_solvers.elements.kinds import Kinds, Piece
from mosaicdd.schwarz.condensed.common_members import CommonMembers
from mosaicdd.schwarz.sparse import sparse_rows

_PIECE = {"cpu": 128, "cuda": 8192}  # members of a product: few, for the cache
_SHARED = {"cpu": 512, "cuda": 2**20}  # the same, where many have an operator

Products = Callable[[Piece, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""``products(piece, values, out)`` of what its members have at their places, ``(K, m n, P)``; with room for them,
if any, that need not be used."""


class Parts:
    """Elements, or stars, in the order of their kinds, with their places in the interface.

    Parameters
    ----------
    places
        ``(E, P)``, in the order of their numbers.
    size
        ``L``.
    shape
        Rows and columns of their numbers.

    Attributes
    ----------
    common
        Those of the most common kind, if that has most of them.
    """

    def __init__(self, kinds: Kinds, places: torch.Tensor, size: int, shape: tuple[int, int]):
        self.kinds = kinds
        self.common = CommonMembers.of(kinds, places, shape)
        if not kinds.all_own:
            places = places[torch.from_numpy(kinds.order).to(places.device)]
        device = places.device.type
        self._pieces = [
            (piece, places[piece.members].unflatten(0, (len(piece), -1)))
            for piece in kinds.pieces(_SHARED[device], _PIECE[device])
        ]
        self._size = size
        self._sums: torch.Tensor | None = None
        self._room = torch.empty(0, 0, device=places.device)

    def __call__(self, problems: int) -> Iterator[tuple[Piece, torch.Tensor]]:
        """Yield what is handled at once, and where, ``(K, m, P)``.

        With several problems vectors are columns: the first places of all that have an operator, then the second.
        """
        for piece, at in self._pieces:
            yield piece, at if problems == 1 else at.mT.contiguous().mT

    def others(self) -> Iterator[tuple[Piece, torch.Tensor]]:
        """Yield what is not of the common kind, for one problem."""
        common = None if self.common is None else self.common.operator
        for piece, at in self._pieces:
            if not (piece.shared and piece.operators.start == common):
                yield piece, at

    def add(
        self,
        total: torch.Tensor,
        v: torch.Tensor,
        products: Products,
        shared: Callable[[int], torch.Tensor],
    ) -> torch.Tensor:
        """Write to ``(n, L)`` the sums of all products with ``(n, L)``, and return it.

        Parameters
        ----------
        shared
            Returns an operator that many share, ``(P, P)``.
        """
        n = len(total)
        if n == 1:
            self._room = self._room.new_empty(0, 0)
            total.zero_()
            if self.common is not None:
                self.common.add(total[0], v[0], shared(self.common.operator))
            for piece, at in self.others():
                every = products(piece, values_at(v, at), None)
                total.index_add_(1, at.flatten(), every.reshape(1, -1))
            return total
        # All products first, then their sums by a sparse matrix: a third of the time of `add_at`.
        sums = self._matrix(total.dtype)
        if self._room.shape != (sums.shape[1], n):
            self._room = total.new_empty(sums.shape[1], n)
        first = 0
        for piece, at in self(n):
            room = self._room[first : first + at.numel()].view(*at.mT.shape[:2], -1).mT
            found = products(piece, values_at(v, at), room)
            if found is not room:
                room.copy_(found)
            first += at.numel()
        torch.addmm(total.T, sums, self._room, beta=0.0, out=total.T)
        return total

    def _matrix(self, dtype: torch.dtype) -> torch.Tensor:
        """Return which products are added up where, ``(L, members P)``."""
        if self._sums is None:
            every = torch.cat([at.mT.flatten() for _, at in self(2)])
            starts = every.bincount(minlength=self._size).cumsum(0)
            starts = torch.nn.functional.pad(starts, (1, 0))
            ones = torch.ones(len(every), dtype=dtype, device=every.device)
            order = every.argsort(stable=True)
            self._sums = sparse_rows(starts, order, ones, len(every))
        return self._sums


def by_node(v: torch.Tensor) -> torch.Tensor:
    """Return vectors ``(n, L)`` with the values of all problems at a node side by side in memory."""
    return v.T.contiguous().T


def values_at(v: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the values of ``(n, L)`` at places ``(K, m, P)``, ``(K, m n, P)``; of several problems as columns."""
    if len(v) == 1:
        return v[0].index_select(0, places.flatten()).view(places.shape)
    columns = places.mT
    return v.T.index_select(0, columns.flatten()).view(*columns.shape[:2], -1).mT


def add_at(total: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> None:
    """Add values ``(K, m n, P)`` to ``(n, L)`` at places ``(K, m, P)``."""
    if len(total) == 1:
        total.index_add_(1, places.flatten(), values.reshape(1, -1))
    else:
        total.T.index_add_(0, places.mT.flatten(), values.mT.reshape(-1, len(total)))
