"""Elements, or stars, that are handled strip by strip for several problems at once.

A strip is some rows of them, few, so that what is made on the way stays in the cache: the values at their
places, the products of these, and the sums. In a strip members stand in the order of their kinds, those of
an operator side by side, and of each member what several problems have is one matrix, ``(P, n)``: sums read
the products of a member next to one another, which wider matrices, of all members at once, would part.

Shape letters: ``E`` members, ``P`` places of each, ``L`` places in all; ``K`` operators of a piece, ``m`` members
of it that have each, ``n`` problems.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.local_solvers.elements.kinds import Kinds, Piece
from mosaicdd.local_solvers.elements.products import rows_at

# Bytes of what members of a strip have at their places, and members of a product: few, for the cache.
_STRIP = {"cpu": 2**21, "cuda": 2**31}
_PIECE = {"cpu": 128, "cuda": 8192}
# Share of members whose operators a few have. These are done soonest side by side: then all are one strip.
_FEW = 0.05

Products = Callable[[Piece, torch.Tensor, torch.Tensor], object]
"""``products(piece, values, out)`` writes those of the piece's operators with values ``(K, m, P, n)``."""


class MemberStrip:
    """Some rows of members.

    Parameters
    ----------
    kinds
        Of all members.
    numbers
        Those of the strip.
    places
        Of all members, ``(E, P)``.

    Attributes
    ----------
    order
        The numbers of the members in the order of their kinds, without those that are idle.
    pieces
        What is handled at once: their members are counted in this order.
    places
        Of the members, as `along` has them.
    """

    def __init__(self, kinds: Kinds, numbers: slice, places: torch.Tensor):
        operator = kinds.operator[numbers]
        order = np.argsort(operator, kind="stable")
        order = order[~np.isin(operator[order], [*kinds.idle])]
        self.order = numbers.start + order
        self.pieces = _pieces(kinds, operator[order], _PIECE[places.device.type])
        self.places = self.along(places)

    def along(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return what members have, ``(E, c)``, in this order; flat."""
        return numbers[torch.from_numpy(self.order).to(numbers.device)].flatten()


class _PieceRoom(NamedTuple):
    """A piece, its places, and room for the values there, flat and as its members', and for its results."""

    piece: Piece
    places: torch.Tensor
    flat: torch.Tensor
    values: torch.Tensor
    results: torch.Tensor


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
        shape: tuple[int, ...],
        results: int,
        v: torch.Tensor,
    ):
        (rows, columns), each, problems = shape, places.shape[1], len(v)
        most = _STRIP[v.device.type] // (columns * max(each, results) * problems * v.itemsize)
        if kinds.few > _FEW * len(kinds):
            most = rows
        self._strips = [
            MemberStrip(kinds, slice(portion.start * columns, portion.stop * columns), places)
            for portion in even(rows, max(1, most))
        ]
        self._widths = each, results
        members = max(
            (_count(piece) for strip in self._strips for piece in strip.pieces), default=0
        )
        self._values = v.new_empty(members * each, problems)
        self._results = v.new_empty(
            max(len(strip.order) for strip in self._strips) * results, problems
        )
        self._steps = [
            [self._step(strip, piece) for piece in strip.pieces] for strip in self._strips
        ]

    def _step(self, strip: MemberStrip, piece: Piece) -> _PieceRoom:
        (each, results), here, problems = self._widths, piece.members, self._values.shape[1]
        flat = self._values[: _count(piece) * each]
        shape = len(piece), -1
        out = self._results[here.start * results : here.stop * results]
        return _PieceRoom(
            piece,
            strip.places[here.start * each : here.stop * each],
            flat,
            flat.view(*shape, each, problems),
            out.view(*shape, results, problems),
        )

    def serves(self, v: torch.Tensor, results: int) -> bool:
        """Say whether there is room for such vectors and results."""
        values = self._values
        return (values.shape[1], values.dtype, self._widths[1]) == (len(v), v.dtype, results)

    def __iter__(self) -> Iterator[MemberStrip]:
        return iter(self._strips)

    def products(self, v: torch.Tensor, products: Products) -> Iterator[torch.Tensor]:
        """Yield what is made of ``(L, n)`` in each strip, in its order, ``(results, n)`` of each member.

        It is room that the next is written to.
        """
        for strip, steps in zip(self._strips, self._steps, strict=True):
            for step in steps:
                rows_at(v, step.places, out=step.flat)
                products(step.piece, step.values, step.results)
            yield self._results[: len(strip.order) * self._widths[1]]


def _count(piece: Piece) -> int:
    return piece.members.stop - piece.members.start


def _pieces(kinds: Kinds, operator: np.ndarray, most: int) -> list[Piece]:
    """Cut members into pieces, by the operators that they have, ascending: of each as many."""
    numbers, first, counts = np.unique(operator, return_index=True, return_counts=True)
    many = numbers < len(kinds.shared)
    alike = np.stack([counts, many, numbers - np.arange(len(numbers))])
    ends = np.flatnonzero((alike[:, 1:] != alike[:, :-1]).any(0)) + 1
    pieces = []
    for run in np.split(np.arange(len(numbers)), ends) if len(numbers) else ():
        count = int(counts[run[0]])
        for part in even(len(run), max(1, most // count)):
            begin, number = int(first[run[part.start]]), int(numbers[run[part.start]])
            size = part.stop - part.start
            operators, shared = slice(number, number + size), bool(many[run[0]])
            for portion in even(size * count, most):
                members = slice(begin + portion.start, begin + portion.stop)
                pieces.append(Piece(members, operators, shared))
    return pieces
