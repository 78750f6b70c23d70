"""Four squares of an element merged to one, whose inner nodes are eliminated (see `elimination`).

Squares are numbered so that the four that are merged follow each other. Then the matrices of a level
are those of the level before at other places, and assembling them is one gather.

Shape letters: ``B`` merged squares, ``p`` perimeter nodes of a square, ``i`` nodes between them.
"""

from functools import lru_cache

import numpy as np
import torch

from mosaicdd.lattice.perimeter import square_perimeter
from mosaicdd.local_solvers.elements.products import products


class MergedSquares:
    """Four squares of ``l`` cells a side become one.

    Parameters
    ----------
    schur
        Of the small squares, ``(4 B, ..)``, contiguous.
    side
        ``l``.
    crossed
        Whether there are conductances across cells: then corners are coupled to all others.
    """

    def __init__(self, schur: torch.Tensor, side: int, *, symmetric: bool, crossed: bool = False):
        self._plan = plan = merging(side, crossed)
        across, count = plan.perimeter, len(plan.nodes)
        self.inside = count - across
        small = plan.padded(schur.view(-1, 4 * (4 * side) ** 2))
        edge, inner = slice(0, across), slice(across, count)
        wide = plan.gather(small, inner, slice(0, count))  # [A_ib, A_ii], to be [A_ib, 1]
        unit = wide[..., across:]
        if symmetric:
            factor = torch.linalg.cholesky(unit)
            unit.copy_(torch.eye(self.inside).to(unit))
            self._right = _triangular(factor, wide)  # [W, L^-1]
            self._left = self._right  # [V^T, U^-T]
        else:
            exchanged, factor, upper = torch.linalg.lu(unit)
            unit.copy_(torch.eye(self.inside).to(unit))
            self._right = _triangular(factor, exchanged.mT @ wide)
            wide[..., :across] = plan.gather(small, edge, inner).mT
            self._left = _triangular(upper.mT, wide)

    @property
    def right(self) -> torch.Tensor:
        """``L^-1``, with the exchange of rows, ``(B, i, i)``."""
        return self._right[..., self._plan.perimeter :]

    @property
    def left(self) -> torch.Tensor:
        """The transpose of ``U^-1``, ``(B, i, i)``."""
        return self._left[..., self._plan.perimeter :]

    def complement(self, schur: torch.Tensor) -> torch.Tensor:
        """Return the Schur complements ``(B, p, p)`` of the merged squares.

        Parameters
        ----------
        schur
            Of the small squares, as before.
        """
        across, small = self._plan.perimeter, self._plan.maps.shape[1]
        v, w = (pair[..., :across] for pair in (self._left, self._right))
        total = w.new_empty(len(w), across, across)
        products(v.neg().mT, w, out=total)
        self._plan.add_outer(schur.view(-1, 4, small, small), total)
        return total


