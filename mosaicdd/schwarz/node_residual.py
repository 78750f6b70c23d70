"""What a filled field differs by, at the centres of its tiles, from the interface it was filled from.

There the partition of unity knows one subdomain only, so the field is ``T v``, and this is the
residual of the fixed point at the result, for local solvers of any kind. Elsewhere the field comes
from one subdomain and ``T v`` from two.
"""

import math

import numpy as np

from mosaicdd.lattice.interface import Interface
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.fill import Strip


class NodeResidual:
    """Adds up the squares of ``T v - v`` over strips of the field, for each problem.

    Parameters
    ----------
    v
        What the field is filled from.
    """

    def __init__(self, ranks: Ranks, v: Interface):
        self._ranks = ranks
        self._v = v
        self._squares = np.zeros(v.problems)

    def add(self, strip: Strip) -> None:
        """Take the owned centres of tiles in a strip into account: lattice nodes with odd indices."""
        block, s = self._v.block, self._v.block.lattice.spacing
        filled, lines, nodes = [], [], []
        for axis, place in enumerate(strip.place):
            low = max(-(-place.start // s), block.start[axis])
            low += 1 - low % 2
            high = max(low, min(-(-place.stop // s), block.stop[axis]))
            filled.append(slice(low * s - place.start, max(0, high * s - place.start), 2 * s))
            lines.append(slice(low - block.first[axis], high - block.first[axis], 2))
            nodes.append(slice(low * s - block.origin[axis], high * s - block.origin[axis], 2 * s))
        difference = strip.owned[:, *filled] - self._v.lines[0][:, lines[0], nodes[1]]
        self._squares += difference.double().square().sum(dim=(1, 2)).cpu().numpy()

    def root_mean_square(self) -> np.ndarray:
        """Return the root mean square of ``T v - v`` over the centres of the tiles."""
        centres = math.prod(cells // 2 for cells in self._v.block.lattice.cells)
        return np.sqrt(self._ranks.sum(self._squares) / centres)
