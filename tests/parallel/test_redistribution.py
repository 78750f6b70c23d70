"""Redistribution between random layouts, against plain slices of the whole array.

The cases are drawn by a seeded generator, the same on every rank.
"""

import dataclasses
import tracemalloc

import numpy as np
import pytest
from movements import CountedMovements

from mosaicdd.parallel.layouts.layout import Halo, Layout, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution

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


def test_what_a_layout_promises_holds_for_random_arrays(ranks):
    # Sum, slices and transposition over ranks give what they give of the whole.
    for seed, draw, source, target in random_cases(ranks.size, count=30):
        note = f"seed {seed}: {source} -> {target}"
        whole = draw.integers(-(2**20), 2**20, source.shape).astype(float)
        mine = redistribute(scattered(source, whole, ranks.rank), source, target, ranks)
        owned = [mine[box.local].sum() for box in target.owned(ranks.rank)]
        assert ranks.sum(np.array([sum(owned, 0.0)]))[0] == whole.sum(), note
        turned = Layout(
            whole.T.shape, target.mesh, [turned_placement(p, whole.ndim) for p in target.placements]
        )
        np.testing.assert_array_equal(mine.T, turned.cut(whole.T, ranks.rank), note)
        if len(whole) > 1:
            start, stop = sorted(draw.choice(len(whole) + 1, 2, replace=False).tolist())
            root = on_root((stop - start, *whole.shape[1:]), ranks)
            part = Redistribution(target.rows(start, stop), root, ranks, float)(mine)
            np.testing.assert_array_equal(part, root.cut(whole[start:stop], ranks.rank), note)


def turned_placement(placement, axes):
    return dataclasses.replace(placement, axis=axes - 1 - placement.axis)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("periodic", [False, True])
def test_a_convolution_of_halos_is_the_shard_of_the_convolution(ranks, width, periodic):
    draw = np.random.default_rng(0)
    whole, kernel = draw.integers(-9, 9, (29, 5)).astype(float), np.arange(1.0, 2 * width + 2)
    shard = Layout(whole.shape, (ranks.size,), (Shard(0),))
    halo = Layout(whole.shape, (ranks.size,), (Halo(0, width, period=29 if periodic else None),))
    mine = redistribute(shard.cut(whole, ranks.rank), shard, halo, ranks)
    wide = np.pad(whole, ((width, width), (0, 0)), mode="wrap" if periodic else "edge")
    if not periodic:  # the ends have no copies
        ends = (width * (ranks.rank == 0), width * (ranks.rank == ranks.size - 1))
        mine = np.pad(mine, (ends, (0, 0)), mode="edge")
    result = shard.cut(convolved(wide, kernel), ranks.rank)
    np.testing.assert_array_equal(convolved(mine, kernel), result)


def convolved(values, kernel):
    return np.stack([np.convolve(column, kernel, "valid") for column in values.T], axis=1)
