"""A direct solve by sine transforms along all axes, of arrays that no rank could hold.

A transform along an axis needs it whole. So the array goes from blocks to rows, where all axes but the
first are whole, to columns, where all but the second are, and back: four redistributions around
scipy's transforms, and no other communication.
For coarse problems too large to be solved on every rank.
"""

from collections.abc import Callable, Sequence

import numpy as np
import scipy.fft

from mosaicdd.parallel.layouts.layout import Layout, LayoutStack
from mosaicdd.parallel.layouts.placements import Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks

Symbol = Callable[..., np.ndarray]
"""``symbol(rows, columns)``: eigenvalues of the modes in a part of the array, a slice per axis."""


class SineSolve:
    """Solve ``A u = f`` where the sine modes are eigenvectors of ``A``; planned once.

    Mode ``(k, l)`` is ``sin(pi (i + 1) (k + 1) / (ny + 1)) sin(pi (j + 1) (l + 1) / (nx + 1))`` of an
    array with two axes, ``(ny, nx)``; with more axes there are more factors.
    Besides its parts of ``f`` and ``u``, a rank holds rows and columns, and their eigenvalues, ``ny nx /
    ranks`` float64 values each.

    Parameters
    ----------
    source
        Layout of the right-hand side, an array with two axes at least.
    target
        Layout of the solution; it may have halos.
    symbol
        The eigenvalues of ``A``, asked for once for this rank's columns; none may be zero.
    problems
        Right-hand sides that are solved for together, ``(problems, ny, nx)``; by default one, ``(ny, nx)``.

    Raises
    ------
    ValueError
        If the layouts are not of the same array with two axes at least, or do not fit the ranks.
    """

    def __init__(
        self,
        source: Layout,
        target: Layout,
        symbol: Symbol,
        ranks: Ranks,
        problems: int | None = None,
    ):
        if len(source.shape) < 2:
            raise ValueError(f"the array must have two axes at least, its shape is {source.shape}")
        axes = len(source.shape)
        self._first, self._within = -axes, range(1 - axes, 0)
        rows, columns = (Layout(source.shape, (ranks.size,), (Shard(axis),)) for axis in (0, 1))
        self._symbol = np.ones(columns.local_shape(ranks.rank))
        for box in columns.held(ranks.rank):
            self._symbol[box.local] = symbol(*box.whole)
        if problems is not None:
            source, rows, columns, target = (
                LayoutStack(each, problems) for each in (source, rows, columns, target)
            )
        self._to_rows, self._to_columns, self._back_to_rows, self._to_target = (
            Redistribution(here, there, ranks, np.float64)
            for here, there in (
                *((source, rows), (rows, columns)),
                *((columns, rows), (rows, target)),
            )
        )
        self._rows = np.empty(rows.local_shape(ranks.rank))
        self._columns = np.empty(columns.local_shape(ranks.rank))

    def __call__(self, array: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return this rank's part of the solution for its part of the right-hand side; called by all ranks."""
        self._to_rows(array, self._rows)
        _transform(self._rows, self._within)
        self._to_columns(self._rows, self._columns)
        _transform(self._columns, [self._first])
        self._columns /= self._symbol
        _transform(self._columns, [self._first])
        self._back_to_rows(self._columns, self._rows)
        _transform(self._rows, self._within)
        return self._to_target(self._rows, out)


def _transform(array: np.ndarray, axes: Sequence[int]) -> None:
    """Apply the orthonormal DST-I, its own inverse, along some axes in place."""
    for axis in axes:
        if array.size:  # with more ranks than rows or columns, some have none
            modes = scipy.fft.dst(array, type=1, axis=axis, norm="ortho", overwrite_x=True)
            if not np.may_share_memory(modes, array):
                array[...] = modes
