"""Direct solves by sine and other transforms along all axes, of distributed arrays.

A transform along an axis needs it whole. So the array goes from blocks to rows, where all axes but the
first are whole, to columns, where all but the second are, and back: four redistributions around
scipy's transforms, and no other communication. One rank holds all: there are no columns then.
For coarse problems too large to be solved on every rank, and for constant coefficients on all nodes.

The waves along an axis of a grid that are eigenvectors of second differences, and transforms to and from them.

Which waves these are, the ends of the axis say: where values are given, waves are zero at the nodes of the ends, which
are no unknowns; where fluxes are given, waves are symmetric about them, and the volumes there are halves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.fft
import scipy.fftpack
from numpy.typing import DTypeLike

from mosaicdd.parallel.layouts.layout import Layout, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution
from mosaicdd.parallel.ranks import Ranks

_NATURAL, _QUARTER = 1, 3  # types of discrete transforms: symmetric about both ends, zero at one


@dataclass(frozen=True)
class SineTransform:
    """Sine, cosine or Fourier transform of ``count`` unknowns along an axis.

    ``given``: whether values are given at the low and the high end; None between periodic sides.
    """

    count: int
    given: tuple[bool, bool] | None = (True, True)

    @property
    def eigenvalues(self) -> np.ndarray:
        """Eigenvalues of ``-u[i - 1] + 2 u[i] - u[i + 1]``, in the order of the transform, ``(count,)``."""
        k, n = np.arange(self.count), self.count
        if self.given is None:
            turns = (k + 1) // 2 * 2 / n  # sines and cosines in turns
        elif all(self.given):
            turns = (k + 1) / (n + 1)
        elif any(self.given):
            turns = (k + 0.5) / n
        else:
            turns = k / (n - 1)
        return 4 * np.sin(np.pi / 2 * turns) ** 2

    def heights(self, values: np.ndarray, axis: int) -> np.ndarray:
        """Return the waves' heights of values along an axis, maybe in their place; of a residual per volume."""
        if self.given is None:
            return scipy.fftpack.rfft(values, axis=axis, overwrite_x=True)
        if all(self.given):
            return scipy.fft.dst(values, type=1, axis=axis, norm="ortho", overwrite_x=True)
        if self.given[0]:
            return scipy.fft.dst(values, type=_QUARTER, axis=axis, overwrite_x=True)
        kind = _QUARTER if self.given[1] else _NATURAL
        return scipy.fft.dct(values, type=kind, axis=axis, overwrite_x=True)

    def values(self, heights: np.ndarray, axis: int) -> np.ndarray:
        """Return the values of waves of such heights, maybe in their place."""
        if self.given is None:
            return scipy.fftpack.irfft(heights, axis=axis, overwrite_x=True)
        if all(self.given):
            return self.heights(heights, axis)
        if self.given[0]:
            return scipy.fft.idst(heights, type=_QUARTER, axis=axis, overwrite_x=True)
        kind = _QUARTER if self.given[1] else _NATURAL
        return scipy.fft.idct(heights, type=kind, axis=axis, overwrite_x=True)


Symbol = Callable[..., np.ndarray]
"""``symbol(rows, columns)``: eigenvalues of the modes in a part of the array, a slice per axis."""

Eliminate = Callable[[np.ndarray, Sequence[slice]], Callable[[], None]]
"""``eliminate(array, part)`` returns what solves in the array of a part, whole along the first axis, in its place."""


