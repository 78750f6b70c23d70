"""The discrete operator of an equation of second order, as conductances between the nodes of a grid."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse

from mosaicdd.lattice.axes import at, ends, last

_HIGH, _INNER = slice(1, None), slice(1, -1)
# Of a node, how far back the cells begin across which it is coupled: along rising diagonals, and along falling ones.
_CORNERS = (((0, 0), (1, 1)), ((1, 0), (0, 1)))


@dataclass(frozen=True)
class Conductances:
    """The discrete operator between the nodes of a part of the grid, of any number of axes.

    The arrays of a region may be `ArrayInSquares`, of which what is computed with becomes an array.

    Parameters
    ----------
    along
        Per axis, in the order of arrays (0 is y in the plane): of the next node along the axis, in a
        node's equation. As many numbers as there are nodes, but one less along the axis.
    reaction
        ``c`` times the squared spacing, of each node: ``(rows, columns)`` in the plane.
    against
        As ``along``, where a velocity makes them differ: of the node before, the conductance of the same
        edge in the equation of its other node. By default they are ``along``, in the same memory.
    across
        Of the plane: ``(2, rows - 1, columns - 1)``, of each cell, between its lower left and upper right
        node, and between its upper left and lower right one; None where only neighbours are coupled, as
        on all grids that are not made from finer ones.
    """

    along: tuple[np.ndarray, ...]
    reaction: np.ndarray
    against: tuple[np.ndarray, ...] = ()
    across: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not self.against:
            object.__setattr__(self, "against", self.along)

    @property
    def axes(self) -> int:
        """The number of axes of the grid."""
        return len(self.along)

    @property
    def symmetric(self) -> bool:
        """Whether both equations of an edge have the same conductance: no velocity."""
        return self.against is self.along

    def transposed(self) -> "Conductances":
        """Return those of the transposed matrix, whose diagonal is the same; of nodes with all others around them."""
        if self.symmetric:
            return self
        reaction = np.array(self.reaction, float)
        for axis, (along, against) in enumerate(zip(self.along, self.against, strict=True)):
            low, high = ends(axis, self.axes)
            more = along - against
            reaction[low] += more
            reaction[high] -= more
        return Conductances(self.against, reaction, self.along, self.across)

    def part(self, *place: slice) -> "Conductances":
        """Return views of those between some of the nodes, by a slice per axis."""
        between = tuple(slice(p.start, p.stop - 1) for p in place)

        def cut(edges: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            return tuple(
                k[(*place[:axis], between[axis], *place[axis + 1 :])]
                for axis, k in enumerate(edges)
            )

        across = None if self.across is None else self.across[:, *between]
        against = () if self.symmetric else cut(self.against)
        return Conductances(cut(self.along), self.reaction[place], against, across)

    def each(self, of: Callable[[np.ndarray], np.ndarray]) -> "Conductances":
        """Return what a function makes of each array."""
        across = None if self.across is None else np.stack([of(k) for k in self.across])
        against = () if self.symmetric else tuple(of(k) for k in self.against)
        return Conductances(tuple(of(k) for k in self.along), of(self.reaction), against, across)

    def arrays(self) -> list[np.ndarray]:
        """Return all that are not the same array: along, reaction, against, across."""
        against = () if self.symmetric else self.against
        across = () if self.across is None else self.across
        return [*self.along, self.reaction, *against, *across]

    def diagonal_of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return `diagonal` in some rows, places along the first axis, ascending."""
        total = self.reaction[rows]
        for axis in range(1, self.axes):
            low, high = ends(axis, self.axes)
            total[low] += self.along[axis][rows]
            total[high] += self.against[axis][rows]
        rising, falling = (None, None) if self.across is None else self.across
        up, down = self.along[0], self.against[0]
        for there, values, beside, low_left, high_left in (
            (slice(np.searchsorted(rows, len(up))), up, rows, rising, falling),
            (slice(np.searchsorted(rows, 1), None), down, rows - 1, falling, rising),
        ):
            total[there] += values[beside[there]]
            if low_left is not None and high_left is not None:
                total[there, :-1] += low_left[beside[there]]
                total[there, 1:] += high_left[beside[there]]
        return total

    def diagonal(self) -> np.ndarray:
        """Return the sum of a node's conductances and its reaction, of the nodes' shape."""
        total = self.reaction.copy()
        for axis, (along, against) in enumerate(zip(self.along, self.against, strict=True)):
            low, high = ends(axis, self.axes)
            total[low] += along
            total[high] += against
        if self.across is not None:
            rising, falling = self.across
            total[:-1, :-1] += rising
            total[1:, 1:] += rising
            total[1:, :-1] += falling
            total[:-1, 1:] += falling
        return total

    def around(self, nodes: np.ndarray) -> np.ndarray:
        """Return the sums of the conductances of flat nodes to their neighbours, ``(T,)``."""
        place = np.unravel_index(nodes, self.reaction.shape)
        total = np.zeros(len(nodes))
        for axis, (along, against) in enumerate(zip(self.along, self.against, strict=True)):
            for values, back in ((along, 0), (against, 1)):
                edge = place[axis] - back
                there = (edge >= 0) & (edge < values.shape[axis])
                edges = (*place[:axis], edge, *place[axis + 1 :])
                total[there] += values[tuple(number[there] for number in edges)]
        if self.across is not None:
            for diagonal, corners in zip(self.across, _CORNERS, strict=True):
                for up, right in corners:
                    y, x = place[0] - up, place[1] - right
                    there = (y >= 0) & (y < len(diagonal)) & (x >= 0) & (x < diagonal.shape[1])
                    total[there] += diagonal[y[there], x[there]]
        return total

    def apply(self, u: np.ndarray) -> np.ndarray:
        """Return ``h^2 A u`` at the nodes inside: ``(.., rows, columns)`` less one all around."""
        total = np.empty(0)
        for axis, (along, against) in enumerate(zip(self.along, self.against, strict=True)):
            low, high = ends(axis, self.axes, _INNER)
            edges = at(axis, self.axes, slice(None), _INNER)
            rise = u[last(high)] - u[last(low)]
            forth = rise * along[edges]
            back = forth if self.symmetric else rise * against[edges]
            low, high = ends(axis, self.axes)
            if axis == 0:
                total = back[last(low)] - forth[last(high)]
            else:
                total += back[last(low)]
                total -= forth[last(high)]
        if self.across is not None:
            rising = self.across[0] * (u[..., 1:, 1:] - u[..., :-1, :-1])
            falling = self.across[1] * (u[..., :-1, 1:] - u[..., 1:, :-1])
            total += rising[..., :-1, :-1] - rising[..., 1:, 1:]
            total += falling[..., 1:, :-1] - falling[..., :-1, 1:]
        if self._reacts:
            inner = (_INNER,) * self.axes
            total += u[last(inner)] * self.reaction[inner]
        return total

    @cached_property
    def _reacts(self) -> bool:
        return bool(self.reaction.any())

    def matrix(self, periodic: tuple[bool, ...] = ()) -> scipy.sparse.csr_array:
        """Return ``h^2 A`` of the nodes inside, row by row from the bottom.

        ``periodic``: along which axes the first of these nodes comes after the last; by default none.
        """
        axes, inner = self.axes, (_INNER,) * self.axes
        shape = tuple(n - 2 for n in self.reaction.shape)
        numbers = np.arange(np.prod(shape)).reshape(shape)
        entries = [(numbers, numbers, self.diagonal()[inner])]
        for axis, (along, against) in enumerate(zip(self.along, self.against, strict=True)):
            count = shape[axis] - (not any(periodic[axis : axis + 1]))
            first = at(axis, axes, slice(count))
            here, there = numbers[first], np.roll(numbers, -1, axis)[first]
            forth, back = (k[at(axis, axes, _HIGH, _INNER)][first] for k in (along, against))
            entries += [(here, there, -forth), (there, here, -back)]
        if self.across is not None:
            around = [any(periodic[axis : axis + 1]) for axis in range(2)]
            first = tuple(slice(n - (not wraps)) for n, wraps in zip(shape, around, strict=True))
            right, up = (np.roll(numbers, -1, axis) for axis in (1, 0))
            both = np.roll(up, -1, 1)
            rising, falling = (-k[1:, 1:][first] for k in self.across)
            for low, high, values in ((numbers, both, rising), (up, right, falling)):
                low, high = low[first], high[first]
                entries += [(low, high, values), (high, low, values)]
        rows, columns, values = (
            np.concatenate([part.ravel() for part in parts]) for parts in zip(*entries, strict=True)
        )
        return scipy.sparse.coo_array((values, (rows, columns)), shape=(numbers.size,) * 2).tocsr()
