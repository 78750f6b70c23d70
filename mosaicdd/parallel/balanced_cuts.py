"""Where a process grid is cut so that its ranks have equal loads: arithmetic without MPI.

The cuts go through the whole domain, so that blocks stay rectangles with one neighbour a side. With the
rows cut, the best columns are found exactly, and the other way round, until neither helps (Nicol,
Rectilinear partitioning of irregular data parallel computations, 1994). An L on two by two ranks, even
and balanced; ``.`` has no load:

```
   # # | . .      # # . | .
   # # | . .      # # . | .
   ----+----      # # . | .
   # # | # #      ------+--
   # # | # #      # # # | #
```
"""

import itertools
from dataclasses import dataclass

import numpy as np

from mosaicdd.parallel.partition import Dims, fitting_dims, require_fitting

_NEARLY = 1.1
"""Dims whose largest load is so many times the least are as good: those with the shortest edges win."""


@dataclass(frozen=True)
class Cuts:
    """The first item of each rank along an axis, and the number of items at the end; of both axes."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def dims(self) -> Dims:
        """Ranks per axis."""
        return len(self.rows) - 1, len(self.columns) - 1

    @property
    def counts(self) -> Dims:
        """Items per axis."""
        return self.rows[-1], self.columns[-1]

    def largest(self, loads: np.ndarray) -> int:
        """Return the largest load of a rank."""
        by_rows = np.add.reduceat(loads, self.rows[:-1], axis=0)
        return int(np.add.reduceat(by_rows, self.columns[:-1], axis=1).max())


def balanced_cuts(loads: np.ndarray, size: int, dims: Dims | None = None) -> Cuts:
    """Return cuts that leave every rank an item at least, and the largest load as small as they can.

    Parameters
    ----------
    loads
        Of each item, whole numbers that are not negative, ``(rows, columns)``.
    size
        Number of ranks.
    dims
        Ranks per axis, if they are given.

    Raises
    ------
    ValueError
        If no dims fit, or not the given ones.
    """
    rows, columns = loads.shape
    if dims is not None:
        require_fitting(dims, (rows, columns))
    tried = [dims] if dims is not None else fitting_dims(size, (rows, columns))
    found = [_cuts(loads, one) for one in tried]
    largest = [cuts.largest(loads) for cuts in found]
    return next(
        cuts for cuts, load in zip(found, largest, strict=True) if load <= _NEARLY * min(largest)
    )


def _cuts(loads: np.ndarray, dims: Dims) -> Cuts:
    """Return the cuts for some dims: rows and columns in turn, as long as they get better."""
    best: Cuts | None = None
    rows = _along(loads.sum(axis=1, keepdims=True), dims[0])
    while True:
        columns = _along(np.add.reduceat(loads, rows[:-1], axis=0).T, dims[1])
        rows = _along(np.add.reduceat(loads, columns[:-1], axis=1), dims[0])
        cuts = Cuts(tuple(rows), tuple(columns))
        if best is not None and cuts.largest(loads) >= best.largest(loads):
            return best
        best = cuts


def _along(loads: np.ndarray, ranks: int) -> list[int]:
    """Cut an axis so that the largest load is least.

    Parameters
    ----------
    loads
        Of each item of the axis within each strip that the other axis is cut into, ``(items, strips)``.
    """
    until = np.concatenate([np.zeros_like(loads[:1]), loads.cumsum(axis=0)])
    low, high = 0, int(until[-1].max())
    while low < high:
        most = (low + high) // 2
        if _filled(until, ranks, most)[1]:
            high = most
        else:
            low = most + 1
    return _filled(until, ranks, high)[0]


def _filled(until: np.ndarray, ranks: int, most: int) -> tuple[list[int], bool]:
    """Give each rank as many items as it may carry; say whether none is left over."""
    items, cuts = len(until) - 1, [0]
    for rank in range(ranks):
        start = cuts[-1]
        ends = [int(np.searchsorted(u, u[start] + most, "right")) - 1 for u in until.T]
        left = ranks - 1 - rank  # each of these wants an item
        cuts.append(min(max(min(ends), start + 1), items - left))
    fits = all((until[b] - until[a]).max() <= most for a, b in itertools.pairwise(cuts))
    done = cuts[-1] == items and fits
    cuts[-1] = items
    return cuts, done
