"""The discrete operator of an equation of second order, as conductances between the nodes of a grid."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from mosaicdd.axes import ends_of, last, steps_across, steps_along

_HIGH, _INNER = slice(1, None), slice(1, -1)

Step = tuple[int, ...]
"""From a node to another, in cells per axis."""


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
        Of the faces of cells, in the plane of cells: of each pair of axes, see `steps_across`, along the diagonals that rise,
        and along those that fall, as many numbers as there are nodes, but one less along both axes; nothing where
        only neighbours are coupled.
    """

    along: tuple[np.ndarray, ...]
    reaction: np.ndarray
    against: tuple[np.ndarray, ...] = ()
    across: tuple[np.ndarray, ...] = ()

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

    def edges(self) -> Iterator[tuple[Step, np.ndarray, np.ndarray]]:
        """Yield the couplings: a step between nodes, and the conductances in the equations of both ends.

        An array begins with the edge of its first node.
        """
        yield from zip(steps_along(self.axes), self.along, self.against, strict=True)
        if self.across:
            yield from zip(steps_across(self.axes), self.across, self.across, strict=True)

    def transposed(self) -> "Conductances":
        """Return the conductances of the transposed matrix, of the same diagonal; right for inner nodes."""
        if self.symmetric:
            return self
        reaction = np.array(self.reaction, float)
        for step, forth, back in self.edges():
            first, end = ends_of(step)
            reaction[first] += forth - back
            reaction[end] -= forth - back
        return Conductances(self.against, reaction, self.along, self.across)

    def mapped(self, of: Callable[[Step, Any], Any]) -> "Conductances":
        """Apply a function to the step and the array of each kind of edge, and of the reaction."""
        steps = steps_along(self.axes)
        return Conductances(
            tuple(map(of, steps, self.along)),
            of((0,) * self.axes, self.reaction),
            () if self.symmetric else tuple(map(of, steps, self.against)),
            tuple(map(of, steps_across(self.axes), self.across)),
        )

    def each(self, of: Callable[[np.ndarray], np.ndarray]) -> "Conductances":
        """Apply a function to each array."""
        return self.mapped(lambda _, k: of(k))

    def part(self, *place: slice) -> "Conductances":
        """Return views of the conductances between some of the nodes, by a slice per axis."""

        def cut(step: Step, k: np.ndarray) -> np.ndarray:
            return k[
                tuple([slice(p.start, p.stop - abs(s)) for p, s in zip(place, step, strict=True)])
            ]

        return self.mapped(cut)

    def among(self, nodes: Any, of: Any = np) -> "Conductances":
        """Return the conductances between the nodes of a mask, zero elsewhere.

        ``of``: the module of the arrays, of numpy's or torch's.
        """

        def kept(step: Step, k: Any) -> Any:
            first, end = ends_of(step)
            return of.where(nodes[first] & nodes[end], k, 0.0)

        return self.mapped(kept)

    def arrays(self) -> list[np.ndarray]:
        """Return the different arrays: along, reaction, against, across."""
        return [values for _, values in self.items()]

    def items(self) -> list[tuple[Step, np.ndarray]]:
        """Return the `arrays` with the steps along their edges; zero for the reaction."""
        along, against = steps_along(self.axes), () if self.symmetric else self.against
        return [
            *zip(along, self.along, strict=True),
            ((0,) * self.axes, self.reaction),
            *zip(along, against, strict=False),
            *zip(steps_across(self.axes), self.across, strict=False),
        ]

    def diagonal_of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return `diagonal` in some rows, places along the first axis, ascending."""
        total = self.reaction[rows]
        up, down = slice(np.searchsorted(rows, len(self.reaction) - 1)), np.searchsorted(rows, 1)
        for (rises, *step), forth, back in self.edges():
            first, end = ends_of(step)
            if rises:
                total[(up, *first)] += forth[rows[up]]
                total[(slice(down, None), *end)] += back[rows[down:] - 1]
            else:
                total[(slice(None), *first)] += forth[rows]
                total[(slice(None), *end)] += back[rows]
        return total

    def diagonal(self) -> np.ndarray:
        """Return the sum of a node's conductances and its reaction, of the nodes' shape."""
        total = self.reaction.copy()
        for step, forth, back in self.edges():
            first, end = ends_of(step)
            total[first] += forth
            total[end] += back
        return total

    def around(self, nodes: np.ndarray) -> np.ndarray:
        """Return the sums of the conductances of flat nodes to their neighbours, ``(T,)``."""
        place = np.unravel_index(nodes, self.reaction.shape)
        total = np.zeros(len(nodes))
        for step, forth, back in self.edges():
            for values, way in ((forth, 1), (back, -1)):  # of their first nodes, and of their last
                total += _beside(values, place, step, way)
        return total

    def beside(self, nodes: np.ndarray, of: Any = np) -> Any:
        """Return the conductances of flat nodes to the next and the previous one along each axis, ``(axes, 2, T)``.

        Zero where there is no edge; ``of``: the module of the arrays, of numpy's or torch's.
        """
        place = np.unravel_index(
            nodes, [n + (axis == 0) for axis, n in enumerate(self.along[0].shape)]
        )
        ways = zip(steps_along(self.axes), self.along, self.against, strict=True)
        return of.stack(
            [
                of.stack([_beside(forth, place, step, 1, of), _beside(back, place, step, -1, of)])
                for step, forth, back in ways
            ]
        )

    def apply(self, u: np.ndarray) -> np.ndarray:
        """Return ``h^2 A u`` at the nodes inside: ``(.., rows, columns)`` less one all around."""
        total: Any = None
        for step, forth, back in self.edges():
            first, end = ends_of(step, _INNER)
            edges = tuple(slice(None) if s else _INNER for s in step)
            rise = u[last(end)] - u[last(first)]
            away = rise * forth[edges]
            to = away if forth is back else rise * back[edges]
            first, end = ends_of(step)
            if total is None:
                total = to[last(first)] - away[last(end)]
            else:
                total += to[last(first)]
                total -= away[last(end)]
        if self._reacts:
            inner = (_INNER,) * self.axes
            total += u[last(inner)] * self.reaction[inner]
        return total

    def of_all(self, u: np.ndarray) -> np.ndarray:
        """Return ``h^2 A u`` without reaction at all nodes; on the edge without what is beyond."""
        total = np.zeros(u.shape)
        for step, forth, back in self.edges():
            first, end = ends_of(step)
            rise = u[end] - u[first]
            total[first] -= forth * rise
            total[end] += back * rise
        return total

    def product(self, v: Any, u: Any) -> Any:
        """Return ``h^2 v A u`` of all nodes, in arrays of numpy's or torch's; on the edge without what is beyond."""
        total = (self.reaction * u * v).sum() if self.reaction.ndim else 0.0
        for step, forth, back in self.edges():
            first, end = ends_of(step)
            rise = u[end] - u[first]
            if forth is back:
                tests = v[end] - v[first]
                total = total + (forth * rise).reshape(-1) @ tests.reshape(-1)
            else:
                total = total + rise.reshape(-1) @ (back * v[end] - forth * v[first]).reshape(-1)
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
        rounds = periodic or (False,) * axes
        for step, forth, back in self.edges():
            begun = tuple(
                slice(n - (s != 0 and not wraps))
                for n, s, wraps in zip(shape, step, rounds, strict=True)
            )
            here, there = (
                np.roll(numbers, tuple(-(way * s > 0) for s in step), range(axes))[begun]
                for way in (-1, 1)
            )
            edges = tuple(_HIGH if s else _INNER for s in step)
            entries += [(here, there, -forth[edges][begun]), (there, here, -back[edges][begun])]
        rows, columns, values = (
            np.concatenate([part.ravel() for part in parts]) for parts in zip(*entries, strict=True)
        )
        return scipy.sparse.coo_array((values, (rows, columns)), shape=(numbers.size,) * 2).tocsr()


def _beside(values: Any, place: Sequence[np.ndarray], step: Step, way: int, of: Any = np) -> Any:
    """Return values of the edges along a step that begin (1) or end (-1) at nodes, zero where there is none."""
    edge = [n - (way * s < 0) for n, s in zip(place, step, strict=True)]
    sizes = list(zip(edge, values.shape, strict=True))
    there = np.logical_and.reduce([(n >= 0) & (n < size) for n, size in sizes])
    return of.where(of.asarray(there), values[tuple(n.clip(0, size - 1) for n, size in sizes)], 0.0)
