"""Which coarse values of a medium are unknowns, and their numbers over the whole lattice."""

import math

import numpy as np

from mosaicdd.lattice.axes import pair
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.lattice import Lattice


class Numbering:
    """Numbers of coarse values over the whole lattice.

    Parameters
    ----------
    rows, columns
        Modes of the lattice edges inside, on lines constant in y ``(K_y - 1, K_x)``, and in x.
    nodes
        Which lattice nodes inside have a hat, ``(K_y - 1, K_x - 1)``; None for all.

    Attributes
    ----------
    modes
        ``M``.
    parts
        The numbers of the values, as the parts are.
    unknowns
        The numbers of the unknowns.
    """

    def __init__(
        self, lattice: Lattice, rows: np.ndarray, columns: np.ndarray, nodes: np.ndarray | None
    ):
        counts = (rows, columns)
        self.modes = int(max(count.max() for count in counts))
        corners = tuple(cells + 1 for cells in lattice.cells)
        edges = ((lines + 2, cells, self.modes) for lines, cells in (rows.shape, columns.shape))
        shapes = (corners, *edges)
        sizes = [math.prod(shape) for shape in shapes]
        self.size = sum(sizes)
        parts = np.split(np.arange(self.size), np.cumsum(sizes)[:-1])
        self.parts = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        hats = self.parts[0][1:-1, 1:-1]
        inner = [hats.ravel() if nodes is None else hats[nodes]]
        for part, count in zip(self.parts[1:], counts, strict=True):
            inner.append(part[1:-1][np.arange(self.modes) < count[..., None]])
        self.unknowns = np.concatenate(inner)
        self.order = np.full(self.size, -1)  # which unknown a value is
        self.order[self.unknowns] = np.arange(len(self.unknowns))

    def owned(self, block: Block) -> np.ndarray:
        """Return which unknowns a block owns."""
        parts = zip(self.parts, owned_parts(block), strict=True)
        order = self.order[np.concatenate([part[place].ravel() for part, place in parts])]
        return order[order >= 0]

    def of_elements(self, block: Block) -> np.ndarray:
        """Return the values at the corners and on the edges of a region's elements.

        ``(E, 4 + 4 M)``, both counter-clockwise, from the lower-left corner and the lower edge.
        """
        nodes, rows, columns = (
            part[place] for part, place in zip(self.parts, region_parts(block), strict=True)
        )
        corners = (nodes[:-1, :-1], nodes[:-1, 1:], nodes[1:, 1:], nodes[1:, :-1])
        columns = columns.swapaxes(0, 1)
        edges = (rows[:-1], columns[:, 1:], rows[1:], columns[:, :-1])
        values = np.concatenate([*(one[..., None] for one in corners), *edges], axis=-1)
        return values.reshape(-1, values.shape[-1])


def region_parts(block: Block) -> list[tuple[slice, slice]]:
    """Return the part of each kind of coarse values that lies in a block's region."""
    lines = pair(slice(a, b + 1) for a, b in zip(block.first, block.last, strict=True))
    cells = [slice(a, b) for a, b in zip(block.first, block.last, strict=True)]
    return [lines, (lines[0], cells[1]), (lines[1], cells[0])]


def owned_parts(block: Block) -> list[tuple[slice, slice]]:
    """Return the part of each kind that a block owns."""
    lines, cells = [], []
    for axis in (0, 1):
        part, first = block.owned_cells(axis), block.first[axis]
        lines.append(slice(block.start[axis], block.stop[axis]))
        cells.append(slice(part.start + first, part.stop + first))
    return [pair(lines), (lines[0], cells[1]), (lines[1], cells[0])]
