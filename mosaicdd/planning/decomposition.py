"""How a lattice lies over any number of ranks, and these over nodes: what each sends, and where to.

Blocks are of few kinds: along an axis they differ in size by one subdomain at most, and in whether
they touch the domain's edge. What a rank sends is evaluated once per kind, by the same function
that plans the halo exchange, and handed to all ranks of the kind. Arrays over ranks have the shape
``dims``, ``(py, px)``; row-wise, that is the order of the ranks.

Row-wise, consecutive ranks of the process grid fill a node. In bricks, a node gets a rectangle of
the process grid, so that more neighbours lie on one node; where bricks do not divide the process
grid, its ranks are numbered brick by brick and cut into nodes all the same.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.axes import times
from mosaicdd.lattice.block import Block
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.sharing import Direction, directions, interface_sent
from mosaicdd.parallel.partition import Dims, factors, require_fitting, share

_CANDIDATES = 6  # shapes of bricks


class Decomposition:
    """The blocks of all ranks of a process grid, (y, x), each with a subdomain at least."""

    def __init__(self, lattice: Lattice, dims: Dims):
        require_fitting(dims, lattice.subdomains)
        self.lattice = lattice
        self.dims = dims
        axes = [_kinds(*axis) for axis in zip(lattice.subdomains, dims, strict=True)]
        self._kind = np.ix_(*(kind for _, kind in axes))
        self._kinds = tuple(len(shares) for shares, _ in axes)
        kinds = itertools.product(*(shares for shares, _ in axes))
        self._blocks = [block_of(lattice, shares) for shares in kinds]

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return math.prod(self.dims)

    @functools.cached_property
    def sides(self) -> tuple[np.ndarray, ...]:
        """Subdomains per axis of every rank, an array ``(py, px)`` for each."""
        return self._per_axis(lambda block, axis: block.subdomains[axis])

    @functools.cached_property
    def open_ends(self) -> tuple[np.ndarray, ...]:
        """Ends per axis of every rank's block, 0 to 2, that have a neighbour: ``(py, px)``."""
        return self._per_axis(lambda block, axis: 2 - sum(block.at_edge(axis)))

    @functools.cached_property
    def subdomains(self) -> np.ndarray:
        """Owned subdomains of every rank, ``(py, px)``."""
        return functools.reduce(np.multiply, self.sides)

    @functools.cached_property
    def interface(self) -> np.ndarray:
        """Stored interface values of every rank, ``(py, px)``."""
        axes = range(len(self.dims))
        return self._of_ranks(lambda block: sum(math.prod(block.line_shape(a)) for a in axes))

    @functools.cached_property
    def region(self) -> tuple[np.ndarray, ...]:
        """Grid nodes per axis of every rank's stored region, an array ``(py, px)`` for each."""
        return self._per_axis(lambda block, axis: block.cells[axis] + 1)

    def words(self, direction: Direction, halo: int = 1) -> np.ndarray:
        """Count the values that every rank sends in a direction in one exchange, ``(py, px)``.

        The halo has so many lattice cells; it is zero words where there is no neighbour, or a rank
        is its own.
        """
        if all(d == 0 or ranks == 1 for d, ranks in zip(direction, self.dims, strict=True)):
            return np.zeros(self.dims, int)
        return self._of_ranks(
            lambda block: _words(dataclasses.replace(block, halo=halo), direction)
        )

    def _per_axis(self, number: Callable[[Block, int], int]) -> tuple[np.ndarray, ...]:
        """Evaluate ``number(block, axis)`` for all axes."""
        return tuple(
            self._of_ranks(lambda block, axis=axis: number(block, axis))  # type: ignore[misc]
            for axis in range(len(self.dims))
        )

    def _of_ranks(self, number: Callable[[Block], int]) -> np.ndarray:
        """Evaluate ``number(block)`` once per kind of block, for all ranks ``(py, px)``."""
        return np.array(list(map(number, self._blocks))).reshape(self._kinds)[self._kind]


def block_of(lattice: Lattice, shares: Sequence[tuple[int, int]]) -> Block:
    """Return the block of these subdomains of a lattice, the first of each axis and the one after the last."""
    start, stop = zip(*((a + 1, b + 1) for a, b in shares), strict=True)
    return Block(lattice, start, stop)


@dataclass(frozen=True)
class RankOrder:
    """A placement of the ranks on nodes."""

    name: str  # ``"row-wise"`` or ``"bricks XxY"``, ranks along x and y
    node: np.ndarray  # the node of every rank, ``(py, px)``


