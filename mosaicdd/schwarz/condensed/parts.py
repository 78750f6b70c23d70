"""Elements, or stars, that are handled piece by piece: what vectors have there, and sums of what they add.

Vectors ``(n, L)`` lie best node after node in memory, with the values of all problems side by side (see
`vectors`): a place is then a row of numbers, and what operators read serves all problems. So lie the values
of several problems at the places of members, ``(K, m, n, P)``; those of one are ``(K, m, P)``.

Shape letters: ``K`` operators of a piece, ``m`` members that have each, ``P`` places of a member, ``n`` problems,
``L`` places in all.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from mosaicdd.local_solvers.elements.kinds import Kinds, Piece
from mosaicdd.local_solvers.elements.products import on_one_core
from mosaicdd.schwarz.condensed.common_members import CommonMembers
from mosaicdd.schwarz.sparse import sparse_rows

# Members of a product, with one problem and with several: few, for the cache; and where many have an operator.
_PIECES = {"cpu": (512, 128), "cuda": (8192, 8192)}
_SHARED = {"cpu": 512, "cuda": 2**20}

Products = Callable[[Piece, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""``products(piece, values, out)`` of what its members have at their places, as `values_at` has it; with room for
them, if any, that need not be used."""


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
    step
        So many rows, and columns, are alike by turns.

    Attributes
    ----------
    common
        Those of the most common kinds, if these have most of them.
    kinds, size
        As given.
    """

    def __init__(
        self,
        kinds: Kinds,
        places: torch.Tensor,
        size: int,
        shape: tuple[int, int],
        step: int = 1,
    ):
        self.kinds = kinds
        self.common = CommonMembers.of(kinds, places, shape, step)
        device = places.device.type
        self._pieces = [kinds.pieces(_SHARED[device], own) for own in _PIECES[device]]
        self._places = places
        self._placed: dict[tuple[int, int], torch.Tensor] = {}  # of pieces that were asked for
        self.size = size
        self._sums: torch.Tensor | None = None
        self._room = torch.empty(0, 0, device=places.device)

    def __call__(self, problems: int) -> Iterator[tuple[Piece, torch.Tensor]]:
        """Yield what is handled at once of so many problems, and where, ``(K, m, P)``."""
        for piece in self._pieces[problems > 1]:
            yield piece, self._at(piece)

    def others(self) -> Iterator[tuple[Piece, torch.Tensor]]:
        """Yield what is not of the common kinds, for one problem."""
        common = {one.operator for one in self.common}
        for piece in self._pieces[0]:
            if not (piece.shared and piece.operators.start in common):
                yield piece, self._at(piece)

    def _at(self, piece: Piece) -> torch.Tensor:
        """Return the places of a piece, ``(K, m, P)``."""
        members = piece.members
        key = members.start, members.stop
        if key not in self._placed:
            which: slice | torch.Tensor = members
            if not self.kinds.all_own:
                which = torch.from_numpy(self.kinds.order[members]).to(self._places.device)
            self._placed[key] = self._places[which].unflatten(0, (len(piece), -1))
        return self._placed[key]

    def add(
        self,
        total: torch.Tensor,
        v: torch.Tensor,
        products: Products,
        shared: Callable[[int], Sequence[torch.Tensor]],
    ) -> torch.Tensor:
        """Write to ``(n, L)`` the sums of all products with ``(n, L)``, and return it.

        Parameters
        ----------
        shared
            Returns an operator that many share, as `CommonMembers.add` takes it.
        """
        n = len(total)
        if n == 1:
            self._room = self._room.new_empty(0, 0)
            total.zero_()
            for one in self.common:
                one.add(total[0], v[0], shared(one.operator))
            for piece, at in self.others():
                every = products(piece, values_at(v, at), None)
                add_at(total, at, every)
            return total
        # All products first, then their sums by a sparse matrix: a third of the time of `add_at`.
        sums = self._matrix(total.dtype)
        if self._room.shape != (sums.shape[1], n):
            self._room = total.new_empty(sums.shape[1], n)
        first = 0
        for piece, at in self(n):
            room = self._room[first : first + at.numel()].view(*at.shape, n).mT
            found = products(piece, values_at(v, at), room)
            if found is not room:
                room.copy_(found)
            first += at.numel()
        torch.addmm(total.T, sums, self._room, beta=0.0, out=total.T)
        return total

    def _matrix(self, dtype: torch.dtype) -> torch.Tensor:
        """Return which products are added up where, ``(L, members P)``."""
        if self._sums is None:
            every = torch.cat([at.flatten() for _, at in self(2)])
            starts = every.bincount(minlength=self.size).cumsum(0)
            starts = torch.nn.functional.pad(starts, (1, 0))
            ones = torch.ones(len(every), dtype=dtype, device=every.device)
            order = every.argsort(stable=True)
            self._sums = sparse_rows(starts, order, ones, len(every))
        return self._sums


def values_at(v: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the values of ``(n, L)`` at places ``(K, m, P)``, ``(K, m, n, P)``; of one problem ``(K, m, P)``."""
    values = taken(v, places.flatten())
    return values.view(places.shape) if len(v) == 1 else values.T.view(*places.shape, -1).mT


def taken(v: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the values of ``(n, L)`` at places ``(K,)``, ``(n, K)``; of several problems side by side."""
    rows = v[0] if len(v) == 1 else v.T
    if on_one_core(rows) and rows.is_contiguous():
        # Two thirds of torch's time, and a quarter of it for one problem. All places are there: no check.
        some = np.take(rows.numpy(), places.numpy(), axis=0, mode="clip")
        found = torch.from_numpy(some)
    else:
        found = rows.index_select(0, places)
    return found[None] if len(v) == 1 else found.T


def add_to(total: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> None:
    """Add values ``(n, K)`` to ``(n, L)`` at places ``(K,)``."""
    if len(total) == 1:
        total[0].index_add_(0, places, values[0])
    else:
        total.T.index_add_(0, places, values.T)


def add_at(total: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> None:
    """Add to ``(n, L)`` what `values_at` would return of it."""
    if len(total) == 1:
        add_to(total, places.flatten(), values.reshape(1, -1))
    else:
        add_to(total, places.flatten(), values.mT.reshape(-1, len(total)).T)
