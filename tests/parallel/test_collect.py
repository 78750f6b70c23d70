"""Parts of all ranks to the root, one at a time; and all coarse nodes on every rank."""

import numpy as np
import pytest
import torch

from mosaicdd.parallel.collect import NodeGather, collect

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)

COUNTS = (11, 13)


def place_of(ranks):
    """Return the slices of this rank."""
    return tuple(map(slice, *ranks.partition(COUNTS)))


@RANKS
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_what_all_ranks_hand_over_makes_up_the_whole(all_dims, make_ranks, dtype, rows):
    whole = np.random.default_rng(0).standard_normal(COUNTS).astype(dtype)
    for ranks in map(make_ranks, all_dims):
        y, x = place_of(ranks)
        starts = range(y.start, y.stop, rows)
        places = [(slice(start, min(start + rows, y.stop)), x) for start in starts]
        strided = np.repeat(whole, 2, axis=1)[:, ::2]  # not contiguous
        result = np.full(COUNTS, np.nan, dtype)

        def sink(array, place, result=result):
            assert np.isnan(result[place]).all()
            result[place] = array

        collect(ranks, ((strided[place], place) for place in places), dtype, sink)
        if ranks.is_root:
            np.testing.assert_array_equal(result, whole)


@RANKS
def test_a_rank_makes_its_parts_while_it_hands_them_over(make_ranks):
    ranks = make_ranks()
    buffer, made = np.empty((1, 3)), []

    def parts():
        for number in range(4):
            buffer[:] = 10 * ranks.rank + number  # overwrites what has been handed over
            made.append(number)
            yield buffer, (slice(ranks.rank, ranks.rank + 1), slice(0, 3))

    seen = []
    collect(ranks, parts(), float, lambda array, place: seen.append((place[0].start, array[0, 0])))
    assert made == [0, 1, 2, 3]
    if ranks.is_root:
        assert seen == [(rank, 10 * rank + n) for n in range(4) for rank in range(ranks.size)]


def places_of(ranks, counts, overlap=0):
    """Return the numbers of each rank's block of nodes, and of some of its lower neighbours'."""
    numbers = np.arange(np.prod(counts)).reshape(counts)
    blocks = (ranks.partition(counts, rank) for rank in range(ranks.size))
    return [
        numbers[tuple(slice(max(0, a - overlap), b) for a, b in zip(*block, strict=True))].ravel()
        for block in blocks
    ]


@RANKS
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
