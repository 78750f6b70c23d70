"""All coarse nodes on every rank."""

import numpy as np
import pytest
import torch

from mosaicdd.parallel.collect import NodeGather


def places_of(ranks, counts, overlap=0):
    """Return the numbers of each rank's block of nodes, and of some of its lower neighbours'."""
    numbers = np.arange(np.prod(counts)).reshape(counts)
    blocks = (ranks.partition(counts, rank) for rank in range(ranks.size))
    return [
        numbers[tuple(slice(max(0, a - overlap), b) for a, b in zip(*block, strict=True))].ravel()
        for block in blocks
    ]


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("counts", [(6, 6), (7, 11), (29, 8)])
@pytest.mark.parametrize("problems", [1, 3])
def test_every_rank_gets_all_nodes_in_their_places_and_the_sums(
    all_dims, make_ranks, counts, problems
):
    size = int(np.prod(counts))
    whole = torch.from_numpy(np.random.default_rng(0).standard_normal((problems, size)))
    for dims in all_dims:
        ranks = make_ranks(dims)
        places = places_of(ranks, counts)
        gather = NodeGather(ranks, places, size, problems=problems, sums=3)
        mine = whole[:, places[ranks.rank]]
        for factor, sums in ((1.0, []), (2.0, [1.0, 2.0 * ranks.rank]), (3.0, [0.5, 1.0, 2.0])):
            nodes, totals = gather(factor * mine, np.array(sums))
            np.testing.assert_array_equal(nodes, factor * whole)
            # Multiples of 1/2: the sums are exact.
            expected = [ranks.size * value for value in sums]
            if len(sums) == 2:
                expected[1] = 2.0 * sum(range(ranks.size))
            np.testing.assert_array_equal(totals, expected)


@pytest.mark.ranks(2, 3, 4, 6)
def test_values_of_several_ranks_for_one_node_are_added(all_dims, make_ranks):
    counts, size = (7, 9), 63
    for dims in all_dims:
        ranks = make_ranks(dims)
        places = places_of(ranks, counts, overlap=1)
        gather = NodeGather(ranks, places, size)
        nodes, _ = gather(torch.ones(1, len(places[ranks.rank])), np.empty(0))
        expected = np.bincount(np.concatenate(places), minlength=size)
        assert expected.max() > 1
        np.testing.assert_array_equal(nodes[0], expected)


@pytest.mark.ranks(1, 2, 3)
def test_a_number_that_is_none_on_one_rank_is_none_on_all(make_ranks):
    ranks = make_ranks()
    places = places_of(ranks, (6, 6))
    gather = NodeGather(ranks, places, 36, sums=1)
    mine = torch.zeros(1, len(places[ranks.rank]))
    _, totals = gather(mine, np.array([np.nan if ranks.is_root else 1.0]))
    assert np.isnan(totals).all()
