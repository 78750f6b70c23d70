"""Counting the subdomains outside of the training range."""

import numpy as np
import pytest
import torch

from mosaicdd.schwarz.local_solvers.network_solver import subdomains_outside


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("batch", [1, 5, 1000])
def test_each_subdomain_is_judged_by_its_perimeter(
    batch, make_lattice, make_ranks, all_dims, block_of, interface_of, random_field
):
    lattice = make_lattice((7, 11))
    field = random_field(lattice)
    y, x = lattice.subdomain.perimeter.T
    s = lattice.spacing
    for ranks in map(make_ranks, all_dims):
        block = block_of(ranks, lattice)
        found = subdomains_outside(
            interface_of(block, field), block, lambda g: g.sum(dim=1) > 0, batch
        )
        assert found.dtype == torch.bool
        (found,) = found
        for i, j in np.ndindex(block.subdomains):
            corner = (block.start[0] + i - 1) * s, (block.start[1] + j - 1) * s
            assert found[i, j].item() == (field[corner[0] + y, corner[1] + x].sum() > 0)
