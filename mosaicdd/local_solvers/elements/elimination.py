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

from typing import Unpack

import torch

from mosaicdd.local_solvers.elements.interior import Cross, Roots
from mosaicdd.local_solvers.elements.merging import Merge
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
    crossed = conductances.across is not None
    kind = CrossedSquares if crossed else Squares
    squares = kind(conductances, side, halvings, **tensors)
    leaves = _by_rows(squares.inverse, rows, columns, halvings)
    schur, crosses = squares.schur, []
    for level in range(halvings):
        merge = Merge(schur, side << level, symmetric=conductances.symmetric, crossed=crossed)
        above = halvings - 1 - level
        right = _by_rows(merge.right, rows, columns, above)
        if conductances.symmetric:
            crosses.append(Cross.triangular(right))
        else:
            crosses.append(Cross((right, _by_rows(merge.left, rows, columns, above))))
        schur = merge.complement(schur)
    return schur.view(-1, 4 * spacing, 4 * spacing), Roots(leaves, crosses)


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
    across = [one + 1 for one in down]
    order = *down, *across, split.dim() - 2, split.dim() - 1
    return split.permute(order).flatten(len(down), -3).flatten(0, len(down) - 1)
