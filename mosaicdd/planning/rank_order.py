"""Which ranks share a node, and what then travels between nodes.

Row-wise, consecutive ranks of the process grid fill a node. In bricks, a node gets a rectangle of
the process grid, so that more neighbours lie on one node; where bricks do not divide the process
grid, its ranks are numbered brick by brick and cut into nodes all the same.
"""

from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.sharing import DIRECTIONS
from mosaicdd.parallel.partition import Dims
from mosaicdd.planning.decomposition import Decomposition

_CANDIDATES = 6


@dataclass(frozen=True)
class RankOrder:
    """A placement of the ranks on nodes.

    Parameters
    ----------
    name
        ``"row-wise"`` or ``"bricks XxY"``, ranks along x and y.
    node
        The node of every rank, ``(py, px)``.
    """

    name: str
    node: np.ndarray


@dataclass(frozen=True)
class Traffic:
    """What every rank sends in one exchange, within its node and to others.

    Parameters
    ----------
    messages, words
        Of every rank, ``(py, px)``, to ranks of its own node.
    messages_leaving, words_leaving
        The same, to ranks of other nodes.
    node
        The node of every rank, ``(py, px)``.
    """

    messages: np.ndarray
    words: np.ndarray
    messages_leaving: np.ndarray
    words_leaving: np.ndarray
    node: np.ndarray

    @property
    def words_leaving_node(self) -> np.ndarray:
        """Words that leave the node of every rank, ``(py, px)``: its ranks share its network."""
        sums = np.bincount(self.node.ravel(), weights=self.words_leaving.ravel())
        return sums[self.node]


def row_wise(dims: Dims, ranks_per_node: int) -> RankOrder:
    """Fill nodes with consecutive ranks of the process grid."""
    ranks = np.arange(dims[0] * dims[1]).reshape(dims)
    return RankOrder("row-wise", ranks // ranks_per_node)


def bricks(dims: Dims, ranks_per_node: int, brick: Dims) -> RankOrder:
    """Fill nodes with bricks of the process grid, (y, x) ranks each."""
    y, x = np.indices(dims).reshape(2, -1)
    order = np.lexsort((x, y, x // brick[1], y // brick[0]))
    node = np.empty(len(order), dtype=int)
    node[order] = np.arange(len(order)) // ranks_per_node
    return RankOrder(f"bricks {brick[1]}x{brick[0]}", node.reshape(dims))


def best_bricks(decomposition: Decomposition, ranks_per_node: int) -> RankOrder:
    """Choose the bricks that send the fewest words between nodes."""
    dims = decomposition.dims
    most = min(ranks_per_node, decomposition.ranks)
    shapes = [(most // across, across) for across in range(1, most + 1) if most % across == 0]
    # The words that leave a brick grow with its edges: a few compact shapes are enough to try.
    compact = sorted(shapes, key=sum)[:_CANDIDATES]
    words = [decomposition.words(direction) for direction in DIRECTIONS]

    def words_leaving(order: RankOrder) -> int:
        pairs = zip(words, DIRECTIONS, strict=True)
        return sum(int(sent[_leaves(order.node, direction)].sum()) for sent, direction in pairs)

    return min((bricks(dims, ranks_per_node, shape) for shape in compact), key=words_leaving)


def traffic(decomposition: Decomposition, order: RankOrder, halo: int = 1) -> Traffic:
    """Count what every rank sends within its node and to others in one exchange."""
    counts = np.zeros((4, *decomposition.dims), dtype=np.int64)
    for direction in DIRECTIONS:
        words = decomposition.words(direction, halo)
        leaves = _leaves(order.node, direction)
        counts[0] += (words > 0) & ~leaves
        counts[1] += np.where(leaves, 0, words)
        counts[2] += (words > 0) & leaves
        counts[3] += np.where(leaves, words, 0)
    return Traffic(*counts, node=order.node)


def _leaves(node: np.ndarray, direction: Dims) -> np.ndarray:
    """Say of every rank whether its neighbour in a direction is on another node."""
    here, there = [], []
    for d, n in zip(direction, node.shape, strict=True):
        here.append(slice(max(0, -d), n - max(0, d)))
        there.append(slice(max(0, d), n - max(0, -d)))
    result = np.zeros(node.shape, dtype=bool)
    result[tuple(here)] = node[tuple(here)] != node[tuple(there)]
    return result
