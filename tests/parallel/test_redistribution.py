"""Redistribution between random layouts, against plain slices of the whole array.

The cases are drawn by a seeded generator, the same on every rank.
"""

import dataclasses
import math
import tracemalloc
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from movements import CountedMovements

from mosaicdd.parallel.layouts.layout import Layout, LayoutRows
from mosaicdd.parallel.layouts.placements import (
    Halo,
    Merge,
    On,
    PartialSum,
    Replicate,
    Segment,
    Shard,
)
from mosaicdd.parallel.layouts.redistribution import Redistribution, norm, redistribute

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)


@dataclass(frozen=True)
class BlockCyclic:
    """Blocks dealt out in turn: a placement that the package does not know."""

    axis: int
    block: int

    merge: ClassVar[Merge] = Merge.OWNER

    def split(self, length, parts):
        starts = (range(c * self.block, length, parts * self.block) for c in range(parts))
        return [[Segment(a, min(a + self.block, length)) for a in mine] for mine in starts]


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
        choices = [
            Shard(axis, sizes),
            Halo(axis, int(draw.integers(4)), sizes),
            BlockCyclic(axis, int(draw.integers(1, 4)) * max(1, shape[axis] // 12)),
            On(int(draw.integers(parts)), axis),
            Replicate(),
            PartialSum(),
        ]
        placements.append(choices[draw.integers(len(choices))])
        if placements[-1].merge is Merge.OWNER:
            cut.add(axis)
    return Layout(shape, mesh, placements)


def random_cases(size, count=60):
    for seed in range(count):
        draw = np.random.default_rng(seed)
        shape = tuple(int(n) for n in draw.integers(0, 12, draw.integers(1, 4)))
        yield seed, draw, random_layout(draw, shape, size), random_layout(draw, shape, size)


def is_term(layout, rank):
    """Whether a rank is not the first of those whose arrays are added up."""
    return any(layout.coordinates(rank)[axis] for axis in layout.spread(Merge.SUM))


def expected(layout, whole, rank):
    """Return what a redistribution leaves on a rank: the sum on its first term, zeros on others."""
    local = layout.cut(whole, rank)
    return np.zeros_like(local) if is_term(layout, rank) else local


def scattered(layout, draw, whole, rank):
    """Return a rank's array of a layout; terms are random, halos hold what must not be read."""
    terms = [
        parts
        for parts, p in zip(layout.mesh, layout.placements, strict=True)
        if p.merge is Merge.SUM
    ]
    number = (
        np.ravel_multi_index(
            [
                c
                for c, p in zip(layout.coordinates(rank), layout.placements, strict=True)
                if p.merge is Merge.SUM
            ],
            terms,
        )
        if terms
        else 0
    )
    parts = draw.integers(-(2**40), 2**40, (math.prod(terms), *whole.shape)).astype(whole.dtype)
    parts[0] = whole - parts[1:].sum(axis=0)  # whole numbers below 2**53: exact
    cut = layout.cut(parts[number], rank)
    local = np.full_like(cut, np.nan)
    for box in layout.owned(rank):
        local[box.local] = cut[box.local]
    return local


def test_between_random_layouts_there_and_back_gives_the_array_exactly(ranks):
    for seed, draw, source, target in random_cases(ranks.size):
        whole = draw.integers(-(2**40), 2**40, source.shape).astype(float)
        mine = scattered(source, draw, whole, ranks.rank)
        there = redistribute(mine, source, target, ranks)
        note = f"seed {seed}: {source} -> {target}"
        np.testing.assert_array_equal(there, expected(target, whole, ranks.rank), note, strict=True)
        back = redistribute(there, target, source, ranks)
        np.testing.assert_array_equal(back, expected(source, whole, ranks.rank), note, strict=True)


def test_a_rank_holds_its_source_its_target_and_the_terms_of_others(ranks):
    # The plan's numpy arrays are what others send of a sum, to the byte, and else nothing. A call adds the target; where
    # terms are added, numpy's own buffers of 8192 values for each of three operands; and the
    # interpreter's small objects. The last two do not grow with the array.
    values = 1_200_000
    small = 3 * np.getbufsize() * 8 + 20_000  # bytes
    for draw in map(np.random.default_rng, range(12)):
        shape = [(values,), (500, values // 500), (60, 50, values // 3000)][draw.integers(3)]
        source, target = (random_layout(draw, shape, ranks.size) for _ in range(2))
        array = np.ones(source.local_shape(ranks.rank))
        tracemalloc.start()
        plan = Redistribution(source, target, ranks, array.dtype)
        arrays = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)]
        )
        held = sum(trace.size for trace in arrays.traces)
        terms = terms_of_others(source, target, ranks.rank) * array.itemsize
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        out = plan(array)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        assert terms <= held <= terms + 64
        assert peak <= out.nbytes + small


def terms_of_others(source, target, rank):
    """Count the values of a sum that other ranks send to this one, by the definition."""
    if not source.spread(Merge.SUM) or is_term(target, rank):
        return 0
    count = 0
    for giver in set(range(source.size)) - {rank}:
        if all(
            source.coordinates(giver)[a] == source.coordinates(rank)[a]
            for a in source.spread(Merge.ANY)
        ):
            owned = np.zeros(source.shape, bool)
            for box in source.owned(giver):
                owned[box.whole] = True
            count += sum(np.count_nonzero(owned[box.whole]) for box in target.held(rank))
    return count


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
    mine = scattered(layout, np.random.default_rng(1), whole, ranks.rank)
    fresh = redistribute(mine, layout, layout, ranks)
    np.testing.assert_array_equal(fresh, layout.cut(whole, ranks.rank))


def test_sums_are_taken_in_the_order_of_the_ranks_to_the_last_bit(ranks):
    terms = np.random.default_rng(0).standard_normal((ranks.size, 50))
    expected = np.zeros(50)
    for term in terms:
        expected += term
    source = Layout((50,), (ranks.size,), (PartialSum(),))
    target = Layout((50,), (ranks.size,), (Replicate(),))
    total = redistribute(terms[ranks.rank], source, target, ranks)
    np.testing.assert_array_equal(total, expected)


def test_a_movement_is_one_call_in_which_only_ranks_that_have_values_for_each_other_talk(
    ranks, monkeypatch
):
    if ranks.size > 1:
        monkeypatch.setattr(type(ranks), "comm", CountedMovements(ranks.comm))
    shape = (6 * ranks.size, 4)
    rows = Layout(shape, (ranks.size,), (Shard(0),))
    halo = Layout(shape, (ranks.size,), (Halo(0, 1),))
    everywhere = Layout(shape, (ranks.size,), (Replicate(),))
    neighbours = (ranks.rank > 0) + (ranks.rank < ranks.size - 1)
    for source, target, messages in (
        (rows, rows, 0),
        (rows, halo, neighbours),
        (everywhere, halo, 0),
        (rows, everywhere, ranks.size - 1),
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
    root = Layout(whole.shape, (ranks.size,), (On(0),))
    blocks = Layout(whole.shape, (ranks.size,), (Shard(0),))
    mine = redistribute(root.cut(whole, ranks.rank), root, blocks, ranks)
    np.testing.assert_array_equal(mine, blocks.cut(whole, ranks.rank), strict=True)
    back = redistribute(mine, blocks, root, ranks)
    np.testing.assert_array_equal(back, whole if ranks.rank == 0 else whole[:0], strict=True)


def test_the_norm_counts_every_value_once(ranks):
    whole = np.random.default_rng(0).standard_normal((9, 7))
    for placement in (Shard(0), Halo(0, 2), BlockCyclic(1, 2), On(ranks.size - 1)):
        layout = Layout(whole.shape, (ranks.size,), (placement,))
        mine = layout.cut(whole, ranks.rank)
        # 63 squares in another order: a few units in the last place.
        np.testing.assert_allclose(norm(mine, layout, ranks), np.linalg.norm(whole), rtol=1e-14)


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
        if placement.merge is Merge.OWNER:
            whole.add(placement.axis)
        placements.append(placement)
    return Layout(layout.shape, layout.mesh, placements)


def test_the_adjoint_of_a_movement_has_the_same_products_for_random_layouts(ranks):
    periodic = 0
    for seed, draw, source, target in random_cases(ranks.size):
        target = around(target, draw)
        periodic += any(getattr(p, "period", None) is not None for p in target.placements)
        way = Redistribution(source, target, ranks, float)
        mine = np.random.default_rng((seed, ranks.rank))
        x, y = (mine.standard_normal(of.local_shape(ranks.rank)) for of in (source, target))
        there, back = way(x), way.adjoint()(y)
        assert back.shape == x.shape
        products = np.vdot(there, y), np.vdot(x, back)
        sizes = [np.vdot(a, a) for a in (there, y, x, back)]
        (one, other, *squares) = ranks.sum(np.array([*products, *sizes]))
        scale = np.sqrt(max(squares[0] * squares[1], squares[2] * squares[3]))
        assert abs(one - other) <= 1e-14 * scale, f"seed {seed}: {source} -> {target}"
        np.testing.assert_array_equal(way.adjoint().adjoint().adjoint()(y), back)
    assert periodic > 5


def test_what_a_layout_promises_holds_for_random_arrays(ranks):
    # Convolution, sum, norm, slices and transposition over ranks give what they give of the whole.
    for seed, draw, source, target in random_cases(ranks.size, count=30):
        note = f"seed {seed}: {source} -> {target}"
        whole = draw.integers(-(2**20), 2**20, source.shape).astype(float)
        mine = redistribute(scattered(source, draw, whole, ranks.rank), source, target, ranks)
        if target.is_partition:
            owned = [mine[box.local].sum() for box in target.owned(ranks.rank)]
            total = ranks.sum(np.array([sum(owned, 0.0)]))
            assert total[0] == whole.sum(), note
            np.testing.assert_allclose(
                norm(mine, target, ranks), np.linalg.norm(whole), rtol=1e-14, err_msg=note
            )
        turned = Layout(
            whole.T.shape, target.mesh, [turned_placement(p, whole.ndim) for p in target.placements]
        )
        np.testing.assert_array_equal(mine.T, expected(turned, whole.T, ranks.rank), note)
        if not target.spread(Merge.SUM) and len(whole) > 1:
            start, stop = sorted(draw.choice(len(whole) + 1, 2, replace=False).tolist())
            rows, root = (
                LayoutRows(target, start, stop),
                Layout((stop - start, *whole.shape[1:]), (ranks.size,), (On(0),)),
            )
            part = Redistribution(rows, root, ranks, float)(mine)
            np.testing.assert_array_equal(part, root.cut(whole[start:stop], ranks.rank), note)


def turned_placement(placement, axes):
    if placement.merge is not Merge.OWNER:
        return placement
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
