"""Messages and words per iteration, and memory, of a rank: by subdomains, and by multigrid.

Blocks of subdomains are of few kinds: along an axis they differ in size by one subdomain at most, and in whether
they touch the domain's edge. What a rank sends is evaluated once per kind, by the function that plans the halo
exchange. The boxes of multigrid are those of the engine (`solvers.multigrid.level_partition`). So counts are exact.
Arrays over ranks have the shape of the process grid, ``(py, px)`` or ``(pz, py, px)``.

Memory of the rank that needs most, in bytes.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mosaicdd.discretisation.system import EQUATIONS_IN_SPACE, MULTIGRID, PER_PROBLEM, WAVES
from mosaicdd.grid.partition import NodeBoxes
from mosaicdd.parallel.halo import Direction, directions
from mosaicdd.parallel.partition import Dims, require_fitting, share
from mosaicdd.schwarz.block import Block, Lattice
from mosaicdd.schwarz.interface import interface_sent
from mosaicdd.schwarz.layouts import coarse_is_replicated, count_of_sums, fill_batch
from mosaicdd.solvers.multigrid.level_partition import LevelPartition
from mosaicdd.solvers.settings import SolveSettings

_DOUBLE, _SINGLE = 8, 4  # bytes: of sums and coarse nodes, of values in a cycle of multigrid
_REDISTRIBUTIONS = 4  # of a coarse solve that is shared, see `solvers.transforms.sine_solve`
_SUMS = 3  # of an iteration by multigrid, over all ranks


@dataclass(frozen=True)
class Counts:
    """Messages and bytes that ranks send in one iteration."""

    # messages, bytes: of halo exchanges, over all ranks
    messages: int
    bytes: int
    # most_messages, most_bytes: each of the rank that sends most
    most_messages: int
    most_bytes: int
    # Bytes per rank of the collectives. Subdomains: those that arrive from the all-gather or, where the coarse
    # solve is shared, that a rank sends in its redistributions. Multigrid: of the level that all ranks have, and sums
    gathered_bytes: int

    @classmethod
    def of(cls, messages: np.ndarray, size: np.ndarray, gathered: int) -> "Counts":
        """Return the counts from the messages and the bytes of every rank."""
        return cls(
            *(int(n) for n in (messages.sum(), size.sum(), messages.max(), size.max(), gathered))
        )


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

    @property
    def replicated(self) -> bool:
        """Whether every rank solves the whole coarse problem."""
        return coarse_is_replicated(math.prod(self.lattice.subdomains), self.ranks)

    @functools.cached_property
    def sides(self) -> tuple[np.ndarray, ...]:
        """Subdomains per axis of every rank, an array ``(py, px)`` for each."""
        return self._per_axis(lambda block, axis: block.subdomains[axis])

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


def count_subdomains(decomposition: Decomposition, word: int) -> Counts:
    """Count one iteration on subdomains, whose interface values have so many bytes."""
    words = [decomposition.words(way) for way in directions(len(decomposition.dims))]
    messages = np.sum([sent > 0 for sent in words], axis=0)
    return Counts.of(messages, np.sum(words, axis=0) * word, _coarse_bytes(decomposition))


def _coarse_bytes(decomposition: Decomposition) -> int:
    if decomposition.ranks == 1:
        return 0
    sums = decomposition.ranks * count_of_sums(1) * _DOUBLE
    if decomposition.replicated:
        return math.prod(decomposition.lattice.subdomains) * _DOUBLE + sums
    return _REDISTRIBUTIONS * int(decomposition.subdomains.max()) * _DOUBLE + sums


def count_levels(levels: Sequence[LevelPartition], dims: Dims) -> Counts:
    """Count one iteration by multigrid, whose last level every rank has whole."""
    messages, words = np.zeros((2, *dims), np.int64)
    for level in levels[:-1]:
        exchanges = 2 + level.twice  # on the way down and up, and between two sweeps
        for way in directions(len(dims)):
            sent = level.sent(way)
            messages += exchanges * (sent > 0)
            words += exchanges * sent
    gathered = _DOUBLE * (levels[-1].count + _SUMS) if len(levels) > 1 else 0
    return Counts.of(messages, words * _SINGLE, gathered)


def levels_on(boxes: NodeBoxes, dims: Dims, *, values_given: bool) -> list[LevelPartition]:
    """Return the partitions of the levels over ranks on dims, down to the first that every rank has whole.

    ``values_given``: on all sides of a rectangle or box.
    """
    ranges = boxes.unknown_ranges(boxes.along(dims), values_given=values_given)
    levels = [LevelPartition(ranges, 2, boxes.periodic)]
    while levels[-1].several:
        levels.append(levels[-1].coarser())
    return levels


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


# A process after one small solve (Linux, torch 2.13): of squares; of cubes, by their network; with compiled loops.
_SQUARES, _CUBES, _COMPILED = 320_000_000, 610_000_000, 430_000_000
_FLOAT64 = 8
_VECTORS = 3  # interfaces: the last one and the next, and the result of a network while its error is estimated
_COARSE_ARRAYS = 4  # residual, symbol, correction, and one for the transforms


def memory_of_subdomains(decomposition: Decomposition, dtype: str) -> dict[str, int]:
    """Return bytes by part: the process, interfaces, coarse nodes, a batch of subdomains, a strip of the field."""
    lattice = decomposition.lattice
    m, word, axes = lattice.subdomain.cells, np.dtype(dtype).itemsize, len(decomposition.dims)
    owned = int(decomposition.subdomains.max())
    coarse_nodes = math.prod(lattice.subdomains)
    if not decomposition.replicated:
        workers = min(decomposition.ranks, *lattice.subdomains[:2])  # as many as rows and columns
        coarse_nodes = max(owned, math.ceil(coarse_nodes / workers))
    batch = SolveSettings().batch_subdomains
    inside = (m - 1) ** axes
    perimeter = (m + 1) ** axes - inside
    swept = min(batch, owned) * (perimeter + axes * (m - 1) ** (axes - 1))
    filled = min(fill_batch(batch), owned) * (perimeter + inside)
    columns = math.prod(int(region.max()) for region in decomposition.region[1:])
    rows = 2 + max(1, fill_batch(batch) * m ** (axes - 1) // columns) * m
    return _with_total(
        {
            "base": _CUBES if axes == 3 else _SQUARES,
            "interface": _VECTORS * int(decomposition.interface.max()) * word,
            "coarse": _COARSE_ARRAYS * coarse_nodes * _FLOAT64,
            "buffers": (swept + filled) * word,
            "strip": min(rows, int(decomposition.region[0].max())) * columns * word,
        }
    )


def memory_of_levels(levels: Sequence[LevelPartition]) -> dict[str, int]:
    """Return bytes by part: the process, and all levels of multigrid with one problem."""
    return _with_total({"base": _COMPILED, "levels": int(MULTIGRID * _on_one_rank(levels))})


def levels_over_share(levels: Sequence[LevelPartition], ranks: int) -> float:
    """Return the nodes of the rank that has most, copies included, over an even share."""
    return _on_one_rank(levels) * ranks / levels[0].count


def bytes_by_transforms(nodes: int, ranks: int, problems: int, *, equations: bool) -> int:
    """Return bytes per rank where coefficients are numbers; ``equations``: those of all nodes are held, too."""
    each = WAVES + EQUATIONS_IN_SPACE * equations + PER_PROBLEM * problems
    return _COMPILED + each * nodes // ranks


def _on_one_rank(levels: Sequence[LevelPartition]) -> float:
    """Return the nodes of all levels over the sum of a geometric series: those of a finest level as large."""
    return sum(int(level.held().max()) for level in levels) * (1 - 0.5 ** len(levels[0].ranges))


def _with_total(parts: dict[str, int]) -> dict[str, int]:
    return parts | {"total": sum(parts.values())}
