"""What a filled field differs by, on the lattice lines, from the interface that it was filled from.

On the lines the field is ``T v``, so this is the residual of the fixed point at the result.
"""

import numpy as np

from mosaicdd.lattice.interface import Interface
from mosaicdd.parallel.process_grid import ProcessGrid
from mosaicdd.schwarz.fill import Strip


class LineResidual:
    """Adds up the squares of ``T v - v`` over strips of the field, for each problem.

    Parameters
    ----------
    v
        What the field is filled from.
    """

    def __init__(self, grid: ProcessGrid, v: Interface):
        self._grid = grid
        self._v = v
        self._squares = np.zeros(v.problems)

    def add(self, strip: Strip) -> None:
        """Take the owned nodes of a strip into account that lie on lattice lines."""
        block, s = self._v.block, self._v.block.lattice.spacing
        (_, nodes), columns = block.owned(0), block.owned(1)[0]
        rows, across = strip.place
        on_row = np.arange(rows.start, rows.stop) % s == 0
        inside = (np.arange(rows.start, rows.stop) > 0) & on_row
        inside &= np.arange(rows.start, rows.stop) < block.lattice.grid.shape[0]
        lines = np.arange(rows.start, rows.stop)[inside] // s - block.first[0]
        offset = block.origin[1] - across.start
        owned = strip.owned
        along_rows = owned[:, inside, nodes.start + offset : nodes.stop + offset]
        self._add(along_rows, self._v.lines[0][:, lines, nodes])
        vertical = slice(columns.start * s + offset, (columns.stop - 1) * s + offset + 1, s)
        between = np.arange(rows.start, rows.stop)[~on_row] - block.origin[0]
        along_columns = owned[:, ~on_row, vertical]
        self._add(along_columns.transpose(1, 2), self._v.lines[1][:, columns][:, :, between])

    def _add(self, filled, given) -> None:
        self._squares += (filled - given).double().square().sum(dim=(1, 2)).cpu().numpy()

    def root_mean_square(self) -> np.ndarray:
        """Return the root mean square of ``T v - v`` over the interface of each problem."""
        return np.sqrt(self._grid.sum(self._squares) / self._v.block.lattice.unknowns)
