"""Memory of a rank, in bytes, from what the solver keeps."""

import math
from dataclasses import dataclass

from mosaicdd.parallel.partition import coarse_is_replicated
from mosaicdd.planning.decomposition import Decomposition
from mosaicdd.planning.rates import Rates

_VECTORS = 3  # interfaces: the last two, whose difference is measured, and the next
_WIDENED = 1  # interface of the fill, with a halo of its own, where there are neighbours
_COARSE_ARRAYS = 4  # residual, symbol, correction, and what the transforms work in
_BATCH = 4096  # subdomains per call of the local solver
_FILL_BATCH = 512  # and of the fill, whose values are more
_DOUBLE = 8


@dataclass(frozen=True)
class Memory:
    """Bytes of the rank that needs most.

    Parameters
    ----------
    base
        The process itself: interpreter and libraries.
    interface
        Interface vectors.
    coarse
        Arrays over the lattice nodes, replicated or this rank's share.
    buffers
        Perimeters and values of a batch of subdomains.
    strip
        The rows of the field that a batch of subdomains fills.
    """

    base: int
    interface: int
    coarse: int
    buffers: int
    strip: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.base + self.interface + self.coarse + self.buffers + self.strip


def coarse_workers(decomposition: Decomposition) -> int:
    """Count the ranks that share a coarse solve: there are rows and columns for no more."""
    return min(decomposition.ranks, *decomposition.lattice.subdomains)


def memory_of_rank(decomposition: Decomposition, rates: Rates) -> Memory:
    """Return the memory of the rank that needs most."""
    lattice = decomposition.lattice
    m, word = lattice.subdomain.cells, rates.word
    owned = int(decomposition.subdomains.max())
    coarse_nodes = math.prod(lattice.subdomains)
    if not coarse_is_replicated(coarse_nodes, decomposition.ranks):
        coarse_nodes = max(owned, math.ceil(coarse_nodes / coarse_workers(decomposition)))
    vectors = _VECTORS + (_WIDENED if decomposition.ranks > 1 else 0)
    swept = min(_BATCH, owned) * (4 * m + 2 * (m - 1))
    filled = min(_FILL_BATCH, owned) * (4 * m + (m - 1) ** 2)
    columns = int(decomposition.region[1].max())
    rows = 2 + max(1, _FILL_BATCH * m // columns) * m
    return Memory(
        base=rates.base_bytes,
        interface=vectors * int(decomposition.interface.max()) * word,
        coarse=_COARSE_ARRAYS * coarse_nodes * _DOUBLE,
        buffers=(swept + filled) * word,
        strip=min(rows, int(decomposition.region[0].max())) * columns * word,
    )
