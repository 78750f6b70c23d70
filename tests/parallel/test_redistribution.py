"""Redistribution between random layouts, and to and from rank 0, against plain slices of the whole array.

The cases are drawn by a seeded generator, the same on every rank.
"""

import tracemalloc

import numpy as np
import pytest
from movements import CountedMovements

from mosaicdd.parallel.layouts.layout import Halo, Layout, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution, rows_from_root, rows_to_root

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)


def redistribute(array, source, target, ranks):
    return Redistribution(source, target, ranks, array.dtype)(array)


def on_root(shape, ranks):
    """Return the layout of an array that rank 0 has."""
    return Layout(shape, (ranks.size,), (Shard(0, (shape[0], *[0] * (ranks.size - 1))),))


def random_layout(draw, shape, size):
    """Draw a mesh of 1 to 3 axes and its placements; uneven sizes only where an axis is whole."""
    factors = [n for n in range(1, size + 1) if size % n == 0]
    first = int(draw.choice(factors))
    second = int(draw.choice([n for n in factors if size // first % n == 0]))
    mesh = [first, second, size // first // second]
    if mesh[-1] == 1:
        mesh = mesh[: draw.integers(1, 4)] if mesh[1] == 1 else mesh[: draw.integers(2, 4)]
    placements, cut = [], set()
    for parts in mesh:
        axis, sizes = int(draw.integers(len(shape))), None
        if axis not in cut and draw.random() < 0.5:
            ends = [0, *np.sort(draw.integers(0, shape[axis] + 1, parts - 1)), shape[axis]]
            sizes = tuple(int(n) for n in np.diff(ends))
        choices = [Shard(axis, sizes), Halo(axis, int(draw.integers(4)), sizes)]
        placements.append(choices[draw.integers(len(choices))])
        cut.add(axis)
    return Layout(shape, mesh, placements)


def random_cases(size, count=60):
    for seed in range(count):
        draw = np.random.default_rng(seed)
        shape = tuple(int(n) for n in draw.integers(0, 12, draw.integers(1, 4)))
        yield seed, draw, random_layout(draw, shape, size), random_layout(draw, shape, size)


def scattered(layout, whole, rank):
    """Return a rank's array of a layout; halos hold what must not be read."""
    cut = layout.cut(whole, rank)
    local = np.full_like(cut, np.nan)
    for box in layout.owned(rank):
        local[box.local] = cut[box.local]
    return local


def test_between_random_layouts_there_and_back_gives_the_array_exactly(ranks):
    for seed, draw, source, target in random_cases(ranks.size):
        whole = draw.integers(-(2**40), 2**40, source.shape).astype(float)
        mine = scattered(source, whole, ranks.rank)
        there = redistribute(mine, source, target, ranks)
        note = f"seed {seed}: {source} -> {target}"
        np.testing.assert_array_equal(there, target.cut(whole, ranks.rank), note, strict=True)
        back = redistribute(there, target, source, ranks)
        np.testing.assert_array_equal(back, source.cut(whole, ranks.rank), note, strict=True)


def test_a_rank_holds_its_source_and_its_target(ranks):
    # A call adds the target and the interpreter's small objects, which do not grow with the array.
    values, small = 1_200_000, 20_000  # bytes
    for draw in map(np.random.default_rng, range(12)):
        shape = [(values,), (500, values // 500), (60, 50, values // 3000)][draw.integers(3)]
        source, target = (random_layout(draw, shape, ranks.size) for _ in range(2))
        array = np.ones(source.local_shape(ranks.rank))
        tracemalloc.start()
        plan = Redistribution(source, target, ranks, array.dtype)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        out = plan(array)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        assert before <= small * ranks.size
        assert peak <= out.nbytes + small


def test_a_plan_can_be_used_again_and_into_a_given_array(ranks):
    draw = np.random.default_rng(0)
    shape = (7, 9)
    source = Layout(shape, (ranks.size,), (Shard(0),))
    target = Layout(shape, (ranks.size,), (Halo(1, 2),))
    plan = Redistribution(source, target, ranks, float)
    out = np.empty(target.local_shape(ranks.rank))
    for _ in range(20):
        whole = draw.standard_normal(shape)
        assert plan(source.cut(whole, ranks.rank), out) is out
        np.testing.assert_array_equal(out, target.cut(whole, ranks.rank))


def test_a_halo_is_refreshed_by_a_redistribution_of_its_layout_to_itself(ranks):
    whole = np.random.default_rng(0).standard_normal((11, 8))
    layout = Layout(whole.shape, (1, ranks.size), (Halo(1, 1), Halo(0, 3)))
    mine = scattered(layout, whole, ranks.rank)
    fresh = redistribute(mine, layout, layout, ranks)
    np.testing.assert_array_equal(fresh, layout.cut(whole, ranks.rank))


def test_a_movement_is_one_call_in_which_only_ranks_that_have_values_for_each_other_talk(
    ranks, monkeypatch
):
    if ranks.size > 1:
        monkeypatch.setattr(type(ranks), "comm", CountedMovements(ranks.comm))
    shape = (6 * ranks.size, 4)
    rows = Layout(shape, (ranks.size,), (Shard(0),))
    halo = Layout(shape, (ranks.size,), (Halo(0, 1),))
    neighbours = (ranks.rank > 0) + (ranks.rank < ranks.size - 1)
    for source, target, messages in (
        (rows, rows, 0),
        (rows, halo, neighbours),
        (rows, on_root(shape, ranks), int(ranks.rank > 0)),
    ):
        CountedMovements.calls = CountedMovements.messages = 0
        Redistribution(source, target, ranks, float)(np.ones(source.local_shape(ranks.rank)))
        assert (CountedMovements.calls, CountedMovements.messages) == (
            int(ranks.size > 1),
            messages,
        )


@pytest.mark.parametrize("dtype", ["f4", "c16", "i8", "?"])
def test_any_type_goes_from_the_root_to_all_and_back(ranks, dtype):
    whole = np.random.default_rng(0).integers(0, 2, (5, 3)).astype(dtype)
    root = on_root(whole.shape, ranks)
    blocks = Layout(whole.shape, (ranks.size,), (Shard(0),))
    mine = redistribute(root.cut(whole, ranks.rank), root, blocks, ranks)
    np.testing.assert_array_equal(mine, blocks.cut(whole, ranks.rank), strict=True)
    back = redistribute(mine, blocks, root, ranks)
    np.testing.assert_array_equal(back, whole if ranks.rank == 0 else whole[:0], strict=True)


def around(layout, draw):
    """Return a layout with halos for shards: along one axis that comes round, some of width 0."""
    placements, whole = [], set()
    for parts, placement in zip(layout.mesh, layout.placements, strict=True):
        if isinstance(placement, Shard) and placement.axis not in whole:
            widths = draw.integers(0, 5, (parts, 2)).tolist()
            period = layout.shape[placement.axis] - int(draw.integers(2))
            placement = Halo(
                placement.axis,
                tuple(map(tuple, widths)),
                placement.sizes,
                max(period, 1) if draw.random() < 0.7 else None,
            )
        whole.add(placement.axis)
        placements.append(placement)
    return Layout(layout.shape, layout.mesh, placements)


def test_copies_come_from_their_owners_around_periodic_axes_too(ranks):
    periodic = 0
    for seed, draw, source, target in random_cases(ranks.size):
        target = around(target, draw)
        periodic += any(getattr(p, "period", None) is not None for p in target.placements)
        whole = draw.integers(-(2**40), 2**40, source.shape).astype(float)
        there = redistribute(scattered(source, whole, ranks.rank), source, target, ranks)
        note = f"seed {seed}: {source} -> {target}"
        np.testing.assert_array_equal(there, target.cut(whole, ranks.rank), note, strict=True)
    assert periodic > 5


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


def test_an_array_that_does_not_fit_is_refused(ranks):
    layout = Layout((6, 4), (ranks.size,), (Shard(0),))
    wrong = np.zeros(np.add(layout.local_shape(ranks.rank), (1, 0)))
    move = Redistribution(layout, layout, ranks, float)
    with pytest.raises(ValueError, match="source layout needs an array of shape"):
        move(wrong)
    with pytest.raises(ValueError, match=r"float64 on this rank, got .* float32"):
        move(np.zeros(layout.local_shape(ranks.rank), "f4"))


def test_layouts_that_do_not_fit_are_refused_with_both_numbers(ranks):
    here = Layout((6, 4), (ranks.size,), (Shard(0),))
    with pytest.raises(ValueError, match=r"shape \(6, 4\), the target \(6, 5\)"):
        Redistribution(here, Layout((6, 5), (ranks.size,), (Shard(0),)), ranks, float)
    more = Layout((6, 4), (ranks.size + 1,), (Shard(0),))
    with pytest.raises(ValueError, match=f"needs {ranks.size + 1} ranks, there are {ranks.size}"):
        Redistribution(here, more, ranks, float)
