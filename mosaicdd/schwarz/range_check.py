"""Which subdomains of a result have boundary data outside of the network's training range."""

import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.transfer import Transfer, batch_shape, batches
from mosaicdd.local_solvers.base import OutsideRange


def subdomains_outside(
    v: Interface, block: Block, outside: OutsideRange, batch_subdomains: int
) -> torch.Tensor:
    """Return booleans per owned subdomain, ``block.subdomains``.

    Parameters
    ----------
    outside
        From the local solver; see `LocalSolver.outside_range`.
    batch_subdomains
        Subdomains looked at in one go.
    """
    transfer = Transfer(block, device=v.flat.device, dtype=v.flat.dtype)
    result = torch.zeros(block.subdomains, dtype=torch.bool, device=v.flat.device)
    for batch in batches(block.subdomains, batch_subdomains):
        rows, columns = batch_shape(batch)
        perimeters = v.flat.new_empty(rows * columns, 4 * transfer.m)
        transfer.restrict(v, batch, perimeters)
        result[batch] = outside(perimeters).view(rows, columns)
    return result
