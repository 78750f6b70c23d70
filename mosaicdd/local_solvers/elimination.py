r"""The elimination of the nodes inside elements, in levels, for all of a piece at once.

Small squares are eliminated by Gauss and Jordan's algorithm on numbers that are vectors over thousands
of squares; then again and again four squares are merged to one:

```
   +---+---+       +-------+      b  the perimeter of the merged square
   | 2 | 3 |       |       |      i  the nodes between the four, which are eliminated:
   +---+---+  -->  |       |      S = A_bb - V W,  W = L^-1 A_ib,  V = A_bi U^-1,  A_ii = L U
   | 0 | 1 |       |       |      load = f_b - V L^-1 f_i
   +---+---+       +-------+      u_i = U^-1 (L^-1 f_i - W u_b)
```

Without a velocity all is symmetric, ``U = L^T`` by Cholesky and ``V = W^T``; with one, ``L U`` is
Gauss's, with rows exchanged. Grid edges and nodes on a perimeter are shared by two squares, so each
counts half of them.

Shape letters: ``E`` elements, ``B`` squares of a level, ``p`` perimeter nodes of a square, ``i`` eliminated
ones, ``n`` problems; vectors are rows, ``(B, n, p)``.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Unpack

import numpy as np
import torch

from mosaicdd.local_solvers.merging import Merge, merging
from mosaicdd.local_solvers.squares import CrossedSquares, Squares
from mosaicdd.problems.medium import Conductances
from mosaicdd.tensors import Tensors

_SMALLEST = 3  # cells along a side that are not halved any more


class Elimination:
    """The levels of a piece of elements; writes their Schur complements to ``out``.

    Parameters
    ----------
    conductances
        Between the nodes of the piece.
    spacing
        ``s``, cells along the side of an element.
    out
        ``(E, 4 s, 4 s)``, contiguous; None if the complements are known, and only the rest is wanted.
    """

    def __init__(
        self,
        conductances: Conductances,
        spacing: int,
        out: torch.Tensor | None,
        **tensors: Unpack[Tensors],
    ):
        side, halvings = _halved(spacing)
        crossed = conductances.across is not None
        kind = CrossedSquares if crossed else Squares
        self._squares = kind(conductances, side, halvings, **tensors)
        self._merges: list[Merge] = []
        schur = self._squares.complement()
        for level in range(halvings):
            merge = Merge(schur, side << level, symmetric=conductances.symmetric, crossed=crossed)
            if level < halvings - 1:
                schur = merge.complement(schur)
            elif out is not None:
                merge.complement(schur, out)
            self._merges.append(merge)
        if out is not None and not halvings:
            out.copy_(schur.view(out.shape))

    def condense(self, force: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the loads ``(E, n, 4 s)`` of sources inside, and what the fill needs of them.

        Parameters
        ----------
        force
            ``(E, n, (s - 1)**2)``, in the order of elimination.
        """
        first, *others = self._split(force)
        loads, left = self._squares.loads(first), [first]
        for merge, one in zip(self._merges, others, strict=True):
            loads, y = merge.condense(loads, one)
            left.append(y)
        return loads, left

    def fill(self, perimeters: torch.Tensor, left: list[torch.Tensor] | None) -> torch.Tensor:
        """Return the values inside, ``(E, n, (s - 1)**2)``, in the order of elimination.

        Parameters
        ----------
        perimeters
            Values ``(E, n, 4 s)``.
        left
            Of the sources, by `condense`; None for zero.
        """
        elements, n = perimeters.shape[:2]
        rest: Sequence[torch.Tensor | None] = left or [None] * (1 + len(self._merges))
        first, *others = rest
        values, filled = perimeters, []
        for merge, y in zip(reversed(self._merges), reversed(others), strict=True):
            values, inner = merge.expand(values, y)
            filled.append(inner)
        filled.append(self._squares.expand(values, first))
        parts = (one.unflatten(0, (elements, -1)).transpose(1, 2) for one in reversed(filled))
        return torch.cat([one.reshape(elements, n, -1) for one in parts], dim=2)

    def _split(self, force: torch.Tensor) -> list[torch.Tensor]:
        """Split values inside elements into those of each level's squares, ``(B, n, i)``."""
        inside = [self._squares.inside, *(merge.inside for merge in self._merges)]
        counts = [4 ** (len(self._merges) - k) for k in range(len(inside))]
        shapes = list(zip(counts, inside, strict=True))
        parts = force.split([count * i for count, i in shapes], dim=2)
        return [
            one.unflatten(2, shape).transpose(1, 2).flatten(0, 1)
            for one, shape in zip(parts, shapes, strict=True)
        ]


@lru_cache
def elimination_order(spacing: int) -> np.ndarray:
    """Return the order in which the nodes inside an element are eliminated, ``((s - 1)**2,)``.

    They are numbered row by row from the bottom.
    """
    side, halvings = _halved(spacing)
    quarters = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])
    corners, levels = np.zeros((1, 2), int), []
    for level in reversed(range(halvings)):
        half = side << level
        plan = merging(half)
        levels.append((corners[:, None] + plan.nodes[plan.perimeter :]).reshape(-1, 2))
        corners = (corners[:, None] + half * quarters).reshape(-1, 2)
    inner = np.argwhere(np.ones((side - 1, side - 1))) + 1
    levels.append((corners[:, None] + inner).reshape(-1, 2))
    nodes = np.concatenate(levels[::-1])
    return (nodes - 1) @ np.array([spacing - 1, 1])


def _halved(spacing: int) -> tuple[int, int]:
    """Return the cells along the smallest squares, and how often four of them are merged."""
    side, halvings = spacing, 0
    while side % 2 == 0 and side // 2 >= _SMALLEST:
        side, halvings = side // 2, halvings + 1
    return side, halvings
