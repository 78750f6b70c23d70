"""Arrays to and from rank 0, in portions of rows."""

import tracemalloc

import numpy as np
import pytest

from mosaicdd.parallel.layouts.layout import Halo, Layout, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution, rows_from_root, rows_to_root

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)


def layouts(shape, all_dims):
    for dims in all_dims:
        for placements in (
            (Shard(0), Shard(1)),
            (Halo(0, 2), Halo(1, 1)),
            (Shard(1), Shard(1)),
            (Shard(0, (*[0] * (dims[0] - 1), shape[0])), Halo(0, 1)),
        ):
            yield Layout(shape, dims, placements)


@pytest.mark.parametrize("rows", [1, 4, 11, 100])
def test_what_comes_from_the_root_goes_back_to_it(ranks, all_dims, rows):
    whole = np.random.default_rng(0).standard_normal((11, 7))
    for layout in layouts(whole.shape, all_dims):
        source = whole.__getitem__ if ranks.rank == 0 else None
        mine = rows_from_root(source, layout, ranks, whole.dtype, rows=rows)
        np.testing.assert_array_equal(mine, layout.cut(whole, ranks.rank), strict=True)
        result, places = np.full_like(whole, np.nan), []

        def sink(portion, place, result=result, places=places):
            result[place] = portion
            places.append(place)

        rows_to_root(mine, layout, ranks, sink, rows=rows)
        if ranks.rank == 0:
            np.testing.assert_array_equal(result, whole)
            assert places == [slice(a, min(a + rows, 11)) for a in range(0, 11, rows)]
        else:
            assert places == []


def test_the_root_holds_a_portion_and_a_message_and_never_the_array(ranks):
    shape, rows = (2000, 300), 50
    layout = Layout(shape, (1, ranks.size), (Shard(0), Shard(1)))
    mine = np.ones(layout.local_shape(ranks.rank))
    portion = 8 * rows * shape[1]
    tracemalloc.start()
    rows_to_root(mine, layout, ranks, lambda portion, place: None, rows=rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A message is at most a portion; the interpreter's objects do not grow with the array.
    assert peak <= 2 * portion + 30_000


def test_rows_outside_of_the_window_stay_as_they_are(ranks):
    some = np.random.default_rng(0).standard_normal((3, 4))
    source = Layout((3, 4), (ranks.size,), (Shard(0),))
    layout = Layout((9, 4), (ranks.size,), (Shard(1),))
    mine = np.full(layout.local_shape(ranks.rank), -1.0)
    move = Redistribution(source, layout.rows(4, 7), ranks, float)
    move(source.cut(some, ranks.rank), mine)
    whole = np.full((9, 4), -1.0)
    whole[4:7] = some
    np.testing.assert_array_equal(mine, layout.cut(whole, ranks.rank))


def test_rows_that_are_not_there_are_refused():
    layout = Layout((5,), (2,), (Shard(0),))
    with pytest.raises(ValueError, match=r"rows 3\.\.6 of an array of 5 rows"):
        layout.rows(3, 6)
