"""All lattice nodes on every rank."""

import numpy as np
import pytest
import torch

from mosaicdd.parallel.node_gather import NodeGather


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("counts", [(6, 6), (7, 11), (29, 8)])
@pytest.mark.parametrize("problems", [1, 3])
def test_every_rank_gets_all_nodes_in_their_places_and_the_sums(
    all_dims, make_ranks, counts, problems
):
    whole = torch.from_numpy(np.random.default_rng(0).standard_normal((problems, *counts)))
    for dims in all_dims:
        ranks = make_ranks(dims)
        gather = NodeGather(ranks, counts, problems=problems, sums=3)
        mine = (slice(None), *map(slice, *ranks.partition(counts)))
        for factor, sums in ((1.0, []), (2.0, [1.0, 2.0 * ranks.rank]), (3.0, [0.5, 1.0, 2.0])):
            nodes, totals = gather(factor * whole[mine], np.array(sums))
            np.testing.assert_array_equal(nodes, factor * whole)
            # Multiples of 1/2: the sums are exact.
            expected = [ranks.size * value for value in sums]
            if len(sums) == 2:
                expected[1] = 2.0 * sum(range(ranks.size))
            np.testing.assert_array_equal(totals, expected)


@pytest.mark.ranks(1, 2, 3)
def test_a_number_that_is_none_on_one_rank_is_none_on_all(make_ranks):
    ranks = make_ranks()
    gather = NodeGather(ranks, (6, 6), sums=1)
    start, stop = ranks.partition((6, 6))
    mine = torch.zeros(1, *(b - a for a, b in zip(start, stop, strict=True)))
    _, totals = gather(mine, np.array([np.nan if ranks.is_root else 1.0]))
    assert np.isnan(totals).all()
