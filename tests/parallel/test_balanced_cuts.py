"""Cuts that share loads evenly: every item once, the best that can be, and what does not fit refused."""

import itertools

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.parallel.partition import Cuts, balanced_cuts


def an_l(n):
    loads = np.ones((n, n), int)
    loads[n // 2 :, n // 2 :] = 0
    return loads


def a_disk(n):
    y, x = np.mgrid[:n, :n] - (n - 1) / 2
    return 256 * (np.hypot(y, x) < 0.48 * n)


def best_by_trying(loads, ranks):
    """Return the least largest load of all cuts of the rows."""
    return min(
        Cuts(((0, *inner, len(loads)), (0, loads.shape[1]))).largest(loads)
        for inner in itertools.combinations(range(1, len(loads)), ranks - 1)
    )


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_along_one_axis_no_other_cuts_are_better(ranks):
    rng = np.random.default_rng(0)
    for _ in range(20):
        loads = rng.integers(0, 50, (9, 3)) * rng.integers(0, 2, (9, 1))
        cuts = balanced_cuts(loads, ranks, (ranks, 1))
        assert cuts.largest(loads) == best_by_trying(loads, ranks)


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 9, 16])
@pytest.mark.parametrize("shape", [an_l, a_disk])
def test_the_largest_load_is_near_the_mean(ranks, shape):
    loads = shape(64)
    cuts = balanced_cuts(loads, ranks)
    assert cuts.dims[0] * cuts.dims[1] == ranks
    assert cuts.counts == loads.shape
    assert cuts.largest(loads) <= 1.25 * loads.sum() / ranks


@pytest.mark.parametrize("dims", [(2, 3), (5, 5), (1, 7)])
def test_given_dims_are_kept_and_every_rank_gets_an_item(dims):
    loads = np.zeros((5, 7), int)
    loads[0, 0] = 3
    cuts = balanced_cuts(loads, dims[0] * dims[1], dims)
    assert cuts.dims == dims
    for axis in cuts.axes:
        assert axis[0] == 0
        assert all(b > a for a, b in itertools.pairwise(axis))


def test_more_ranks_than_items_are_refused():
    with pytest.raises(ValueError, match="5 ranks do not fit"):
        balanced_cuts(np.ones((2, 2), int), 5)
    with pytest.raises(ValueError, match=r"dims 1x3: 3 ranks along y, but .* only 2"):
        balanced_cuts(np.ones((2, 2), int), 3, (3, 1))


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_the_partition_follows_the_cuts(comm):
    loads = an_l(24)
    with m.Ranks.of(comm) as ranks:
        cuts = ranks.balanced(loads)
        placed = ranks.fitted(loads.shape, cuts)
        covered = np.zeros(loads.shape, int)
        for rank in range(placed.size):
            covered[tuple(map(slice, *placed.partition(loads.shape, rank)))] += 1
        mine = loads[tuple(map(slice, *placed.partition(loads.shape)))].sum()
        assert placed.dims == cuts.dims
        assert (covered == 1).all()
        assert ranks.largest(mine) == cuts.largest(loads)
        with pytest.raises(ValueError, match=r"\(24, 24\) items were cut, not \(24, 25\)"):
            placed.partition((24, 25))
