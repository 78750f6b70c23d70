"""Work of some ranks done by all, against what each would do alone."""

import numpy as np
import pytest

from mosaicdd.parallel.even_shares import evenly

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)


@pytest.mark.parametrize("seed", range(6))
def test_rows_come_back_in_order_however_they_are_spread(ranks, seed):
    draw = np.random.default_rng(seed)
    counts = draw.integers(0, 12, ranks.size) * draw.integers(0, 2, ranks.size)
    rows = np.random.default_rng((seed, ranks.rank)).random((counts[ranks.rank], 3))
    did = []

    def work(rows):
        did.append(len(rows))
        return rows[:, :2] ** 2 + rows[:, 2:]

    np.testing.assert_array_equal(evenly(rows, work, ranks), rows[:, :2] ** 2 + rows[:, 2:])
    (mine,) = did
    every = np.array(ranks.allgather(mine))
    assert every.sum() == counts.sum()
    assert every.max() <= max(np.ceil(counts.mean()), 1.2 * counts.mean())


def test_shares_that_are_even_enough_stay_where_they_are(ranks):
    rows = np.full((10 + (ranks.rank == 0), 1), float(ranks.rank))
    assert evenly(rows, lambda rows: rows, ranks) is rows
