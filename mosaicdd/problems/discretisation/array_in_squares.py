"""Arrays over a grid that are the same number in most squares of nodes, which they do not store."""

from typing import Any

import numpy as np

from mosaicdd.problems.fields.fields import Part

SIDE = 16
"""Nodes along the side of a square."""


class ArrayInSquares:
    """A part of such an array, ``(rows, columns)``.

    Slices without a step are views, as those of arrays; whatever else is asked for is an array.

    Parameters
    ----------
    kinds
        Of each square: the number of its values, or negative, where all are ``plain[kind]``.
    plain
        Numbers, the last of which stands in squares of kind -1.
    values
        Of the other squares, and last of squares of each plain number, ``(N, SIDE, SIDE)``: so all are
        ``values[kind]``.
    part
        Which nodes it is of all those in squares; by default all.
    """

    dtype = np.dtype(float)
    ndim = 2

    def __init__(
        self, kinds: np.ndarray, plain: np.ndarray, values: np.ndarray, part: Part | None = None
    ):
        self.kinds, self.plain, self.values = kinds, plain, values
        self._part = part or tuple(slice(0, count * SIDE) for count in kinds.shape)
        self.shape = tuple(p.stop - p.start for p in self._part)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def T(self) -> "ArrayInSquares":  # noqa: N802 - as of arrays
        """The same with rows and columns exchanged."""
        part = self._part[::-1]
        return ArrayInSquares(self.kinds.T, self.plain, self.values.swapaxes(1, 2), part)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._rows(np.arange(self.shape[0])).astype(dtype or float, copy=False)

    def copy(self) -> np.ndarray:
        """Return all as an array."""
        return np.asarray(self)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, np.ndarray) and key.ndim == 2:
            return np.asarray(self)[key]
        first, second = key if isinstance(key, tuple) else (key, slice(None))
        if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
            return self.at(self.places(first, second))
        if not _plain_slice(second):
            return self.T[second, first].T
        if _plain_slice(first):
            part = tuple(
                _within(slice(*key.indices(count)), p)
                for key, count, p in zip((first, second), self.shape, self._part, strict=True)
            )
            return ArrayInSquares(self.kinds, self.plain, self.values, part)
        return self._rows(np.arange(self.shape[0])[first])[..., second]

    def differs(self, *others: "ArrayInSquares") -> np.ndarray:
        """Say where its values, or those of others in the same squares, are not the last of ``plain``.

        But for squares without values of their own.
        """
        differs = np.zeros((self.kinds.shape[0], SIDE, self.kinds.shape[1], SIDE), bool)
        y, x = np.nonzero(self.kinds >= 0)
        each = [array.values != array.plain[-1] for array in (self, *others)]
        differs[y, :, x] = np.logical_or.reduce(each)[self.kinds[y, x]]
        return differs.reshape(self.kinds.shape[0] * SIDE, -1)[self._part]

    def places(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return numbers of nodes of the part, by which `at` finds their values in all arrays that are like it."""
        (rows, within), (columns, beyond) = (
            np.divmod(numbers + p.start, SIDE)
            for numbers, p in zip((y, x), self._part, strict=True)
        )
        first = self.kinds % len(self.values) * SIDE**2
        places = np.asarray(first.take(rows * first.shape[1] + columns))
        places += within * SIDE
        places += beyond
        return places

    def at(self, places: np.ndarray) -> np.ndarray:
        """Return the values at nodes by their `places`."""
        return self.values.reshape(-1).take(places)

    def _rows(self, rows: np.ndarray) -> np.ndarray:
        """Return some rows, or one, as an array."""
        across = self._part[1]
        low, high = across.start // SIDE, -(-across.stop // SIDE)
        square, within = np.divmod(rows + self._part[0].start, SIDE)
        values = self.values[self.kinds[square, low:high], within[..., None]]
        values = values.reshape(*rows.shape, (high - low) * SIDE)
        return values[..., across.start - low * SIDE : across.stop - low * SIDE]


def _plain_slice(key: Any) -> bool:
    return isinstance(key, slice) and key.step in (None, 1)


def _within(key: slice, part: slice) -> slice:
    """Return a slice of a part in the whole."""
    return slice(part.start + key.start, part.start + max(key.start, key.stop))
