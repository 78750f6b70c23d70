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
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.local_solvers.merging import merging
from mosaicdd.problems.conductances import Conductances

_Node = tuple[int, int]
"""A place in a square, or a step to a neighbour, (y, x)."""


@dataclass(frozen=True)
class Cross:
    """The inverses ``G F`` on the crosses of a level.

    Parameters
    ----------
    parts
        ``F`` and the transpose of ``G``, ``(rows, columns, i, i)``; without a velocity ``G`` is the transpose of ``F``,
        which is lower triangular: the upper half of its rows, ``(.., k, k)``, and the lower,
        ``(.., i - k, i)``.
    """

    parts: tuple[torch.Tensor, torch.Tensor]

    @classmethod
    def triangular(cls, factors: torch.Tensor) -> "Cross":
        """Return the inverses ``F^T F`` by lower triangular ``F``."""
        half = (factors.shape[-1] + 1) // 2
        return cls((factors[..., :half, :half], factors[..., half:, :]))

    def __call__(self, given: torch.Tensor) -> torch.Tensor:
        """Return the products with vectors ``(B, n, i)``."""
        first, second = (part.flatten(0, 1) for part in self.parts)
        if first.shape == second.shape:
            return torch.bmm(torch.bmm(given, first.mT), second)
        half = first.shape[1]
        total = torch.bmm(torch.bmm(given, second.mT), second)
        total[..., :half] += torch.bmm(torch.bmm(given[..., :half], first.mT), first)
        return total


