"""Elements, or stars, of the most common kinds: their values by slices of lines, with nothing looked up.

Members that stand in rows and columns have their places at even distances; of stars, every second of a row,
and of the rows. So the values of a whole row of them are a few views of a vector: of each run of nodes one
after another on a line. All members of some rows are multiplied with the operator of the common kind; the
products of those of other kinds are left out.

Shape letters: ``E`` members, ``P`` places of each, ``L`` places in all.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.local_solvers.elements.kinds import Kinds

_LEAST = 0.5  # share of the members that a common kind must have more than
_AT_ONCE = {"cpu": 2048, "cuda": 2**15}  # members of a product: few, for the cache

_Run = tuple[int, int, int, int, int]
"""The first of its places in the order of runs, and in a vector; steps to the next row and column; its length."""


class CommonMembers:
    """Those members of rows and columns that have a common operator.

    Parameters
    ----------
    operator
        Its number.
    places
        Of all members, row by row, ``(rows columns, P)``.
    numbers
        Of the members in these rows and columns, ``(rows, columns)``.

    Attributes
    ----------
    order
        ``(P,)``, the places of a member in the order of runs.
    """

    def __init__(self, kinds: Kinds, operator: int, places: torch.Tensor, numbers: np.ndarray):
        self.operator = operator
        rows, self._columns = numbers.shape
        corner = torch.from_numpy(np.stack([numbers[0, 0], numbers[0, 1], numbers[1, 0]]))
        # To read from a vector, and, without an overlap of neighbours, to write to one.
        order, self._runs, self._parts = _runs(*places[corner.to(places.device)].cpu().numpy())
        self.order = torch.from_numpy(order).to(places.device)
        there = kinds.operator[numbers] == operator
        position = np.empty_like(kinds.order)  # where in their order members stand
        position[kinds.order] = np.arange(len(kinds))
        self._strips = []
        most = max(1, _AT_ONCE[places.device.type] // self._columns)
        for strip in even(rows, most):
            here = there[strip].ravel()
            members, others = (
                torch.from_numpy(np.flatnonzero(those)).to(places.device) for those in (here, ~here)
            )
            if len(members):
                where = position[numbers[strip].ravel()[here]]
                first, last = int(where[0]), int(where[-1])
                one_by_one = last - first + 1 == len(where)
                part = slice(first, last + 1) if one_by_one else torch.from_numpy(where)
                self._strips.append((strip, part, members, others))
        size = min(most, rows) * self._columns, len(order)
        self._room = torch.empty(2, *size, dtype=torch.float64, device=places.device)

    @classmethod
    def of(
        cls, kinds: Kinds, places: torch.Tensor, shape: tuple[int, ...], step: int = 1
    ) -> "list[CommonMembers]":
        """Return those of kinds that have most of the members.

        Parameters
        ----------
        step
            So many rows, and columns, are alike by turns.
        """
        if min(shape) < 2 * step:
            return []
        numbers, common = np.arange(len(kinds)).reshape(shape), []
        for operator, part in enumerate(kinds.shared):
            if operator in kinds.idle or part.stop - part.start <= _LEAST / step * len(kinds):
                continue
            for first in np.ndindex(step, step):
                portion = numbers[first[0] :: step, first[1] :: step]
                if (kinds.operator[portion] == operator).any():
                    common.append(cls(kinds, operator, places, portion))
        return common

    def add(self, total: torch.Tensor, v: torch.Tensor, operator: Sequence[torch.Tensor]) -> None:
        """Add to ``(L,)`` the products of an operator with the values of another at each member's places.

        Parameters
        ----------
        operator
            Matrices by which rows of values are multiplied in turn: ``(P, P)``, or ``(P, ..)`` to ``(.., P)``.
        """
        matrices = list(operator)
        matrices[0] = matrices[0][self.order]
        matrices[-1] = matrices[-1][:, self.order].contiguous()
        for strip, _, _, others in self._strips:
            values = self._values(v, strip)
            products = self._rows_of(1, strip, v.dtype)
            for matrix in matrices[:-1]:
                values = values @ matrix
            torch.mm(values, matrices[-1], out=products)
            products.index_fill_(0, others, 0.0)
            split = products.view(-1, self._columns, len(self.order))
            for run in self._parts:
                first, length = run[0], run[-1]
                _view(total, run, strip, self._columns).add_(split[..., first : first + length])

    def products(
        self, v: torch.Tensor, matrix: torch.Tensor
    ) -> Iterator[tuple[slice | torch.Tensor, torch.Tensor]]:
        """Yield the products of a matrix ``(m, P)`` with the values of ``(L,)``, ``(.., m)``.

        And which members these are, in the order of their kinds.
        """
        matrix = matrix[:, self.order].mT.contiguous()
        for strip, where, members, others in self._strips:
            every = self._values(v, strip) @ matrix
            yield where, every.index_select(0, members) if len(others) else every

    def _values(self, v: torch.Tensor, strip: slice) -> torch.Tensor:
        """Return what a vector has at the places of all members of some rows, ``(E, P)``."""
        values = self._rows_of(0, strip, v.dtype)
        split = values.view(-1, self._columns, len(self.order))
        for run in self._runs:
            first, length = run[0], run[-1]
            split[..., first : first + length] = _view(v, run, strip, self._columns)
        return values

    def _rows_of(self, number: int, strip: slice, dtype: torch.dtype) -> torch.Tensor:
        """Return room for the values of all members of some rows, ``(E, P)``."""
        if self._room.dtype != dtype:
            self._room = self._room.to(dtype)
        return self._room[number, : (strip.stop - strip.start) * self._columns]


def _runs(
    first: np.ndarray, beside: np.ndarray, above: np.ndarray
) -> tuple[np.ndarray, list[_Run], list[_Run]]:
    """Return an order of places, in which those of a run follow each other, the runs, and parts of them.

    Parts of neighbours do not overlap. Places are those of a member, of the next in its row, and of that above.
    """
    right, up = beside - first, above - first
    order = np.lexsort((first, right, up))
    first, right, up = (array[order] for array in (first, right, up))
    begins = np.flatnonzero(
        (np.diff(first, prepend=-2) != 1)
        | (np.diff(right, prepend=0) != 0)
        | (np.diff(up, prepend=0) != 0)
    )
    runs, parts = [], []
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(order)], strict=True):
        at, rise, step = (int(array[begin]) for array in (first, up, right))
        runs.append((begin, at, rise, step, end - begin))
        most = min(rise, step)
        for low in range(begin, end, most):
            parts.append((low, at + low - begin, rise, step, min(most, end - low)))
    return order, runs, parts


def _view(v: torch.Tensor, run: _Run, rows: slice, columns: int) -> torch.Tensor:
    """Return a view of a run of all members of some rows, ``(rows, columns, length)``."""
    _, first, up, right, length = run
    shape = rows.stop - rows.start, columns, length
    return v[first + rows.start * up :].as_strided(shape, (up, right, 1))
