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

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.local_solvers.elements.planes import Beside, Node, NodeRow, Planes, in_leaf, on_cross
from mosaicdd.local_solvers.elements.products import products
from mosaicdd.problems.operators.conductances import Conductances


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

    parts: tuple[torch.Tensor, ...]

    @classmethod
    def triangular(cls, factors: torch.Tensor) -> "Cross":
        """Return the inverses ``F^T F`` by lower triangular ``F``."""
        half = (factors.shape[-1] + 1) // 2
        return cls((factors[..., :half, :half], factors[..., half:, :]))

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the products with vectors ``(B, n, i)``."""
        first, second = (part.flatten(0, 1) for part in self.parts)
        if first.shape == second.shape:
            return products(products(vectors, first.mT), second)
        half = first.shape[1]
        total = products(products(vectors, second.mT), second)
        total[..., :half] += products(products(vectors[..., :half], first.mT), first)
        return total


@dataclass(frozen=True)
class Roots:
    """What the elimination leaves for the inner nodes, smallest squares first.

    Parameters
    ----------
    leaves
        Of the smallest squares, ``(rows, columns, r, r)``, see `coloured`; in memory entry by entry.
    crosses
        Per level.
    """

    leaves: torch.Tensor
    crosses: list[Cross]

    def room(self, shape: tuple[int, ...], whole: tuple[int, ...]) -> "Roots":
        """Return room for those of more elements, where these are of fewer, each per axis."""

        def more(values: torch.Tensor) -> torch.Tensor:
            sizes = zip(values.shape, shape, whole, strict=False)
            return values.new_empty(*(n // few * many for n, few, many in sizes), *values.shape[2:])

        made = self._each(more)
        leaves = made.leaves.new_empty([made.leaves.shape[axis] for axis in (2, 3, 0, 1)])
        return Roots(leaves.permute(2, 3, 0, 1), made.crosses)

    def part(self, whole: tuple[int, ...], place: Slices) -> "Roots":
        """Return views of those of some elements, where these are of so many."""

        def views(values: torch.Tensor) -> torch.Tensor:
            squares = values.shape[0] // whole[0]
            return values[*(slice(squares * p.start, squares * p.stop) for p in place)]

        return self._each(views)

    def copy_(self, other: "Roots") -> None:
        """Take the values of others."""
        self.leaves.copy_(other.leaves)
        for cross, source in zip(self.crosses, other.crosses, strict=True):
            for own, values in zip(cross.parts, source.parts, strict=True):
                own.copy_(values)

    def _each(self, of: Callable[[torch.Tensor], torch.Tensor]) -> "Roots":
        """Return roots of what a function makes of each tensor."""
        crosses = [
            Cross((of(first), of(second))) for first, second in (x.parts for x in self.crosses)
        ]
        return Roots(of(self.leaves), crosses)


class InnerNodes:
    """The nodes inside the elements of a piece, in planes.

    Parameters
    ----------
    ties
        By the step to a neighbour, what ties a node to it.
    reciprocals
        Of the diagonals, at the nodes of the other colour in a smallest square, ``(rows, columns)``.
    inverses
        Of the smallest squares, ``(r, r, rows, columns)``.
    crosses
        See `Roots`.
    side
        ``q``, cells along the smallest squares.

    Attributes
    ----------
    shape
        Smallest squares per axis.
    side
        ``q``.
    """

    def __init__(
        self,
        ties: dict[Node, Planes],
        reciprocals: dict[NodeRow, torch.Tensor],
        inverses: torch.Tensor,
        crosses: list[Cross],
        side: int,
    ):
        self._ties, self._reciprocals, self._inverses = ties, reciprocals, inverses
        self._crosses, self.side, self._steps = crosses, side, tuple(ties)
        self.shape = tuple(inverses.shape[2:])

    @classmethod
    def of(cls, conductances: Conductances, side: int, roots: Roots) -> "InnerNodes":
        """Return those between whose nodes these are."""
        leaves, reciprocals = roots.leaves, {}
        shape = tuple(leaves.shape[:2])
        all_ties = ties_of(conductances)
        cut = {
            id(values): Planes.of(torch.from_numpy(values).to(leaves)[None], side, shape)
            for values, _ in all_ties.values()
        }
        ties = {step: cut[id(values)] for step, (values, _) in all_ties.items()}
        for run, _ in in_leaf(side, tuple(ties))[1]:
            y, x = run.node
            reaction = np.ascontiguousarray(conductances.reaction[y::side, x::side])
            total = torch.from_numpy(reaction).to(leaves)
            for step, planes in ties.items():
                total = total + planes(run.edges(step), 1)[0, 0]
            reciprocals[run] = total.reciprocal_()
        inverses = leaves.permute(2, 3, 0, 1).contiguous()
        return cls(ties, reciprocals, inverses, roots.crosses, side)

    def chosen(self, elements: slice | torch.Tensor) -> "InnerNodes":
        """Return those of some of the elements of a row, side by side; views by a slice, copies by numbers."""
        count = self.shape[1] // self.shape[0]

        def taken(values: torch.Tensor, axis: int) -> torch.Tensor:
            squares = values.shape[axis] // count
            if isinstance(elements, slice):
                here = elements.start * squares, (elements.stop - elements.start) * squares
                return values.narrow(axis, *here)
            return (
                values.unflatten(axis, (count, -1))
                .index_select(axis, elements)
                .flatten(axis, axis + 1)
            )

        known = {id(planes): Planes(taken(planes.values, 4)) for planes in self._ties.values()}
        return InnerNodes(
            {step: known[id(planes)] for step, planes in self._ties.items()},
            {run: taken(reciprocal, 1) for run, reciprocal in self._reciprocals.items()},
            taken(self._inverses, 3),
            [Cross(tuple(taken(part, 1) for part in cross.parts)) for cross in self._crosses],
            self.side,
        )

    def solve(self, f: Planes, *, everywhere: bool = True) -> Planes:
        """Return ``u`` for sources, with zero on the elements' perimeters; ``f`` is overwritten.

        Parameters
        ----------
        everywhere
            Not only at the nodes beside perimeters.
        """
        u = Planes(torch.zeros_like(f.values))
        self._solve(len(self._crosses), f, u, again=False, everywhere=everywhere)
        return u

    def _solve(self, level: int, f: Planes, u: Planes, *, again: bool, everywhere: bool) -> None:
        """Write ``u`` inside the squares of a level; ``f`` is overwritten, unless it is needed again."""
        if level == 0:
            self._solve_leaves(f, u, everywhere=everywhere)
            return
        self._solve(level - 1, f, u, again=True, everywhere=False)
        count, plan = 1 << level, on_cross(self.side << level - 1, self.side, self._steps)
        lengths = [run.length for run, _ in plan]
        shape = [n // count for n in self.shape]
        driven = f.values.new_empty(*shape, f.values.shape[2], sum(lengths))
        for (run, beside), part in zip(plan, driven.split(lengths, dim=-1), strict=True):
            part.permute(3, 2, 0, 1).copy_(self._driven(f, u, run, beside, count))
        c = self._crosses[level - 1](driven.flatten(0, 1)).unflatten(0, shape)
        if again:
            f = Planes(f.values.clone())
        for (run, beside), part in zip(plan, c.split(lengths, dim=-1), strict=True):
            values = part.permute(3, 2, 0, 1)
            u(run, count).copy_(values)
            for _, other, edges, back in beside:
                f(other, count).addcmul_(self._ties[back](edges, count), values)
        self._solve(level - 1, f, u, again=False, everywhere=everywhere)

    def _solve_leaves(self, f: Planes, u: Planes, *, everywhere: bool) -> None:
        """Write ``u`` inside the smallest squares."""
        coloured, others = in_leaf(self.side, self._steps)
        for run, _ in others:
            torch.mul(f(run, 1), self._reciprocals[run], out=u(run, 1))
        driven = [self._driven(f, u, *place, 1) for place in coloured]
        for (run, _), row in zip(coloured, self._inverses, strict=True):
            here = torch.mul(driven[0], row[0], out=u(run, 1))
            for values, inverse in zip(driven[1:], row[1:], strict=True):
                here.addcmul_(values, inverse)
        for run, beside in others:
            if everywhere or {1, self.side - 1} & {*run.node}:
                drive = self._driven(f, u, run, beside, 1)
                torch.mul(drive, self._reciprocals[run], out=u(run, 1))

    def _driven(
        self, f: Planes, u: Planes, run: NodeRow, beside: Beside, count: int
    ) -> torch.Tensor:
        """Return ``f + K u`` at nodes of all squares, from some of their neighbours."""
        total, out = f(run, count), None
        for step, other, edges, _ in beside:
            ties = self._ties[step](edges, count)
            out = total = torch.addcmul(total, ties, u(other, count), out=out)
        return total


def ties_of(conductances: Conductances) -> dict[Node, tuple[np.ndarray, Node]]:
    """Return, by the step to a neighbour, what ties it to a node, and where from edges are counted."""
    (up, right), (down, left) = conductances.along, conductances.against
    ties: dict[Node, tuple[np.ndarray, Node]] = {
        (1, 0): (up, (0, 0)),
        (-1, 0): (down, (-1, 0)),
        (0, 1): (right, (0, 0)),
        (0, -1): (left, (0, -1)),
    }
    if conductances.across is not None:
        rising, falling = conductances.across
        ties |= {
            (1, 1): (rising, (0, 0)),
            (-1, -1): (rising, (-1, -1)),
            (-1, 1): (falling, (-1, 0)),
            (1, -1): (falling, (0, -1)),
        }
    return ties
