r"""The elimination of the nodes inside elements, in levels, for all of a piece at once.

Small squares are eliminated by Gauss and Jordan's algorithm on numbers that are vectors over thousands
of squares; then again and again four squares are merged to one:

```
   +---+---+       +-------+      b  the perimeter of the merged square
   | 2 | 3 |       |       |      i  the nodes between the four, which are eliminated:
   +---+---+  -->  |       |      S = A_bb - V W,  W = L^-1 A_ib,  V = A_bi U^-1,  A_ii = L U
   | 0 | 1 |       |       |
   +---+---+       +-------+
```

Without a velocity all is symmetric, ``U = L^T`` by Cholesky and ``V = W^T``; with one, ``L U`` is
Gauss's, with rows exchanged. Grid edges and nodes on a perimeter are shared by two squares, so each
counts half of them.

Shape letters: ``E`` elements, ``B`` squares of a level, ``p`` perimeter nodes of a square, ``i`` eliminated
ones.
"""

from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
import torch

from mosaicdd.local_solvers.elements.inner_nodes import Cross, Roots
from mosaicdd.local_solvers.elements.kinds import alike
from mosaicdd.local_solvers.elements.merging import MergedSquares
from mosaicdd.local_solvers.elements.squares import CrossedSquares, Squares
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.tensors import Tensors

_SMALLEST = 3  # cells along a side that are not halved any more


def eliminate(
    conductances: Conductances,
    spacing: int,
    **tensors: Unpack[Tensors],
) -> tuple[torch.Tensor, Roots]:
    """Eliminate the inner nodes of a piece of elements.

    Parameters
    ----------
    conductances
        Between the nodes of the piece; or of elements one by one, ``(E, ..)``.
    spacing
        ``s``, cells along the side of an element.

    Returns
    -------
    Tensor, Roots
        The Schur complements ``(E, 4 s, 4 s)``, and what it takes to solve for the inner nodes: of
        elements one by one, as if they stood side by side.
    """
    side, halvings = halved(spacing)
    rows, columns = conductances.elements(spacing)
    if conductances.reaction.ndim == 3:
        left = _distinct(conductances, side, halvings, **tensors)
    else:
        left = _Eliminated.smallest(conductances, side, halvings, **tensors)
        for level in range(halvings):
            left = left.merged(side << level)
    crosses = []
    for level, factors in enumerate(left.crosses, start=1):
        each = [_by_rows(matrices, rows, columns, halvings - level) for matrices in factors]
        crosses.append(Cross.triangular(*each) if left.symmetric else Cross(tuple(each)))
    leaves = _by_rows(left.leaves, rows, columns, halvings)
    return left.schur.view(-1, 4 * spacing, 4 * spacing), Roots(leaves, crosses)


@dataclass(frozen=True)
class _Eliminated:
    """Squares that are eliminated.

    Parameters
    ----------
    schur
        Their Schur complements, ``(B, ..)``.
    leaves
        Of the smallest squares in them, ``(.., r, r)``, numbered as they are merged.
    crosses
        Per level ``L^-1``, and with a velocity the transpose of ``U^-1``, ``(.., i, i)``, in the same way.
    """

    schur: torch.Tensor
    leaves: torch.Tensor
    crosses: list[tuple[torch.Tensor, ...]]
    symmetric: bool
    crossed: bool

    @classmethod
    def smallest(
        cls, conductances: Conductances, side: int, halvings: int, **tensors: Unpack[Tensors]
    ) -> "_Eliminated":
        """Return the smallest squares of elements."""
        crossed = conductances.across is not None
        kind = CrossedSquares if crossed else Squares
        squares = kind(conductances, side, halvings, **tensors)
        return cls(squares.schur, squares.inverse, [], conductances.symmetric, crossed)

    def chosen(self, which: torch.Tensor) -> "_Eliminated":
        """Return some of them, several times."""

        def of(matrices: torch.Tensor) -> torch.Tensor:
            return matrices.unflatten(0, (len(self.schur), -1)).index_select(0, which).flatten(0, 1)

        crosses = [tuple(of(matrices) for matrices in factors) for factors in self.crosses]
        return replace(self, schur=of(self.schur), leaves=of(self.leaves), crosses=crosses)

    def merged(self, side: int) -> "_Eliminated":
        """Return what four squares of so many cells a side become."""
        merge = MergedSquares(self.schur, side, symmetric=self.symmetric, crossed=self.crossed)
        factors = (merge.right,) if self.symmetric else (merge.right, merge.left)
        return replace(self, schur=merge.complement(self.schur), crosses=[*self.crosses, factors])


def _distinct(
    conductances: Conductances, side: int, halvings: int, **tensors: Unpack[Tensors]
) -> _Eliminated:
    """Eliminate squares one by one; of the quarters of all of them that are alike, one.

    Where an outline cuts elements, most of their small squares are inside or outside.
    """
    if not halvings:
        return _Eliminated.smallest(conductances, side, 0, **tensors)
    size = side << halvings - 1
    quarters = conductances.windows(size).each(
        lambda values: values.reshape(-1, *values.shape[-2:])
    )
    _, first, which = np.unique(alike(quarters.arrays()), return_index=True, return_inverse=True)
    few = _distinct(quarters.each(lambda values: values[first]), side, halvings - 1, **tensors)
    return few.chosen(torch.from_numpy(which).to(tensors["device"])).merged(size)


def halved(spacing: int) -> tuple[int, int]:
    """Return the cells along the smallest squares, and how often four of them are merged."""
    side, halvings = spacing, 0
    while side % 2 == 0 and side // 2 >= _SMALLEST:
        side, halvings = side // 2, halvings + 1
    return side, halvings


def _by_rows(squares: torch.Tensor, rows: int, columns: int, halvings: int) -> torch.Tensor:
    """Return matrices ``(B, ..)`` by their places in the piece, ``(rows, columns, ..)``.

    The squares of an element are numbered as they are merged: the four of a larger one follow each
    other.
    """
    split = squares.unflatten(0, (rows, columns, *[2] * (2 * halvings)))
    down = [0, *range(2, 2 + 2 * halvings, 2)]
    across = [axis + 1 for axis in down]
    order = *down, *across, split.dim() - 2, split.dim() - 1
    return split.permute(order).flatten(len(down), -3).flatten(0, len(down) - 1)