@dataclass(frozen=True)
class Roots:
    """What the elimination leaves for the inner nodes, smallest squares first.

    Parameters
    ----------
    leaves
        Of the smallest squares, ``(rows, columns, r, r)``, see `coloured`.
    crosses
        Per level.
    """

    leaves: torch.Tensor
    crosses: list[Cross]

    def room(self, shape: tuple[int, int], whole: tuple[int, int]) -> "Roots":
        """Return room for those of more elements, where these are of fewer, each per axis."""
        return self._each(
            lambda one: one.new_empty(
                *(n // few * many for n, few, many in zip(one.shape, shape, whole, strict=False)),
                *one.shape[2:],
            )
        )

    def part(self, whole: tuple[int, int], place: Slices) -> "Roots":
        """Return views of those of some elements, where these are of so many."""

        def some(one: torch.Tensor) -> torch.Tensor:
            squares = one.shape[0] // whole[0]
            return one[*(slice(squares * p.start, squares * p.stop) for p in place)]

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

    A grid is cut into *planes*: of all smallest squares the nodes at the same place in them, ``(q, q, n,
    rows + 1, columns + 1)``. Squares of a level are handled side by side: their nodes at ``(y, x)``,
    counted from a square's lower left corner, are a view of a plane (`_Views`).

    Parameters
    ----------
    conductances
        Between the nodes of the piece.
    side
        ``q``, cells along the smallest squares.
    """

    def __init__(self, conductances: Conductances, side: int, roots: Roots):
        self._roots = roots
        self._side = side
        leaves = roots.leaves
        self._shape = leaves.shape[0], leaves.shape[1]
        crossed = conductances.across is not None
        # By the step to a neighbour: what ties it to a node, and from where the edges are counted.
        ties = {
            (1, 0): (conductances.up, (0, 0)),
            (-1, 0): (conductances.down, (-1, 0)),
            (0, 1): (conductances.right, (0, 0)),
            (0, -1): (conductances.left, (0, -1)),
        }
        if conductances.across is not None:
            rising, falling = conductances.across
            ties |= {
                (1, 1): (rising, (0, 0)),
                (-1, -1): (rising, (-1, -1)),
                (-1, 1): (falling, (-1, 0)),
                (1, -1): (falling, (0, -1)),
            }
        given = {id(values): torch.from_numpy(values).to(leaves) for values, _ in ties.values()}
        cut = {key: self._views(values[None]) for key, values in given.items()}
        self._edges = {step: given[id(values)] for step, (values, _) in ties.items()}
        self._ties = {step: (cut[id(values)], at) for step, (values, at) in ties.items()}
        inner = [(y, x) for y in range(1, side) for x in range(1, side)]
        self._coloured = [(int(y), int(x)) for y, x in coloured(side, crossed=crossed)]
        self._others = [node for node in inner if node not in self._coloured]
        self._inverses = leaves.permute(2, 3, 0, 1).contiguous()  # (r, r, rows, columns)
        self._reciprocals = {}
        for y, x in self._others:
            reaction = np.ascontiguousarray(conductances.reaction[y::side, x::side])
            total = torch.from_numpy(reaction).to(leaves)
            for step in self._ties:
                total = total + self._tie(step, (y, x), 1)[0]
            self._reciprocals[y, x] = total.reciprocal_()

    def _views(self, values: torch.Tensor) -> "_Views":
        """Cut values ``(n, rows, columns)`` into planes, zero beyond the last node."""
        q = self._side
        wide = values.new_zeros(len(values), *(q * (n + 1) for n in self._shape))
        wide[:, : values.shape[1], : values.shape[2]] = values
        cut = wide.unflatten(2, (-1, q)).unflatten(1, (-1, q))
        return _Views(cut.permute(2, 4, 0, 1, 3).contiguous())

    def _tie(self, step: _Node, node: _Node, count: int) -> torch.Tensor:
        """Return the conductances of the neighbours of nodes, in the equations of these."""
        views, (dy, dx) = self._ties[step]
        return views((node[0] + dy, node[1] + dx), count)

    def _beside(self, node: _Node, among: Collection[_Node]) -> list[tuple[_Node, _Node]]:
        """Return the neighbours of a node among others, with the steps to them."""
        around = ((step, (node[0] + step[0], node[1] + step[1])) for step in self._ties)
        return [(step, other) for step, other in around if other in among]

    def driven(self, f: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        """Return ``f + K u``."""
        total, low, high = f.clone(), slice(0, -1), slice(1, None)
        for step, conductances in self._edges.items():
            nodes, neighbours = (
                [(low, slice(None), high)[1 + sign * at] for at in step] for sign in (-1, 1)
            )
            total[:, *nodes].addcmul_(conductances, u[:, *neighbours])
        return total

    def solve(self, f: torch.Tensor) -> torch.Tensor:
        """Return ``u`` inside the elements for sources, with zero on their perimeters."""
        given = self._views(f)
        u = _Views(torch.zeros_like(given.planes))
        self._solve(len(self._roots.crosses), given, u)
        whole = u.planes.permute(2, 3, 0, 4, 1).flatten(3).flatten(1, 2)
        return whole[:, : f.shape[1], : f.shape[2]]

    def _solve(self, level: int, f: "_Views", u: "_Views") -> None:
        """Write ``u`` inside the squares of a level."""
        if level == 0:
            self._solve_leaves(f, u)
            return
        self._solve(level - 1, f, u)
        half, count = self._side << level - 1, 1 << level
        cross, inside = _cross(half)
        beside = [self._beside(node, inside) for node in cross]
        driven = [self._driven(f, u, *one, count) for one in zip(cross, beside, strict=True)]
        c = _by_square(torch.stack(driven, dim=-1), self._roots.crosses[level - 1]).unbind(-1)
        f = _Views(f.planes.clone())
        for node, others, values in zip(cross, beside, c, strict=True):
            u(node, count).copy_(values)
            for (dy, dx), other in others:
                f(other, count).addcmul_(self._tie((-dy, -dx), other, count), values)
        self._solve(level - 1, f, u)

    def _solve_leaves(self, f: "_Views", u: "_Views") -> None:
        """Write ``u`` inside the smallest squares."""
        for node in self._others:
            torch.mul(f(node, 1), self._reciprocals[node], out=u(node, 1))
        driven = [
            self._driven(f, u, node, self._beside(node, self._others), 1) for node in self._coloured
        ]
        for node, row in zip(self._coloured, self._inverses, strict=True):
            here = torch.mul(driven[0], row[0], out=u(node, 1))
            for values, inverse in zip(driven[1:], row[1:], strict=True):
                here.addcmul_(values, inverse)
        for node in self._others:
            given = self._driven(f, u, node, self._beside(node, self._coloured), 1)
            torch.mul(given, self._reciprocals[node], out=u(node, 1))

    def _driven(
        self, f: "_Views", u: "_Views", node: _Node, beside: list[tuple[_Node, _Node]], count: int
    ) -> torch.Tensor:
        """Return ``f + K u`` at a node of all squares, from some of its neighbours."""
        total = f(node, count)
        for number, (step, other) in enumerate(beside):
            out = None if number == 0 else total
            total = torch.addcmul(total, self._tie(step, node, count), u(other, count), out=out)
        return total


class _Views:
    """Views of planes, each made once.

    Parameters
    ----------
    planes
        ``(q, q, n, rows + 1, columns + 1)``.
    """

    def __init__(self, planes: torch.Tensor):
        self.planes = planes
        self._known: dict[tuple[_Node, int], torch.Tensor] = {}

    def __call__(self, node: _Node, count: int) -> torch.Tensor:
        """Return what stands at a node of squares of ``count`` smallest squares a side, ``(n, ..)``."""
        key = node, count
        if key not in self._known:
            planes = self.planes
            (row, y), (column, x) = (divmod(at, len(planes)) for at in node)
            rows, columns = (
                slice(first, first + squares - 1 - (count - 1), count)
                for first, squares in zip((row, column), planes.shape[3:], strict=True)
            )
            self._known[key] = planes[y, x, :, rows, columns]
        return self._known[key]


@lru_cache
def _cross(half: int) -> tuple[list[_Node], frozenset[_Node]]:
    """Return the nodes of a cross between squares of a side, as they are merged, and those inside."""
    plan = merging(half)
    cross = [(int(y), int(x)) for y, x in plan.nodes[plan.perimeter :]]
    every = range(1, 2 * half)
    return cross, frozenset((y, x) for y in every for x in every if half not in (y, x))


def _by_square(given: torch.Tensor, solve: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Solve for values ``(n, rows, columns, i)`` of the squares by rows ``(B, n, i)``."""
    n, *shape, inside = given.shape
    rows = given.permute(1, 2, 0, 3).reshape(math.prod(shape), n, inside)
    return solve(rows).unflatten(0, shape).permute(2, 0, 1, 3)
