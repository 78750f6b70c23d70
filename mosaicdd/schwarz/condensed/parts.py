"""Elements, or stars, that are handled piece by piece: what vectors have there, and sums of what they add.

Vectors ``(n, L)`` lie best node after node in memory, with the values of all problems side by side (see
`vectors`): a place is then a row of numbers, and what operators read serves all problems. Several are handled
in strips, see `strips`; of one, the values at the places of members are ``(K, m, P)``.

Shape letters: ``K`` operators of a piece, ``m`` members that have each, ``P`` places of a member, ``n`` problems,
``L`` places in all.
"""

from collections.abc import Callable, Iterator, Sequence

import torch

from mosaicdd.local_solvers.elements.kinds import Kinds, Piece
from mosaicdd.local_solvers.elements.products import rows_at
from mosaicdd.schwarz.condensed.common_members import CommonMembers
from mosaicdd.schwarz.condensed.strip_sums import StripSums
from mosaicdd.schwarz.condensed.strips import Products, Strips

# Members of a product with one problem: few, for the cache; and where many have an operator.
_PIECE = {"cpu": 512, "cuda": 8192}
_SHARED = {"cpu": 512, "cuda": 2**20}


class Parts:
    """Elements, or stars, with their places in the interface.

    Parameters
    ----------
    places
        ``(E, P)``, in the order of their numbers.
    lines
        Shapes of the interface's lines, per axis.
    shape
        Rows and columns of their numbers.
    step
        So many rows, and columns, are alike by turns.

    Attributes
    ----------
    common
        Those of the most common kinds, if these have most of them.
    kinds
        As given.
    size
        ``L``.
    """

    def __init__(
        self,
        kinds: Kinds,
        places: torch.Tensor,
        lines: Sequence[tuple[int, ...]],
        shape: tuple[int, ...],
        step: int = 1,
    ):
        self.kinds = kinds
        self.common = CommonMembers.of(kinds, places, shape, step)
        device = places.device.type
        self._pieces = kinds.pieces(_SHARED[device], _PIECE[device])
        self._places, self._lines, self._shape = places, lines, shape
        self._placed: dict[tuple[int, int], torch.Tensor] = {}  # of pieces that were asked for
        self.size = sum(count * nodes for count, nodes in lines)
        self._strips: Strips | None = None
        self._sums: StripSums | None = None

    def others(self) -> Iterator[tuple[Piece, torch.Tensor]]:
        """Yield what is not of the common kinds, and where, ``(K, m, P)``."""
        common = {members.operator for members in self.common}
        for piece in self._pieces:
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

    def strips(self, v: torch.Tensor, results: int) -> Strips:
        """Return them in strips for vectors such as ``(n, L)``, and so many results of each."""
        if self._strips is None or not self._strips.serves(v, results):
            self.give_back()
            self._strips = Strips(self.kinds, self._places, self._shape, results, v)
        return self._strips

    def give_back(self) -> None:
        """Give back the memory for several problems."""
        self._strips = self._sums = None

    def add(
        self,
        total: torch.Tensor,
        v: torch.Tensor,
        rows: Callable[[Piece, torch.Tensor], torch.Tensor],
        columns: Products,
        shared: Callable[[int], Sequence[torch.Tensor]],
    ) -> torch.Tensor:
        """Write to ``(n, L)`` the sums of all products with ``(n, L)``, and return it.

        Parameters
        ----------
        rows
            ``rows(piece, values)`` returns the products of its operators with those of one problem, ``(K, m, P)``.
        columns
            Writes those with the values of several.
        shared
            Returns an operator that many share, as `CommonMembers.add` takes it.
        """
        if len(total) > 1:
            strips = self.strips(v, self._places.shape[1])
            if self._sums is None:
                self._sums = StripSums([strip.places for strip in strips], self._lines, total.dtype)
            self._sums(total.T, strips.products(v.T, columns))
            return total
        self.give_back()
        total.zero_()
        for members in self.common:
            members.add(total[0], v[0], shared(members.operator))
        for piece, at in self.others():
            add_at(total, at, rows(piece, values_at(v, at)))
        return total


def values_at(v: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the values of ``(1, L)`` at places, in their shape."""
    return taken(v, places.flatten()).view(places.shape)


def taken(v: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the values of ``(n, L)`` at places ``(K,)``, ``(n, K)``; of several problems side by side."""
    rows = rows_at(v[0] if len(v) == 1 else v.T, places)
    return rows[None] if len(v) == 1 else rows.T


def add_to(total: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> None:
    """Add values ``(n, K)`` to ``(n, L)`` at places ``(K,)``."""
    if len(total) == 1:
        total[0].index_add_(0, places, values[0])
    else:
        total.T.index_add_(0, places, values.T)


def add_at(total: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> None:
    """Add to ``(1, L)`` values at places of their shape."""
    add_to(total, places.flatten(), values.reshape(1, -1))
