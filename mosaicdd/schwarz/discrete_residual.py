"""The discrete PDE residual of a filled field, computed where the field lies.

It needs no reference and no estimate: ``|A u| / |b|`` for the system ``A u = b`` of the nodes inside
the domain, added up strip by strip while the field is filled.
"""

from collections.abc import Sequence

import numpy as np
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.discrete import DirichletSystem
from mosaicdd.problems.equations import Equation
from mosaicdd.schwarz.fill import Strip

_PIECE = 2**15  # values worked on at a time


class DiscreteResidual:
    """Adds up the squares of ``A u`` over strips of the field, for each problem."""

    def __init__(self, ranks: Ranks, whole: Grid, equation: Equation, problems: int = 1):
        self._ranks = ranks
        self._nodes = whole.nodes
        self._system = DirichletSystem(equation, whole.shape)
        self._squares = np.zeros(problems)

    def add(self, strip: Strip) -> None:
        """Take the owned nodes of a strip into account that lie inside the domain."""
        rows, columns = (
            slice(inner.start + (place.start == 0), inner.stop - (place.stop == nodes))
            for inner, place, nodes in zip(strip.inner, strip.place, self._nodes, strict=True)
        )
        if rows.stop <= rows.start:
            return
        step = max(1, _PIECE // ((columns.stop - columns.start) * len(strip.values)))
        for start in range(rows.start, rows.stop, step):
            stop = min(start + step, rows.stop)
            part = strip.values[:, start - 1 : stop + 1, columns.start - 1 : columns.stop + 1]
            self._squares += self._square(part)

    def _square(self, field: torch.Tensor) -> np.ndarray:
        """Return the sum of squares of ``A u`` for ``(n, rows, columns)`` with the nodes around."""
        residual = self._system.apply(field.movedim(0, -1)).double()
        return residual.square().sum(dim=(0, 1)).cpu().numpy()

    def relative(self, boundaries: Sequence[Boundary]) -> np.ndarray:
        """Return ``|A u| / |b|`` of each problem, and begin anew.

        For boundary data without any effect (``b = 0``) it is ``|A u|``.
        """
        squares = self._ranks.sum(self._squares)
        self._squares = np.zeros_like(squares)
        norms = self._system.right_hand_side_norms(boundaries)
        return np.sqrt(squares) / np.where(norms > 0, norms, 1.0)
