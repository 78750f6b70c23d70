"""Squares of nodes of a grid: where equations near outlines and sides are evaluated, and how they are stored.

The equations near outlines and sides are wanted at few of a large grid's nodes. What evaluates equations handles
rectangles. So it gets a strip, ``(P, T P)``, of ``T`` squares of ``P`` nodes a side, and asks for the places of its nodes
in the grid. Where two squares meet nothing is right: each has `MARGIN` nodes all around that are cut off.
"""

import itertools
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from mosaicdd.axes import sizes
from mosaicdd.discretisation.periodic import firsts
from mosaicdd.problems.fields.fields import Part, Periods

MARGIN = 2
"""Nodes from a node to all that its equation depends on."""

SIDE = 16
"""Nodes along the side of a square, without its margin."""

_PITCH = SIDE + 2 * MARGIN


class NodeSquares:
    """Squares of nodes, side by side in a strip.

    Parameters
    ----------
    numbers
        Rows and columns of the squares in a pattern that covers a part of the grid, ``(T, 2)``.
    origin
        The node at the lower-left corner of that pattern.
    cells, periods
        Of the grid, per axis. Along a periodic axis there are cells everywhere.
    level
        Of a shape, in the squares with their margins, ``(T, P, P)``; None of a rectangle.
    """

    def __init__(
        self,
        numbers: np.ndarray,
        origin: tuple[int, ...],
        cells: tuple[int, ...],
        periods: Periods,
        level: np.ndarray | None = None,
    ):
        self._cells, self._periods, self._numbers = cells, periods, numbers
        self._origin = np.array(origin)
        self.shape = _PITCH, len(numbers) * _PITCH
        self._level = None if level is None else level.swapaxes(0, 1).reshape(self.shape)
        self._lowest = numbers.min(axis=0)
        self._index = np.full(numbers.max(axis=0) - self._lowest + 1, -1)
        self._index[tuple((numbers - self._lowest).T)] = np.arange(len(numbers))

    @property
    def level(self) -> np.ndarray:
        """The level of a shape at all places of the strip."""
        if self._level is None:
            raise ValueError("the squares are of a rectangle, without a level")
        return self._level

    def nodes(self, places: np.ndarray) -> np.ndarray:
        """Return the nodes of the grid at places of the strip, ``(T, 2)`` each."""
        number, column = np.divmod(places[:, 1], _PITCH)
        within = np.stack([places[:, 0], column], axis=1) - MARGIN
        return within + self._numbers[number] * SIDE + self._origin

    def cells(self, part: Part) -> np.ndarray:
        """Say which cells around places of a part of the strip are in the grid."""
        along = []
        at = np.arange(_PITCH) - MARGIN
        for first, cells, period in zip(
            (self._numbers * SIDE + self._origin).T, self._cells, self._periods, strict=True
        ):
            nodes = first[:, None] + at
            along.append(((nodes >= 0) & (nodes < cells)) | (period is not None))
        rows, columns = along
        strip = rows.T[:, :, None] & columns
        return strip.reshape(self.shape)[tuple(slice(p.start - 1, p.stop) for p in part)]

    def numbers_at(self, numbers: np.ndarray) -> np.ndarray:
        """Return whole numbers of the grid's nodes at all places of the strip; zero beyond the grid."""
        indices = np.indices(self.shape).reshape(2, -1).T
        nodes = self.nodes(indices)
        on_grid = ((nodes >= 0) & (nodes < numbers.shape)).all(axis=1)
        strip = np.zeros(len(nodes), int)
        strip[on_grid] = numbers[tuple(nodes[on_grid].T)]
        return strip.reshape(self.shape)

    def places(self, nodes: np.ndarray, part: Part) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return the indices of nodes ``(K, 2)`` in a part of the strip, and their places, some several times."""
        lowest = self._origin + self._lowest * SIDE - MARGIN
        extent = np.array(self._index.shape) * SIDE + 2 * MARGIN
        covered = [slice(low, low + n) for low, n in zip(lowest, extent, strict=True)]
        matches = [np.empty((3, 0), int)]
        for first in itertools.product(*map(firsts, covered, self._periods)):
            away = nodes + first - lowest
            close = np.flatnonzero(((away >= 0) & (away < extent)).all(axis=1))
            for step in itertools.product((-1, 0, 1), repeat=2):
                square = (away[close] - MARGIN) // SIDE + step
                y, x = (away[close] - square * SIDE).T
                number = np.full(len(close), -1)
                in_pattern = ((square >= 0) & (square < self._index.shape)).all(axis=1)
                number[in_pattern] = self._index[tuple(square[in_pattern].T)]
                x = x + number * _PITCH
                inside = (number >= 0) & (x // _PITCH == number) & (y >= 0) & (y < _PITCH)
                matches.append(np.stack([close, y, x])[:, inside])
        which, *at = np.concatenate(matches, axis=1)
        along = [(n >= p.start) & (n < p.stop) for n, p in zip(at, part, strict=True)]
        inside = np.logical_and(*along)
        return which[inside], tuple(n[inside] - p.start for n, p in zip(at, part, strict=True))

    def without_margins(self, values: np.ndarray) -> np.ndarray:
        """Return squares ``(T, SIDE, SIDE)`` of values at all places but the outermost, or on edges."""
        inner = slice(MARGIN - 1, MARGIN - 1 + SIDE)
        columns = np.arange(len(self._numbers))[:, None] * _PITCH + np.arange(SIDE)
        return values[inner, columns + MARGIN - 1].swapaxes(0, 1)

    def in_pattern(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of places ``(T, 2)`` outside of margins, and their nodes in the pattern, ``(.., 2)``."""
        within = np.stack([places[:, 0], places[:, 1] % _PITCH], axis=1)
        which = np.flatnonzero(((within >= MARGIN) & (within < MARGIN + SIDE)).all(axis=1))
        return which, self.nodes(places[which]) - self._origin


class ArrayInSquares(NDArrayOperatorsMixin):
    """An array ``(rows, columns)`` that stores values in some squares, and one number for each other.

    Slices without a step are views, as those of arrays; all else is an array, and so is what is computed with it.

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
        self.shape = sizes(self._part)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def T(self) -> "ArrayInSquares":  # noqa: N802 - as of arrays
        """The same with rows and columns exchanged."""
        part = self._part[::-1]
        return ArrayInSquares(self.kinds.T, self.plain, self.values.swapaxes(1, 2), part)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._rows(np.arange(self.shape[0])).astype(dtype or float, copy=False)

    def __array_ufunc__(self, of: np.ufunc, method: str, *inputs: Any, **how: Any) -> Any:
        arrays = (np.asarray(i) if isinstance(i, ArrayInSquares) else i for i in inputs)
        return getattr(of, method)(*arrays, **how)

    def copy(self) -> np.ndarray:
        """Return the whole array, dense."""
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
        """Say where values, of others in the same squares, too, are not the last of ``plain``.

        Squares without values do not count.
        """
        differs = np.zeros((self.kinds.shape[0], SIDE, self.kinds.shape[1], SIDE), bool)
        y, x = np.nonzero(self.kinds >= 0)
        unlike = [array.values != array.plain[-1] for array in (self, *others)]
        differs[y, :, x] = np.logical_or.reduce(unlike)[self.kinds[y, x]]
        return differs.reshape(self.kinds.shape[0] * SIDE, -1)[self._part]

    def places(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return numbers of nodes for `at`, of all arrays with the same squares."""
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
        """Return rows, or one of them, as an array."""
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
