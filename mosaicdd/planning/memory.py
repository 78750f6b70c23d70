"""Memory of the rank that needs most, in bytes."""

import math
from collections.abc import Sequence

import numpy as np

from mosaicdd.discretisation.system import EQUATIONS_IN_SPACE, MULTIGRID, PER_PROBLEM, WAVES
from mosaicdd.planning.counts import Decomposition
from mosaicdd.schwarz.layouts import fill_batch
from mosaicdd.solvers.multigrid.level_partition import LevelPartition
from mosaicdd.solvers.settings import SolveSettings

# A process after one small solve (Linux, torch 2.13): of squares; of cubes, by their network; with compiled loops.
_SQUARES, _CUBES, _COMPILED = 320_000_000, 610_000_000, 430_000_000
_DOUBLE = 8
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
            "coarse": _COARSE_ARRAYS * coarse_nodes * _DOUBLE,
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