def _triangular(factor: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return ``L^-1 R``, of rows that follow each other in memory as LAPACK wants columns to."""
    return torch.linalg.solve_triangular(factor.mT, right.mT, upper=True, left=False).mT


class _Merging:
    """How four squares of a side make one.

    Attributes
    ----------
    perimeter
        Number of nodes on the merged perimeter.
    nodes
        (y, x) of these, then of those between the squares.
    maps
        ``(4, p)``: where among them each small square's perimeter lies.
    """

    def __init__(self, side: int, crossed: bool = False):
        self._crossed = crossed
        perimeter = square_perimeter(2 * side)
        inner = np.arange(1, 2 * side)
        middle = np.full_like(inner, side)
        across, up = np.stack([middle, inner], 1), np.stack([inner, middle], 1)
        self.perimeter = len(perimeter)
        self.nodes = np.concatenate([perimeter, across, np.delete(up, side - 1, axis=0)])
        number = {(int(y), int(x)): i for i, (y, x) in enumerate(self.nodes)}
        corners = ((0, 0), (0, side), (side, 0), (side, side))
        own = [square_perimeter(side) + np.array(corner) for corner in corners]
        self.maps = np.array([[number[int(y), int(x)] for y, x in nodes] for nodes in own])
        small = self.maps.shape[1]
        self._own = np.full((4, len(self.nodes)), -1)  # where a node is on a square's perimeter
        for square, places in enumerate(self.maps):
            self._own[square, places] = np.arange(small)
        # The nodes of the merged perimeter from the middle of a side to that of the next.
        ring = np.arange(self.perimeter)
        firsts = (7 * side, side, 5 * side, 3 * side)
        self._halves = [np.roll(ring, -first)[: 2 * side + 1] for first in firsts]
        self._blocks: dict[tuple, list] = {}

    def padded(self, small: torch.Tensor) -> torch.Tensor:
        """Append the zero that stands for what is not there, if none of the numbers is one."""
        return torch.nn.functional.pad(small, (0, 1)) if self._crossed else small

    def gather(self, small: torch.Tensor, rows: slice, columns: slice) -> torch.Tensor:
        """Assemble a block of the merged squares' matrices, ``(B, rows, columns)``.

        Parameters
        ----------
        small
            Four matrices in a row, ``(B, 4 p p)``.
        """
        key = rows.start, rows.stop, columns.start, columns.stop, small.device
        if key not in self._blocks:
            self._blocks[key] = self._places(rows, columns, small.device)
        (_, _, where), *others = self._blocks[key]
        total = _taken(small, where)
        for across, along, where in others:
            total[:, across, along] += _taken(small, where)
        return total

    def add_outer(self, small: torch.Tensor, total: torch.Tensor) -> None:
        """Add the block of the perimeter to ``(B, p, p)`` merged; few of its entries are not zero.

        Parameters
        ----------
        small
            Four matrices, ``(B, 4, ..)``.
        """
        for square, at in enumerate(self._halves):
            own = self._own[square, at]
            # Both perimeters go on beyond their ends from their begins.
            ends = np.flatnonzero((np.diff(at) != 1) | (np.diff(own) != 1)) + 1
            runs = [
                (slice(run[0], run[-1] + 1), slice(own_run[0], own_run[-1] + 1))
                for run, own_run in zip(np.split(at, ends), np.split(own, ends), strict=True)
            ]
            for rows, own_rows in runs:
                for columns, own_columns in runs:
                    total[:, rows, columns] += small[:, square, own_rows, own_columns]

    def _places(self, rows: slice, columns: slice, device: torch.device) -> list:
        """Return where the parts of a block's entries stand: of all entries, and of those with more.

        An entry has up to four parts. Opposite corners of a square are not coupled, so that number
        stands for what is not there.
        """
        small = self.maps.shape[1]
        down, right = self._own[:, rows, None], self._own[:, None, columns]
        where = small * (small * np.arange(4)[:, None, None] + down) + right
        there = (down >= 0) & (right >= 0)
        where = _first(where, there, 4 * small**2 if self._crossed else small // 2)
        blocks = [(slice(None), slice(None), where[0])]
        for count, part in enumerate(where[1:], start=2):
            more = there.sum(axis=0) >= count
            # Columns of the perimeter, few of which have more, apart from the others.
            edge = np.arange(len(self.nodes))[columns] < self.perimeter
            for those in (more & edge, more & ~edge):
                if those.any():
                    across, along = (_covering(those.any(axis=axis)) for axis in (1, 0))
                    blocks.append((across, along, part[across, along]))
        return [(*place, torch.from_numpy(part.copy()).to(device)) for *place, part in blocks]


merging = lru_cache(_Merging)


def picked(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return ``values[..., places]``, in half of its time."""
    return values.gather(-1, places.expand(*values.shape[:-1], -1))


def _taken(small: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Return numbers of each of some squares, ``(B, ..)``."""
    return picked(small, where.flatten()).unflatten(1, where.shape)


def _first(places: np.ndarray, there: np.ndarray, other: int) -> np.ndarray:
    """Move the places that are there to the front of the first axis; the rest is another place."""
    order = np.argsort(~there, axis=0, kind="stable")
    return np.take_along_axis(np.where(there, places, other), order, axis=0)


def _covering(chosen: np.ndarray) -> slice:
    """Return the smallest evenly spaced range that has all of what is chosen."""
    at = np.flatnonzero(chosen)
    return slice(at[0], at[-1] + 1, max(1, np.gcd.reduce(np.diff(at))))