class SineSolve:
    """Solves ``A u = f`` where products of waves along the axes are eigenvectors of ``A``; planned once for any eigenvalues.

    Of sines mode ``(k, l)`` is ``sin(pi (i + 1) (k + 1) / (ny + 1)) sin(pi (j + 1) (l + 1) / (nx + 1))`` of an
    array with two axes, ``(ny, nx)``; with more axes there are more factors.
    Besides its parts of ``f`` and ``u``, a rank holds rows and columns, ``ny nx / ranks`` values each.

    `ValueError` if the layouts are not of the same array with two axes at least, or do not fit the ranks.

    Parameters
    ----------
    source
        Layout of the right-hand side, an array with two axes at least.
    target
        Layout of the solution; it may have halos.
    waves
        Along each axis; by default sines.
    problems
        Right-hand sides that are solved for together, ``(problems, ny, nx)``; by default one, ``(ny, nx)``.
    dtype
        Of all arrays.
    """

    def __init__(
        self,
        source: Layout,
        target: Layout,
        ranks: Ranks,
        waves: Sequence[SineTransform] | None = None,
        problems: int | None = None,
        dtype: DTypeLike = np.float64,
    ):
        if len(source.shape) < 2:
            raise ValueError(f"the array must have two axes at least, its shape is {source.shape}")
        axes = len(source.shape)
        every = [SineTransform(count) for count in source.shape] if waves is None else waves
        along = [(axis - axes, each) for axis, each in enumerate(every)]
        self._first, self._within = along[:1], along[1:]
        rows, columns = (Layout(source.shape, (ranks.size,), (Shard(axis),)) for axis in (0, 1))
        self._held, self._shape = columns.held(ranks.rank), columns.local_shape(ranks.rank)
        if problems is not None:
            source, rows, columns, target = (
                each.stacked(problems) for each in (source, rows, columns, target)
            )
        self._whole = ranks.size == 1
        self._to_rows = Redistribution(source, rows, ranks, dtype)
        self._to_target = Redistribution(rows, target, ranks, dtype)
        self._rows = self._columns = np.empty(rows.local_shape(ranks.rank), dtype)
        if not self._whole:
            self._to_columns = Redistribution(rows, columns, ranks, dtype)
            self._back_to_rows = Redistribution(columns, rows, ranks, dtype)
            self._columns = np.empty(columns.local_shape(ranks.rank), dtype)

    def inverse(self, symbol: Symbol) -> np.ndarray:
        """Return one over the eigenvalues of ``A`` at this rank's columns; infinite ones leave nothing of their modes."""
        inverse = np.ones(self._shape, self._rows.dtype)
        for box in self._held:
            inverse[box.local] = 1 / symbol(*box.whole)
        return inverse

    def elimination(self, eliminate: Eliminate) -> Callable[[], None]:
        """Return the solve along the first axis, in the place of transforms there; of one right-hand side."""
        run: Callable[[], None] = lambda: None
        for box in self._held if self._columns.size else ():  # all of it
            run = eliminate(self._columns, box.whole)
        return run

    def __call__(
        self,
        array: np.ndarray,
        first: np.ndarray | Callable[[], None],
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return this rank's part of the solution for its part of the right-hand side; called by all ranks.

        ``first``: `inverse` or `elimination`, by which it solves along the first axis.
        """
        self._to_rows(array, self._rows)
        rows = _heights(self._rows, self._within)
        columns = rows if self._whole else self._to_columns(rows, self._columns)
        if isinstance(first, np.ndarray):
            columns = _heights(columns, self._first)
            columns *= first
            columns = _values(columns, self._first)
        else:
            if columns is not self._columns:  # where transforms have made another array
                self._columns[...] = columns
                columns = self._columns
            first()
        rows = columns if self._whole else self._back_to_rows(columns, self._rows)
        return self._to_target(_values(rows, self._within), out)


def _heights(array: np.ndarray, along: Sequence[tuple[int, SineTransform]]) -> np.ndarray:
    """Return the heights of the waves along some axes."""
    for axis, waves in along:
        if array.size:  # with more ranks than rows or columns, some have none
            array = waves.heights(array, axis)
    return array


def _values(array: np.ndarray, along: Sequence[tuple[int, SineTransform]]) -> np.ndarray:
    """Return the values of waves of such heights along some axes."""
    for axis, waves in along:
        if array.size:
            array = waves.values(array, axis)
    return array
