"""Parts of all ranks to the root, one at a time."""

import numpy as np
import pytest

from mosaicdd.parallel.collect import collect

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
