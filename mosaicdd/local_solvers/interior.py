r"""The nodes inside elements, solved for on the grid by nested dissection.

With ``D`` the diagonal and ``-K`` the rest of the discrete operator, ``f + K u`` is what drives the nodes
beside those whose values ``u`` are known. An element's inner nodes fall into a cross, between four squares
of half its side, and the nodes inside these; so do they, down to the smallest squares:

```
   +---+---+     u = inside the squares, from f
   |   |   |     c = G F (f + K u) on the cross, where G F is the inverse of its Schur complement
   +---+---+     u = inside the squares, from f + K c, and c
   |   |   |
   +---+---+
```

Inside the smallest squares every other node has neighbours of the other colour alone. So one colour is
solved for by the inverse of what is left on it, the other by its diagonal. Where there are conductances
across cells, all nodes are of the one colour.

Besides conductances only these small inverses are kept (`Roots`), less than a fourth of what the
eliminated squares are. Shape letters: ``n`` problems, ``B`` squares of a level, row by row over the piece,
``i`` nodes of a cross, ``r`` nodes of the one colour.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.problems.medium import Conductances


@dataclass(frozen=True)
class Cross:
    """The inverses ``G F`` on the crosses of a level.

    Parameters
    ----------
    parts
        ``F`` and the transpose of ``G``, ``(B, i, i)``; without a velocity ``G`` is the transpose of ``F``,
        which is lower triangular: the upper half of its rows, ``(B, k, k)``, and the lower,
        ``(B, i - k, i)``.
    """

    parts: tuple[torch.Tensor, torch.Tensor]

    @classmethod
    def triangular(cls, factors: torch.Tensor) -> "Cross":
        """Return the inverses ``F^T F`` by lower triangular ``F``."""
        half = (factors.shape[1] + 1) // 2
        return cls((factors[:, :half, :half], factors[:, half:]))

    def __call__(self, given: torch.Tensor) -> torch.Tensor:
        """Return the products with vectors ``(B, n, i)``."""
        first, second = self.parts
        if first.shape == second.shape:
            return torch.bmm(torch.bmm(given, first.mT), second)
        half = first.shape[1]
        total = torch.bmm(torch.bmm(given, second.mT), second)
        total[..., :half] += torch.bmm(torch.bmm(given[..., :half], first.mT), first)
        return total


@dataclass(frozen=True)
class Roots:
    """What the elimination of a piece leaves for its inner nodes, smallest squares first.

    Parameters
    ----------
    leaves
        Of the smallest squares, ``(B, r, r)``, see `coloured`.
    crosses
        Per level.
    """

    leaves: torch.Tensor
    crosses: list[Cross]

    def room(self, elements: int, more: int) -> "Roots":
        """Return room for the roots of more elements, where these are of so many."""
        return self._each(lambda one: one.new_empty(len(one) // elements * more, *one.shape[1:]))

    def part(self, numbers: slice, elements: int) -> "Roots":
        """Return views of those of some elements, where these are of so many."""

        def some(one: torch.Tensor) -> torch.Tensor:
            squares = len(one) // elements
            return one[squares * numbers.start : squares * numbers.stop]

        return self._each(some)

    def copy_(self, other: "Roots") -> None:
        """Take the values of others."""
        self.leaves.copy_(other.leaves)
        for cross, given in zip(self.crosses, other.crosses, strict=True):
            for one, values in zip(cross.parts, given.parts, strict=True):
                one.copy_(values)

    def _each(self, of: Callable[[torch.Tensor], torch.Tensor]) -> "Roots":
        """Return roots of what a function makes of each tensor."""
        crosses = [Cross((of(one), of(other))) for one, other in (x.parts for x in self.crosses)]
        return Roots(of(self.leaves), crosses)


def coloured(side: int, *, crossed: bool) -> np.ndarray:
    """Return the nodes (y, x) inside a smallest square that are solved for by an inverse, ``(r, 2)``."""
    inner = np.argwhere(np.ones((side - 1, side - 1))) + 1
    return inner if crossed else inner[inner.sum(axis=1) % 2 == 1]


class Interior:
    """The nodes inside the elements of a piece.

    Values at its nodes are ``(n, rows, columns)``; those on the elements' perimeters do not count.

    Parameters
    ----------
    conductances
        Between the nodes of the piece.
    side
        Cells along the smallest squares.
    """

    def __init__(self, conductances: Conductances, side: int, roots: Roots):
        crossed = conductances.across is not None
        self._side, self._roots = side, roots
        self._coloured = coloured(side, crossed=crossed).tolist()
        self._others = [
            (y, x) for y in range(1, side) for x in range(1, side) if [y, x] not in self._coloured
        ]
        up, right, down, left, self._reaction = (
            self._tensor(one)
            for one in (
                conductances.up,
                conductances.right,
                conductances.down,
                conductances.left,
                conductances.reaction,
            )
        )
        every, low, high = slice(None), slice(0, -1), slice(1, None)
        # Conductances, the nodes in whose equations they stand, and the neighbours there.
        self._ties = [
            (up, (every, low, every), (every, high, every)),
            (down, (every, high, every), (every, low, every)),
            (right, (every, every, low), (every, every, high)),
            (left, (every, every, high), (every, every, low)),
        ]
        if conductances.across is not None:
            rising, falling = (self._tensor(one) for one in conductances.across)
            for k, one, other in (
                (rising, (every, low, low), (every, high, high)),
                (falling, (every, high, low), (every, low, high)),
            ):
                self._ties += [(k, one, other), (k, other, one)]

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        """Return values as a tensor: on the host the same memory; of one value, that alone."""
        values = values if any(values.strides) else values[:1, :1].copy()
        return torch.from_numpy(values).to(self._roots.leaves)

    def _reciprocal(self, f: torch.Tensor) -> torch.Tensor:
        """Return ``1 / D`` at the nodes of the other colour, zero elsewhere, ``(1, rows, columns)``."""
        diagonal, plain = torch.zeros_like(f[:1]), torch.zeros_like(f[:1])
        diagonal += self._reaction
        for conductances, nodes, _ in self._ties:
            diagonal[nodes] += conductances
        for y, x in self._others:
            here = slice(None), slice(y, None, self._side), slice(x, None, self._side)
            plain[here] = diagonal[here].reciprocal()
        return plain

    def driven(self, f: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        """Return ``f + K u``."""
        total = f.clone()
        for conductances, nodes, neighbours in self._ties:
            total[nodes].addcmul_(conductances, u[neighbours])
        return total

    def solve(self, f: torch.Tensor) -> torch.Tensor:
        """Return ``u`` inside the elements for sources, with zero on their perimeters."""
        return self._solved(len(self._roots.crosses), f, self._reciprocal(f))

    def _solved(self, level: int, f: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
        """Return ``u`` inside the squares of a level, zero elsewhere."""
        if level == 0:
            return self._leaves(f, plain)
        u = self._solved(level - 1, f, plain)
        c = self._crosses(level, self.driven(f, u))
        return self._solved(level - 1, self.driven(f, c), plain).add_(c)

    def _leaves(self, f: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
        """Return ``u`` inside the smallest squares."""
        side, at = self._side, self._coloured
        u, left = torch.zeros_like(f), f
        if self._others:
            left = self.driven(f, f * plain)
        if at:
            given = torch.stack([left[:, y::side, x::side] for y, x in at], dim=-1)
            leaves = self._roots.leaves.mT
            solved = _by_square(given, lambda rows: torch.bmm(rows, leaves))
            for (y, x), values in zip(at, solved.unbind(-1), strict=True):
                u[:, y::side, x::side] = values
        if self._others:
            u.addcmul_(self.driven(f, u), plain)
        return u

    def _crosses(self, level: int, f: torch.Tensor) -> torch.Tensor:
        """Return the values on the crosses of a level, zero elsewhere."""
        half = self._side << level - 1
        c = torch.zeros_like(f)
        shape = f.shape[1] // (2 * half), f.shape[2] // (2 * half)
        row, column = _lines(f, half, shape)
        given = torch.cat([row, column[..., : half - 1], column[..., half:]], dim=-1)
        solved = _by_square(given, self._roots.crosses[level - 1])
        row, column = _lines(c, half, shape)
        row[:] = solved[..., : 2 * half - 1]
        column[..., : half - 1] = solved[..., 2 * half - 1 : 3 * half - 2]
        column[..., half:] = solved[..., 3 * half - 2 :]
        return c


def _lines(
    values: torch.Tensor, half: int, shape: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return views of the crosses' rows and columns, ``(n, rows, columns, 2 half - 1)``."""
    row = values[:, half :: 2 * half, :-1].unflatten(2, (shape[1], 2 * half))[..., 1:]
    column = values[:, :-1, half :: 2 * half].unflatten(1, (shape[0], 2 * half))[:, :, 1:]
    return row, column.movedim(2, 3)


def _by_square(given: torch.Tensor, solve: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Solve for values ``(n, rows, columns, i)`` of the squares by rows ``(B, n, i)``."""
    n, *shape, inside = given.shape
    rows = given.permute(1, 2, 0, 3).reshape(math.prod(shape), n, inside)
    return solve(rows).unflatten(0, shape).permute(2, 0, 1, 3)
