"""How a lattice lies over a process grid, for any number of ranks.

Blocks are of few kinds: along an axis they differ in size by one subdomain at most, and in whether
they touch the domain's edge. What a rank sends is evaluated once per kind, by the same function
that plans the halo exchange, and handed to all ranks of the kind. Arrays over ranks have the shape
``dims``, ``(py, px)``; row-wise, that is the order of the ranks.
"""

import dataclasses
import functools
import math

import numpy as np

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.sharing import Direction, interface_sent
from mosaicdd.parallel.partition import Dims, require_fitting, share


class Decomposition:
    """The blocks of all ranks of a process grid.

    Parameters
    ----------
    dims
        Ranks per axis, (y, x).

    Raises
    ------
    ValueError
        If an axis has fewer subdomains than ranks.
    """

    def __init__(self, lattice: Lattice, dims: Dims):
        require_fitting(dims, lattice.subdomains)
        self.lattice = lattice
        self.dims = dims
        axes = [_kinds(*axis) for axis in zip(lattice.subdomains, dims, strict=True)]
        self._kind = np.ix_(*(kind for _, kind in axes))
        (shares_y, _), (shares_x, _) = axes
        self._blocks = [
            [Block(lattice, (y[0] + 1, x[0] + 1), (y[1] + 1, x[1] + 1)) for x in shares_x]
            for y in shares_y
        ]

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return math.prod(self.dims)

    @functools.cached_property
    def sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Subdomains per axis of every rank, two arrays ``(py, px)``."""
        return tuple(self._of_ranks(lambda block, a=a: block.subdomains[a]) for a in (0, 1))

    @functools.cached_property
    def open_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends per axis of every rank's block, 0 to 2, that have a neighbour: ``(py, px)``."""
        return tuple(self._of_ranks(lambda block, a=a: 2 - sum(block.at_edge(a))) for a in (0, 1))

    @functools.cached_property
    def subdomains(self) -> np.ndarray:
        """Owned subdomains of every rank, ``(py, px)``."""
        return self.sides[0] * self.sides[1]

    @functools.cached_property
    def interface(self) -> np.ndarray:
        """Stored interface values of every rank, ``(py, px)``."""
        return self._of_ranks(lambda block: sum(math.prod(block.line_shape(a)) for a in (0, 1)))

    @functools.cached_property
    def region(self) -> tuple[np.ndarray, np.ndarray]:
        """Grid nodes per axis of every rank's stored region, two arrays ``(py, px)``."""
        return tuple(self._of_ranks(lambda block, a=a: block.cells[a] + 1) for a in (0, 1))

    def words(self, direction: Direction, halo: int = 1) -> np.ndarray:
        """Count the values that every rank sends in a direction in one exchange, ``(py, px)``.

        Parameters
        ----------
        halo
            Depth in lattice cells. Zero words where there is no neighbour.
        """
        return self._of_ranks(
            lambda block: _words(dataclasses.replace(block, halo=halo), direction)
        )

    def _of_ranks(self, number) -> np.ndarray:
        """Evaluate ``number(block)`` once per kind of block, for all ranks ``(py, px)``."""
        return np.array([[number(block) for block in row] for row in self._blocks])[self._kind]


def _kinds(count: int, ranks: int) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Return a share of each kind along an axis, and which kind each coordinate has."""
    coordinate = np.arange(ranks)
    larger = coordinate < count % ranks
    code = 4 * larger + 2 * (coordinate == 0) + (coordinate == ranks - 1)
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    return [share(count, ranks, int(c)) for c in first], kind


def _words(block: Block, direction: Direction) -> int:
    """Count the values of the message of a block to its neighbour in a direction."""
    for d, start, stop, cells in zip(
        direction, block.start, block.stop, block.lattice.cells, strict=True
    ):
        if (d < 0 and start == 1) or (d > 0 and stop == cells):
            return 0
    return sum(
        math.prod(
            len(range(*part.indices(n)))
            for part, n in zip(parts, block.line_shape(axis), strict=True)
        )
        for axis, parts in interface_sent(block, direction)
    )
