"""Interfaces of the blocks of ranks, and the exchange of their halos, as the engine plans it."""

import numpy as np
import torch

from mosaicdd.grid.grid import Grid
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.parallel.halo import HaloExchange
from mosaicdd.schwarz.block import Lattice
from mosaicdd.schwarz.interface import Interface, interface_received, interface_sent
from mosaicdd.schwarz.layouts import block_of


def lattice_of(cells, m=4, spacing=0.125):
    """Return a lattice of so many lattice cells, with subdomains of ``m`` cells."""
    subdomain = Subdomain(m, spacing * m, len(cells))
    return Lattice(Grid(tuple(n * m // 2 for n in cells), spacing), subdomain)


def block(ranks, lattice, halo=1):
    """Return this rank's block."""
    return block_of(ranks, lattice, ranks.rank, halo)


def like_of(block):
    """Return an interface of a block, not filled."""
    return Interface(block, device=torch.device("cpu"), dtype=torch.float64)


def cut(block, field):
    """Return the interface of a block out of a whole field."""
    interface = like_of(block)
    interface.take(torch.from_numpy(np.ascontiguousarray(field[block.nodes]))[None])
    return interface


def interface_exchange(ranks, block, like=None, **options):
    """Return the exchange of the halos of interfaces of a block."""
    lines = (like or like_of(block)).lines
    ends = (lambda way: interface_sent(block, way)), (lambda way: interface_received(block, way))
    return HaloExchange(ranks, lines, *ends, **options)
