"""All lattice nodes on every rank."""

import numpy as np
import pytest
import torch

from mosaicdd.parallel.node_gather import NodeGather


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("counts", [(6, 6), (7, 11), (29, 8)])
def test_every_rank_gets_all_nodes_in_their_places(all_dims, make_grid, counts):
    whole = torch.from_numpy(np.random.default_rng(0).standard_normal(counts))
    for dims in all_dims:
        grid = make_grid(dims)
        gather = NodeGather(grid, counts, device=torch.device("cpu"))
        mine = tuple(map(slice, *grid.partition(counts)))
        for factor in (1.0, 2.0):
            np.testing.assert_array_equal(gather(factor * whole[mine]), factor * whole)
