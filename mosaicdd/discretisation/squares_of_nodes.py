"""Squares of nodes of a grid, side by side, as if they were a part of one.

The equations near outlines and sides are wanted at few of a large grid's nodes: in squares here and
there. What evaluates equations handles rectangles. So it is given a strip, ``(P, T P)``, of the squares of
``P`` nodes a side, and where it asks for what is at a place of the strip, it gets what is there in the grid.
Where two squares meet nothing is right: each has `MARGIN` nodes all around that are cut off.
"""

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from mosaicdd.problems.fields.fields import Part, Periods

MARGIN = 2


"""Nodes from a node to all that its equation depends on."""


class NodeSquares:
    """Squares of nodes.

    Parameters
    ----------
    numbers
        Rows and columns of the squares in a pattern that covers a part of the grid, ``(T, 2)``.
    origin
        The node at the lower-left corner of that pattern.
    size
        Nodes along the side of a square, without its margin.
    cells
        Of the grid, per axis.
    """

    def __init__(
        self, numbers: np.ndarray, origin: tuple[int, ...], size: int, cells: tuple[int, ...]
    ):
        self._cells = cells
        self._numbers, self.size, self.pitch = numbers, size, size + 2 * MARGIN
        self._origin = np.array(origin)
        self._lowest = numbers.min(axis=0) - 1
        self._index = np.full(numbers.max(axis=0) - self._lowest + 2, -1)
        self._index[tuple((numbers - self._lowest).T)] = np.arange(len(numbers))
        # From a place in the strip to a node of the grid.
        first = np.arange(len(numbers))[:, None] * (0, self.pitch)
        self._shift = numbers * size + self._origin - MARGIN - first

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the strip."""
        return self.pitch, len(self._numbers) * self.pitch

    @property
    def nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows and columns of the grid at all places, each ``shape``."""
        rows, columns = self.shape
        y, x = np.repeat(self._shift, self.pitch, axis=0).T
        return np.arange(rows)[:, None] + y, np.broadcast_to(np.arange(columns) + x, self.shape)

    def cells(self, part: Part, periods: Periods | None = None) -> np.ndarray:
        """Say which cells around the places of a part of the strip are in the rectangle."""
        there = [
            (nodes >= 0) & (nodes < cells)
            for nodes, cells in zip(self.nodes, self._cells, strict=True)
        ]
        return np.logical_and(*there)[*(slice(p.start - 1, p.stop) for p in part)]

    def places(self, nodes: np.ndarray, part: Part) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Return which nodes ``(K, 2)`` of the grid are in a part of the strip, and where: some at several places."""
        which, *at = self._places(nodes)
        along = [(n >= p.start) & (n < p.stop) for n, p in zip(at, part, strict=True)]
        inside = np.logical_and(*along)
        places = (n[inside] - p.start for n, p in zip(at, part, strict=True))
        return which[inside], tuple(places)

    def _places(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first = (nodes - self._origin) // self.size - self._lowest
        near = [(at >= 0) & (at < n) for at, n in zip(first.T, self._index.shape, strict=True)]
        close = np.flatnonzero(near[0] & near[1])
        if not len(close):
            return (close,) * 3
        first, within = first[close], (nodes[close] - self._origin) % self.size
        # Per axis: the node in the square before its own, in this, and in the one after, and where it has it.
        along = []
        for at in within.T:
            places = [at - self.size * step + MARGIN for step in (-1, 0, 1)]
            along.append([(place, (place >= 0) & (place < self.pitch)) for place in places])
        at_places = []
        for dy, (y, has_y) in enumerate(along[0], start=-1):
            for dx, (x, has_x) in enumerate(along[1], start=-1):
                those = np.flatnonzero(has_y & has_x)
                square = first[those] + (dy, dx)
                there = (square >= 0) & (square < self._index.shape)
                those, square = (array[there[:, 0] & there[:, 1]] for array in (those, square))
                number = self._index[square[:, 0], square[:, 1]]
                those, number = those[number >= 0], number[number >= 0]
                at_places.append((close[those], y[those], number * self.pitch + x[those]))
        which, rows, columns = (np.concatenate(parts) for parts in zip(*at_places, strict=True))
        return which, rows, columns

    def own(self, values: np.ndarray) -> np.ndarray:
        """Return squares ``(T, size, size)`` of values at all places but the outermost, or on edges."""
        inner = slice(MARGIN - 1, MARGIN - 1 + self.size)
        columns = np.arange(len(self._numbers))[:, None] * self.pitch + np.arange(self.size)
        return values[inner, columns + MARGIN - 1].swapaxes(0, 1)

    def moved(self, y: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return which places lie in squares without margins, and which nodes these are.

        Returns
        -------
        which
            Of the places.
        nodes
            Rows and columns in the pattern, ``(.., 2)``.
        shift
            From these places to nodes of the grid, ``(.., 2)``.
        """
        number, column = np.divmod(x, self.pitch)
        own = [(at >= MARGIN) & (at < MARGIN + self.size) for at in (y, column)]
        which = np.flatnonzero(own[0] & own[1])
        shift = self._shift[number[which]]
        nodes = np.stack([y[which], x[which]], axis=1) + shift - self._origin
        return which, nodes, shift


SIDE = 16


"""Nodes along the side of a square."""


class ArrayInSquares(NDArrayOperatorsMixin):
    """A part of such an array, ``(rows, columns)``.

    Slices without a step are views, as those of arrays; whatever else is asked for is an array, and so is what is
    computed with it.

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

    def __array_ufunc__(self, of: np.ufunc, method: str, *inputs: Any, **how: Any) -> Any:
        arrays = (np.asarray(i) if isinstance(i, ArrayInSquares) else i for i in inputs)
        return getattr(of, method)(*arrays, **how)

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
