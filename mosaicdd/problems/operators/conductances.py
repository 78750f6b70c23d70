"""The discrete operator of an equation of second order, as conductances between the nodes of a grid."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
from numpy.lib.stride_tricks import sliding_window_view


@dataclass(frozen=True)
class Conductances:
    """The discrete operator between the nodes ``(rows, columns)`` of a part of the grid.

    Or of several parts of the same size, one after another on a first axis (`windows`). The arrays of a
    region may be `ArrayInSquares`, of which what is computed with becomes an array.

    Parameters
    ----------
    up
        ``(rows - 1, columns)``: of the node above, in a node's equation.
    right
        ``(rows, columns - 1)``: of the node to the right.
    reaction
        ``(rows, columns)``: ``c`` times the squared spacing.
    down, left
        As ``up`` and ``right``, where a velocity makes them differ: the conductance of the same edge
        in the equation of its other node.
    across
        ``(2, rows - 1, columns - 1)``: of each cell, between its lower left and upper right node, and
        between its upper left and lower right one; None where only neighbours are coupled, as on all
        grids that are not made from finer ones.
    """

    up: np.ndarray
    right: np.ndarray
    reaction: np.ndarray
    down: np.ndarray = None  # type: ignore[assignment]  # `up` by default, and `right`
    left: np.ndarray = None  # type: ignore[assignment]
    across: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.down is None:
            object.__setattr__(self, "down", self.up)
            object.__setattr__(self, "left", self.right)

    @property
    def symmetric(self) -> bool:
        """Whether both equations of an edge have the same conductance: no velocity."""
        return self.down is self.up

    def part(self, rows: slice, columns: slice) -> "Conductances":
        """Return views of those between some of the nodes."""
        between = slice(rows.start, rows.stop - 1), slice(columns.start, columns.stop - 1)
        up, right = self.up[between[0], columns], self.right[rows, between[1]]
        reaction = self.reaction[rows, columns]
        if self.symmetric:
            across = None if self.across is None else self.across[:, *between]
            return Conductances(up, right, reaction, across=across)
        down, left = self.down[between[0], columns], self.left[rows, between[1]]
        return Conductances(up, right, reaction, down, left)

    def windows(self, spacing: int) -> "Conductances":
        """Return views of those of all squares of so many cells a side, by their row and column.

        ``up`` becomes ``(rows, columns, spacing, spacing + 1)``, the others in the same way; neighbours
        share the nodes between them.
        """
        s = spacing

        def cut(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
            return sliding_window_view(values, (rows, columns), axis=(-2, -1))[..., ::s, ::s, :, :]

        up, right = cut(self.up, s, s + 1), cut(self.right, s + 1, s)
        reaction = cut(self.reaction, s + 1, s + 1)
        across = None if self.across is None else cut(self.across, s, s)
        if self.symmetric:
            return Conductances(up, right, reaction, across=across)
        down, left = cut(self.down, s, s + 1), cut(self.left, s + 1, s)
        return Conductances(up, right, reaction, down, left, across)

    def each(self, of: Callable[[np.ndarray], np.ndarray]) -> "Conductances":
        """Return what a function makes of each array."""
        up, right, reaction = of(self.up), of(self.right), of(self.reaction)
        if self.symmetric:
            across = None if self.across is None else np.stack([of(one) for one in self.across])
            return Conductances(up, right, reaction, across=across)
        return Conductances(up, right, reaction, of(self.down), of(self.left))

    def elements(self, spacing: int) -> tuple[int, ...]:
        """Return how many squares of so many cells a side there are, per axis; one by one, in a row."""
        count, (rows, columns) = self.reaction.shape[:-2], self.reaction.shape[-2:]
        return (1, *count) if count else ((rows - 1) // spacing, (columns - 1) // spacing)

    def arrays(self) -> list[np.ndarray]:
        """Return all that are not the same array."""
        arrays = [self.up, self.right, self.reaction]
        if not self.symmetric:
            arrays += [self.down, self.left]
        return arrays if self.across is None else [*arrays, *self.across]

    def side_by_side(self) -> "Conductances":
        """Return those of several squares as of one row of them, right but for the lines between.

        On the lines between two squares they are those of the right one.
        """

        def row(values: np.ndarray) -> np.ndarray:
            spacing = self.right.shape[-1]
            joined = values[..., :spacing].swapaxes(0, 1).reshape(values.shape[1], -1)
            return np.concatenate([joined, values[-1, :, spacing:]], axis=1)

        return self.each(row)

    def transposed(self) -> "Conductances":
        """Return them with x and y exchanged."""
        across = None if self.across is None else self.across.swapaxes(1, 2)
        up, right, reaction = self.right.T, self.up.T, self.reaction.T
        if self.symmetric:
            return Conductances(up, right, reaction, across=across)
        return Conductances(up, right, reaction, self.left.T, self.down.T, across)

    def diagonal_of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return `diagonal` in some rows, ascending."""
        total = self.reaction[rows]
        total[:, :-1] += self.right[rows]
        total[:, 1:] += self.left[rows]
        rising, falling = (None, None) if self.across is None else self.across
        for there, values, beside, low, high in (
            (slice(np.searchsorted(rows, len(self.up))), self.up, rows, rising, falling),
            (slice(np.searchsorted(rows, 1), None), self.down, rows - 1, falling, rising),
        ):
            total[there] += values[beside[there]]
            if low is not None and high is not None:
                total[there, :-1] += low[beside[there]]
                total[there, 1:] += high[beside[there]]
        return total

    def diagonal(self) -> np.ndarray:
        """Return the sum of a node's conductances and its reaction, ``(rows, columns)``."""
        total = self.reaction.copy()
        total[:-1] += self.up
        total[1:] += self.down
        total[:, :-1] += self.right
        total[:, 1:] += self.left
        if self.across is not None:
            rising, falling = self.across
            total[:-1, :-1] += rising
            total[1:, 1:] += rising
            total[1:, :-1] += falling
            total[:-1, 1:] += falling
        return total

    def around(self, nodes: np.ndarray) -> np.ndarray:
        """Return the sums of the conductances of flat nodes to their neighbours, ``(T,)``."""
        y, x = np.divmod(nodes, self.reaction.shape[1])
        total = np.zeros(len(nodes))
        for values, place, last in (
            (self.up, (y, x), y == len(self.up)),
            (self.down, (y - 1, x), y == 0),
            (self.right, (y, x), x == self.right.shape[1]),
            (self.left, (y, x - 1), x == 0),
        ):
            there = ~last
            total[there] += values[place[0][there], place[1][there]]
        return total

    def apply(self, u: np.ndarray) -> np.ndarray:
        """Return ``h^2 A u`` at the nodes inside: ``(.., rows, columns)`` less one all around."""
        rise = u[..., 1:, 1:-1] - u[..., :-1, 1:-1]
        up = rise * self.up[:, 1:-1]
        down = up if self.symmetric else rise * self.down[:, 1:-1]
        total = down[..., :-1, :] - up[..., 1:, :]
        rise = u[..., 1:-1, 1:] - u[..., 1:-1, :-1]
        right = rise * self.right[1:-1]
        left = right if self.symmetric else rise * self.left[1:-1]
        total += left[..., :-1]
        total -= right[..., 1:]
        if self.across is not None:
            rising = self.across[0] * (u[..., 1:, 1:] - u[..., :-1, :-1])
            falling = self.across[1] * (u[..., :-1, 1:] - u[..., 1:, :-1])
            total += rising[..., :-1, :-1] - rising[..., 1:, 1:]
            total += falling[..., 1:, :-1] - falling[..., :-1, 1:]
        if self._reacts:
            total += u[..., 1:-1, 1:-1] * self.reaction[1:-1, 1:-1]
        return total

    @cached_property
    def _reacts(self) -> bool:
        return bool(self.reaction.any())

    def matrix(self, periodic: tuple[bool, ...] = (False, False)) -> scipy.sparse.csr_array:
        """Return ``h^2 A`` of the nodes inside, row by row from the bottom.

        Parameters
        ----------
        periodic
            Along which axes, (y, x), the first of these nodes comes after the last.
        """
        numbers = np.arange((self.up.shape[0] - 1) * (self.up.shape[1] - 2))
        numbers = numbers.reshape(self.up.shape[0] - 1, -1)
        entries = [(numbers, numbers, self.diagonal()[1:-1, 1:-1])]
        along = (
            (self.up[1:, 1:-1], self.down[1:, 1:-1]),
            (self.right[1:-1, 1:], self.left[1:-1, 1:]),
        )
        for axis, (forth, back) in enumerate(along):
            count = numbers.shape[axis] - (not periodic[axis])
            some = (slice(count), slice(None)) if axis == 0 else (slice(None), slice(count))
            here, there = numbers[some], np.roll(numbers, -1, axis)[some]
            entries += [(here, there, -forth[some]), (there, here, -back[some])]
        if self.across is not None:
            rising, falling = (-one[1:-1, 1:-1] for one in self.across)
            for low, high, values in (
                (numbers[:-1, :-1], numbers[1:, 1:], rising),
                (numbers[1:, :-1], numbers[:-1, 1:], falling),
            ):
                entries += [(low, high, values), (high, low, values)]
        rows, columns, values = (
            np.concatenate([part.ravel() for part in parts]) for parts in zip(*entries, strict=True)
        )
        return scipy.sparse.coo_array((values, (rows, columns)), shape=(numbers.size,) * 2).tocsr()