@dataclass(frozen=True)
class Traffic:
    """What every rank sends in one exchange, within its node and to others."""

    # messages, words: of every rank, ``(py, px)``, to ranks of its own node
    messages: np.ndarray
    words: np.ndarray
    # messages_leaving, words_leaving: the same, to ranks of other nodes
    messages_leaving: np.ndarray
    words_leaving: np.ndarray
    node: np.ndarray  # the node of every rank, ``(py, px)``

    @property
    def words_leaving_node(self) -> np.ndarray:
        """Words that leave the node of every rank, ``(py, px)``: its ranks share its network."""
        sums = np.bincount(self.node.ravel(), weights=self.words_leaving.ravel())
        return sums[self.node]


def row_wise(dims: Dims, ranks_per_node: int) -> RankOrder:
    """Fill nodes with consecutive ranks of the process grid."""
    ranks = np.arange(math.prod(dims)).reshape(dims)
    return RankOrder("row-wise", ranks // ranks_per_node)


def bricks(dims: Dims, ranks_per_node: int, brick: Dims) -> RankOrder:
    """Fill nodes with bricks of the process grid, (y, x) ranks each."""
    coordinates = np.indices(dims).reshape(len(dims), -1)
    of_bricks = coordinates // np.array(brick)[:, None]
    order = np.lexsort((*coordinates[::-1], *of_bricks[::-1]))
    node = np.empty(len(order), dtype=int)
    node[order] = np.arange(len(order)) // ranks_per_node
    return RankOrder(f"bricks {times(brick)}", node.reshape(dims))


def best_bricks(decomposition: Decomposition, ranks_per_node: int) -> RankOrder:
    """Choose the bricks that send the fewest words between nodes."""
    dims = decomposition.dims
    most = min(ranks_per_node, decomposition.ranks)
    shapes = list(factors(most, (most,) * len(dims)))
    # The words that leave a brick grow with its edges: a few compact shapes are enough to try.
    compact = sorted(shapes, key=sum)[:_CANDIDATES]
    words = [decomposition.words(direction) for direction in directions(len(decomposition.dims))]

    def words_leaving(order: RankOrder) -> int:
        pairs = zip(words, directions(len(dims)), strict=True)
        return sum(int(sent[_leaves(order.node, direction)].sum()) for sent, direction in pairs)

    return min((bricks(dims, ranks_per_node, shape) for shape in compact), key=words_leaving)


def traffic(words_sent: Callable[[Direction], np.ndarray], order: RankOrder) -> Traffic:
    """Count what every rank sends within its node and to others in one exchange.

    ``words_sent(direction)``: by every rank to its neighbour there.
    """
    counts = np.zeros((4, *order.node.shape), dtype=np.int64)
    for direction in directions(order.node.ndim):
        words = words_sent(direction)
        leaves = _leaves(order.node, direction)
        counts[0] += (words > 0) & ~leaves
        counts[1] += np.where(leaves, 0, words)
        counts[2] += (words > 0) & leaves
        counts[3] += np.where(leaves, words, 0)
    return Traffic(counts[0], counts[1], counts[2], counts[3], node=order.node)


def _kinds(count: int, ranks: int) -> tuple[list[tuple[int, int]], np.ndarray]:
    """Return a share of each kind along an axis, and which kind each coordinate has."""
    coordinate = np.arange(ranks)
    larger = coordinate < count % ranks
    code = 4 * larger + 2 * (coordinate == 0) + (coordinate == ranks - 1)
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    return [share(count, ranks, int(c)) for c in first], kind


def _words(block: Block, direction: Direction) -> int:
    """Count the values of the message of a block to its neighbour in a direction."""
    lattice = block.lattice
    for axis, d in enumerate(direction):
        first, last = block.start[axis] == 1, block.stop[axis] == lattice.cells[axis]
        if (d < 0 and first) or (d > 0 and last):
            return 0
    return sum(
        math.prod(
            len(range(*part.indices(n)))
            for part, n in zip(parts, block.line_shape(axis), strict=True)
        )
        for axis, parts in interface_sent(block, direction)
    )


def _leaves(node: np.ndarray, direction: Dims) -> np.ndarray:
    """Say of every rank whether its neighbour in a direction, beyond an edge around, is on another node."""
    return node != np.roll(node, tuple(-d for d in direction), tuple(range(node.ndim)))
