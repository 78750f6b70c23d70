"""Elements, or stars, that are handled strip by strip for several problems at once.

A strip is some rows of them, few, so that what is made on the way stays in the cache: the values at their
places, the products of these, and the sums. In a strip members stand in the order of their kinds, those of
an operator side by side, so that what several problems have there is one matrix, ``(P, m n)``, for a product
with the operator.

Shape letters: ``E`` members, ``P`` places of each, ``L`` places in all; ``K`` operators of a piece, ``m`` members
of it that have each, ``n`` problems.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.local_solvers.elements.kinds import Kinds, Piece
from mosaicdd.local_solvers.elements.products import on_one_core

# Bytes of what members of a strip have at their places, and members of a product with an operator each.
_STRIP = {"cpu": 2**21, "cuda": 2**31}
_OWN = {"cpu": 128, "cuda": 8192}
_FEW = (
    0.05  # of members whose operators few have: these are soonest done in one strip, side by side
)

Products = Callable[[Piece, torch.Tensor, torch.Tensor], object]
"""``products(piece, values, out)`` writes those of the piece's operators with values ``(K, m, P, n)``."""


class Strip:
    """Some rows of members.

    Parameters
    ----------
    kinds
        Of all members.
    numbers
        Those of the strip.
    places
        Of all members, ``(E, P)``.
    own
        Members of a piece, at most, but of one operator that many have.

    Attributes
    ----------
    order
        The numbers of the members in the order of their kinds, without those that are idle.
    pieces
        What is handled at once: their members are counted in this order.
    places
        Of the members, as `along` has them.
    """

    def __init__(self, kinds: Kinds, numbers: slice, places: torch.Tensor, own: int):
        operator = kinds.operator[numbers]
        order = np.argsort(operator, kind="stable")
        order = order[~np.isin(operator[order], [*kinds.idle])]
        self.order, self.pieces = numbers.start + order, _pieces(kinds, operator[order], own)
        self.places = self.along(places)

    def along(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return what members have, ``(E, c)``, in this order; flat."""
        return numbers[torch.from_numpy(self.order).to(numbers.device)].flatten()

    def values(self, v: torch.Tensor, out: torch.Tensor) -> None:
        """Write what ``(L, n)`` has at the members' places, ``(m P, n)``."""
        if on_one_core(v):  # Two thirds of torch's time. All places are there: no check.
            np.take(v.numpy(), self.places.numpy(), axis=0, out=out.numpy(), mode="clip")
        else:
            torch.index_select(v, 0, self.places, out=out)


class Strips:
    """All members, for so many problems.

    Parameters
    ----------
    shape
        Rows and columns of members.
    results
        How many numbers are made of the values of a member.
    v
        A vector, ``(n, L)``, for what there is room.
    """

    def __init__(
        self,
        kinds: Kinds,
        places: torch.Tensor,
        shape: tuple[int, int],
        results: int,
        v: torch.Tensor,
    ):
        device, (rows, columns), each, problems = v.device, shape, places.shape[1], len(v)
        most = _STRIP[device.type] // (columns * max(each, results) * problems * v.itemsize)
        if kinds.few > _FEW * len(kinds):
            most = rows
        self._strips = [
            Strip(
                kinds, slice(some.start * columns, some.stop * columns), places, _OWN[device.type]
            )
            for some in even(rows, max(1, most))
        ]
        longest = max(len(one.order) for one in self._strips)
        self._widths = each, results
        self._values, self._results = (v.new_empty(longest * w, problems) for w in self._widths)
        self._views = [[self._views_of(piece) for piece in one.pieces] for one in self._strips]

    def _views_of(self, piece: Piece) -> list[torch.Tensor]:
        """Return where a piece has its values, and its results, ``(K, m, P, n)``."""
        here = piece.members
        return [
            room[here.start * width : here.stop * width].view(len(piece), -1, width, room.shape[1])
            for room, width in zip((self._values, self._results), self._widths, strict=True)
        ]

    def serves(self, v: torch.Tensor, results: int) -> bool:
        """Say whether there is room for such vectors and results."""
        values = self._values
        return (values.shape[1], values.dtype, self._widths[1]) == (len(v), v.dtype, results)

    def __iter__(self) -> Iterator[Strip]:
        return iter(self._strips)

    def products(self, v: torch.Tensor, products: Products) -> Iterator[torch.Tensor]:
        """Yield what is made of ``(L, n)`` in each strip, piece by piece, ``(K, results, m)`` of each: ``(.., n)``.

        It is room that the next is written to.
        """
        each, results = self._widths
        for strip, views in zip(self._strips, self._views, strict=True):
            count = len(strip.order)
            strip.values(v, self._values[: count * each])
            for piece, (values, out) in zip(strip.pieces, views, strict=True):
                products(piece, values, out)
            yield self._results[: count * results]


def _pieces(kinds: Kinds, operator: np.ndarray, own: int) -> list[Piece]:
    """Cut members into pieces, by the operators that they have, ascending: of each as many."""
    found, first, counts = np.unique(operator, return_index=True, return_counts=True)
    many = found < len(kinds.shared)
    alike = np.stack([counts, many, found - np.arange(len(found))])
    ends = np.flatnonzero((alike[:, 1:] != alike[:, :-1]).any(0)) + 1
    pieces = []
    for run in np.split(np.arange(len(found)), ends) if len(found) else ():
        count = int(counts[run[0]])
        for part in even(len(run), max(1, own // count)):
            begin, number = int(first[run[part.start]]), int(found[run[part.start]])
            size = part.stop - part.start
            members = slice(begin, begin + size * count)
            operators = slice(number, number + size)
            pieces.append(Piece(members, operators, shared=bool(many[run[0]])))
    return pieces
