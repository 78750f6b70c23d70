"""Blocks to the root and back."""

import numpy as np
import pytest

from mosaicdd.parallel.collect import collect, distribute

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)

COUNTS = (11, 13)


def places(grid):
    """Return the slices of every rank."""
    parts = [grid.partition(COUNTS, rank) for rank in range(grid.size)]
    return [tuple(map(slice, start, stop)) for start, stop in parts]


def collected(grid, mine):
    """Return on the root what `collect` hands it, and the order of the places."""
    result, seen = np.full(COUNTS, np.nan, mine.dtype), []

    def sink(array, place):
        seen.append(place)
        result[place] = array

    collect(grid, mine, places(grid)[grid.rank], sink)
    return result, seen


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_what_is_distributed_is_collected_again(all_dims, make_grid, dtype):
    whole = np.random.default_rng(0).standard_normal(COUNTS).astype(dtype)
    for grid in map(make_grid, all_dims):
        parts = [whole[place] for place in places(grid)]
        mine = distribute(grid, parts.__getitem__ if grid.is_root else None)
        np.testing.assert_array_equal(mine, parts[grid.rank], strict=True)
        result, seen = collected(grid, np.repeat(mine, 2, axis=1)[:, ::2])  # not contiguous
        if grid.is_root:
            np.testing.assert_array_equal(result, whole)
        assert seen == (places(grid) if grid.is_root else [])
