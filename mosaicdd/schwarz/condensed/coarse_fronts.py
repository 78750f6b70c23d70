"""The fronts of a coarse matrix: which unknowns each has on its boundary, and where these stand in other fronts.

Unknowns come in fronts, one after another (see `Numbering`): those on a line that halves a rectangle, or all of
a small rectangle that is not halved any more. On the boundary of a front are the later unknowns that
its own are tied to when all before them are eliminated (Duff, Reid, 1983).

Shape letters: ``N`` unknowns; ``F`` fronts of a batch, ``o`` own unknowns of each and ``b`` on its boundary, both
filled up to the most.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from mosaicdd.lattice.axes import even

_COLUMNS = 2**13  # of the matrix that are looked at at once, for memory


@dataclass(frozen=True)
class FrontBatch:
    """Fronts of a level that are handled at once.

    Parameters
    ----------
    fronts
        Their numbers, ascending, ``(F,)``.
    own, boundary
        Their unknowns, ``(F, o)`` and ``(F, b)``; ``N`` where there are less.
    """

    fronts: np.ndarray
    own: np.ndarray
    boundary: np.ndarray


class Fronts:
    """All fronts, in batches that come after those of their children.

    Parameters
    ----------
    matrix
        With entries where those of the transposed matrix are.
    fronts
        Which front each unknown belongs to, ``(N,)``, ascending from 0.
    levels
        Of each front; what it is tied to later is of lower levels.
    most
        Fronts of a batch, and entries of their matrices; a front may have more.

    Attributes
    ----------
    batches
        In the order of their elimination.
    """

    def __init__(
        self,
        matrix: scipy.sparse.csc_array,
        fronts: np.ndarray,
        levels: np.ndarray,
        most: tuple[int, ...],
    ):
        self._size, self._of = len(fronts), fronts
        self._first = np.searchsorted(fronts, np.arange(len(levels) + 1))
        self._keys, self._parents = _boundaries(matrix, fronts, levels)
        self._starts = np.searchsorted(self._keys, np.arange(len(levels) + 1) * self._size)
        count, beside = np.diff(self._first), np.diff(self._starts)
        self.batches: list[FrontBatch] = []
        self._batch, self._slot = np.zeros((2, len(levels)), int)
        for level in np.unique(levels)[::-1]:
            those = np.flatnonzero(levels == level)
            those = those[np.lexsort((beside[those], count[those]))]
            entries = int(np.square(count[those] + beside[those]).sum())
            parts = max(-(-len(those) // most[0]), -(-entries // most[1]))
            for part in even(len(those), -(-len(those) // parts)):
                members = np.sort(those[part])
                self._batch[members] = len(self.batches)
                self._slot[members] = np.arange(len(members))
                own = _filled(self._first[members], count[members], self._size)
                at = _filled(self._starts[members], beside[members], len(self._keys))
                boundary = np.append(self._keys % self._size, self._size)[at]
                self.batches.append(FrontBatch(members, own, boundary))

    def entries(
        self, number: int, matrix: scipy.sparse.csc_array
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the entries of own columns in own rows and those of the boundary.

        Returns
        -------
        ndarray, ndarray, ndarray, ndarray
            Their fronts in the batch, rows and columns in the front, and values.
        """
        batch = self.batches[number]
        first, last = self._first[batch.fronts], self._first[batch.fronts + 1]
        begins, ends = matrix.indptr[first], matrix.indptr[last]
        slot = np.repeat(np.arange(len(first)), ends - begins)
        at = _ranges(begins, ends)
        rows = matrix.indices[at]
        columns = np.repeat(_ranges(first, last), np.diff(matrix.indptr)[_ranges(first, last)])
        later = rows >= first[slot]
        slot, at, rows, columns = (array[later] for array in (slot, at, rows, columns))
        places = self._places(batch.fronts[slot], rows, batch.own.shape[1])
        return slot, places, columns - first[slot], matrix.data[at]

    def above(self, number: int) -> list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """Say where the boundaries of a batch stand in fronts that come later.

        Returns
        -------
        list
            Of batches: their number; which of the fronts have their parents there, which of it these
            are, and their places in it ``(.., b)``, 0 where there is none.
        """
        batch, later = self.batches[number], []
        parents = self._parents[batch.fronts]
        there = batch.boundary < self._size
        for other in np.unique(self._batch[parents[parents >= 0]]).tolist():
            those = np.flatnonzero((parents >= 0) & (self._batch[parents] == other))
            parent, here = parents[those], there[those]
            places = np.zeros(here.shape, int)
            owners = np.broadcast_to(parent[:, None], here.shape)[here]
            rows = batch.boundary[those][here]
            places[here] = self._places(owners, rows, self.batches[other].own.shape[1])
            later.append((other, those, self._slot[parent], places))
        return later

    def _places(self, fronts: np.ndarray, rows: np.ndarray, own: int) -> np.ndarray:
        """Return the places of unknowns in fronts that have them."""
        inside = self._of[rows] == fronts
        places = rows - self._first[fronts]
        fronts, rows = fronts[~inside], rows[~inside]
        keys = fronts * self._size + rows
        places[~inside] = own + np.searchsorted(self._keys, keys) - self._starts[fronts]
        return places


def _boundaries(
    matrix: scipy.sparse.csc_array, fronts: np.ndarray, levels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the boundaries of all fronts, and the first front on each, -1 for none.

    A boundary is given by a number ``front N + unknown`` for each of its unknowns; all are ascending.
    """
    size = len(fronts)
    by_level: dict[int, list[np.ndarray]] = defaultdict(list)
    for part in even(size, _COLUMNS):
        columns = np.repeat(fronts[part], np.diff(matrix.indptr[part.start : part.stop + 1]))
        rows = matrix.indices[matrix.indptr[part.start] : matrix.indptr[part.stop]]
        beyond = fronts[rows] > columns
        _distribute(_different(columns[beyond] * size + rows[beyond]), levels, size, by_level)
    parents, every = np.full(len(levels), -1), [np.empty(0, int)]
    for level in range(int(levels.max(initial=0)), -1, -1):
        if level not in by_level:
            continue
        keys = _different(np.concatenate(by_level.pop(level)))
        every.append(keys)
        here, rows = np.divmod(keys, size)
        first = np.flatnonzero(np.diff(here, prepend=-1))
        parents[here[first]] = fronts[rows[first]]
        parent = parents[here]
        others = fronts[rows] != parent
        _distribute(parent[others] * size + rows[others], levels, size, by_level)
    return np.sort(np.concatenate(every)), parents


def _distribute(
    keys: np.ndarray, levels: np.ndarray, size: int, by_level: dict[int, list[np.ndarray]]
) -> None:
    """Enter parts of boundaries where their fronts' levels are."""
    of = levels[keys // size]
    for level in np.unique(of).tolist():
        by_level[level].append(keys[of == level])


def _different(numbers: np.ndarray) -> np.ndarray:
    """Return those that differ, ascending."""
    numbers = np.sort(numbers)
    return numbers[np.diff(numbers, prepend=-1) != 0]


def _filled(first: np.ndarray, counts: np.ndarray, missing: int) -> np.ndarray:
    """Return ranges of numbers as rows, filled up."""
    along = np.arange(counts.max(initial=0))
    return np.where(along < counts[:, None], first[:, None] + along, missing)


def _ranges(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return ranges of numbers, one after another."""
    counts = ends - begins
    before = np.cumsum(counts) - counts
    return np.arange(counts.sum()) + np.repeat(begins - before, counts)
