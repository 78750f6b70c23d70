"""The discrete PDE residual of a filled field, computed where the field lies.

It needs no reference and no estimate: ``|A u| / |b|`` for the system ``A u = b`` of the nodes inside
the domain. Each rank needs one row of nodes of its neighbours, exchanged once.
"""

import numpy as np
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.sharing import ghost_received, ghost_sent
from mosaicdd.parallel.halo import HaloExchange
from mosaicdd.parallel.process_grid import ProcessGrid
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.discrete import DirichletSystem
from mosaicdd.problems.equations import Equation

_ROWS = 256  # rows of nodes worked on at a time


class DiscreteResidual:
    """Measures fields of one block's region; planned once.

    Parameters
    ----------
    region
        An example of a region of the block, ``block.cells + 1`` nodes per axis.
    """

    def __init__(self, grid: ProcessGrid, block: Block, equation: Equation, region: torch.Tensor):
        self._grid = grid
        self._block = block
        self._system = DirichletSystem(equation, block.lattice.grid.shape)
        self._exchange = HaloExchange(
            grid,
            [region],
            lambda direction: ghost_sent(block, direction),
            lambda direction: ghost_received(block, direction),
        )

    def __call__(self, region: torch.Tensor, boundary: Boundary) -> float:
        """Return ``|A u| / |b|``; nodes of the region that others own are overwritten.

        For boundary data without any effect (``b = 0``) it is ``|A u|``.
        """
        (y, x), _ = self._block.owned_nodes()
        for outside in (slice(None, y.start), slice(y.stop, None)):
            region[outside] = 0.0
        for outside in (slice(None, x.start), slice(x.stop, None)):
            region[:, outside] = 0.0
        self._exchange.add([region])
        inside = [
            slice(max(part.start, 1), min(part.stop, size - 1))
            for part, size in zip((y, x), region.shape, strict=True)
        ]
        square = self._grid.sum(np.array([self._square(region, *inside)]))[0]
        return float(np.sqrt(square)) / (self._system.right_hand_side_norm(boundary) or 1.0)

    def _square(self, region: torch.Tensor, rows: slice, columns: slice) -> float:
        """Return the sum of squares of ``A u`` over the nodes ``rows`` x ``columns``."""
        total = 0.0
        for start in range(rows.start, rows.stop, _ROWS):
            stop = min(start + _ROWS, rows.stop)
            field = region[start - 1 : stop + 1, columns.start - 1 : columns.stop + 1]
            total += float(self._system.apply(field).double().square().sum())
        return total
