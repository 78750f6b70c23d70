"""Interfaces on their way between the ranks and the root."""

import numpy as np
import pytest
import torch

from mosaicdd import Ranks
from mosaicdd.grid.grid import Grid
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.lattice import Lattice
from mosaicdd.schwarz.layouts import InterfaceMovement, block_of


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_an_interface_goes_to_the_root_and_back_as_for_a_checkpoint(comm):
    lattice = Lattice(Grid((96, 80), 0.1), Subdomain(32, 3.2))
    field = np.random.default_rng(0).standard_normal(lattice.grid.nodes)
    s = lattice.spacing
    lines = field[::s], field[:, ::s].T
    with Ranks.of(comm) as ranks:
        ranks = ranks.fitted(lattice.subdomains)
        block = block_of(ranks, lattice, ranks.rank)
        v = Interface(block, device=torch.device("cpu"), dtype=torch.float64)
        movement = InterfaceMovement(ranks, lattice, 1)
        movement.scatter(lines if ranks.is_root else None, v)
        region = field[block.nodes]
        np.testing.assert_array_equal(v.lines[0][0], region[::s])
        np.testing.assert_array_equal(v.lines[1][0], region[:, ::s].T)
        for axis in (0, 1):
            back = np.zeros_like(lines[axis])
            movement.gather(v, axis, lambda part, place, back=back: back.__setitem__(place, part))
            if ranks.is_root:
                np.testing.assert_array_equal(back, lines[axis])
