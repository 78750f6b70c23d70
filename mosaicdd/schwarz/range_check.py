"""Which subdomains of a result have boundary data outside of the network's training range."""

import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.transfer import Transfer, batch_shape, batches
from mosaicdd.local_solvers.base import OutsideRange

_BATCH = {"cpu": 1024, "cuda": 65_536}  # on a processor, a cache holds what is made on the way


def subdomains_outside(
    v: Interface, block: Block, outside: OutsideRange, batch_subdomains: int
) -> torch.Tensor:
    """Return booleans per owned subdomain, ``(n, *block.subdomains)``.

    Parameters
    ----------
    outside
        From the local solver; see `LocalSolver.outside_range`.
    batch_subdomains
        Subdomains looked at in one go, at most.
    """
    transfer = Transfer(block, device=v.flat.device, dtype=v.flat.dtype)
    shape = v.problems, *block.region_subdomains
    result = torch.zeros(shape, dtype=torch.bool, device=v.flat.device)
    largest = min(batch_subdomains, _BATCH[v.flat.device.type]) // v.problems
    for batch in batches(block.ring(0), max(1, largest)):
        rows, columns = batch_shape(batch)
        perimeters = v.flat.new_empty(v.problems * rows * columns, 4 * transfer.m)
        transfer.restrict(v, batch, perimeters)
        result[:, *batch] = outside(perimeters).view(-1, rows, columns)
    return result[:, *block.ring(0)]
