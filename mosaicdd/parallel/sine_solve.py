"""A direct solve by two-dimensional sine transforms, of arrays that no rank could hold.

One-dimensional transforms need whole rows or whole columns, so the array goes from blocks to rows,
to columns, and back: four redistributions around scipy's transforms, and no other communication.
For coarse problems too large to be solved on every rank.
"""

from collections.abc import Callable

import numpy as np
import scipy.fft

from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks

Symbol = Callable[[slice, slice], np.ndarray]
"""``symbol(rows, columns)``: eigenvalues of the modes in a part of the array, rows times columns."""


class SineSolve:
    """Solve ``A u = f`` where the sine modes are eigenvectors of ``A``; planned once.

    Mode ``(k, l)`` is ``sin(pi (i + 1) (k + 1) / (ny + 1)) sin(pi (j + 1) (l + 1) / (nx + 1))``.
    Besides its parts of ``f`` and ``u``, a rank holds rows, columns and their eigenvalues, ``ny nx /
    ranks`` float64 values each, and a message for each redistribution.

    Parameters
    ----------
    source
        Layout ``(ny, nx)`` of the right-hand side.
    target
        Layout of the solution; it may have halos.
    symbol
        The eigenvalues of ``A``, asked for once for this rank's columns; none may be zero.

    Raises
    ------
    ValueError
        If the layouts are not of the same array with two axes, or do not fit the ranks.
    """

    def __init__(self, source: Layout, target: Layout, symbol: Symbol, ranks: Ranks):
        if len(source.shape) != 2:
            raise ValueError(f"the array must have the axes (y, x), its shape is {source.shape}")
        rows, columns = (Layout(source.shape, (ranks.size,), (Shard(axis),)) for axis in (0, 1))
        self._to_rows, self._to_columns, self._back_to_rows, self._to_target = (
            Redistribution(here, there, ranks, np.float64)
            for here, there in (
                *((source, rows), (rows, columns)),
                *((columns, rows), (rows, target)),
            )
        )
        self._rows = np.empty(rows.local_shape(ranks.rank))
        self._columns = np.empty(columns.local_shape(ranks.rank))
        self._symbol = np.ones_like(self._columns)
        for box in columns.held(ranks.rank):
            self._symbol[box.local] = symbol(*box.whole)

    def __call__(self, array: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return this rank's part of the solution; called by all ranks.

        Parameters
        ----------
        array
            Its part of the right-hand side.
        out
            An array to fill with the solution.
        """
        self._to_rows(array, self._rows)
        _transform(self._rows, 1)
        self._to_columns(self._rows, self._columns)
        _transform(self._columns, 0)
        self._columns /= self._symbol
        _transform(self._columns, 0)
        self._back_to_rows(self._columns, self._rows)
        _transform(self._rows, 1)
        return self._to_target(self._rows, out)


def _transform(array: np.ndarray, axis: int) -> None:
    """Apply the orthonormal DST-I, its own inverse, along one axis in place."""
    if array.size:  # with more ranks than rows or columns, some have none
        found = scipy.fft.dst(array, type=1, axis=axis, norm="ortho", overwrite_x=True)
        if not np.may_share_memory(found, array):
            array[...] = found
