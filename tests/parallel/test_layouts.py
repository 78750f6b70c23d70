"""Layouts as values, without ranks: who holds and who owns what, against plain index arrays."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosaicdd.parallel.layouts.layout import Halo, Layout, Shard


@st.composite
def layouts(draw):
    """Draw a layout of 1 to 3 mesh axes and up to 12 ranks, the split even."""
    shape = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    mesh = draw(
        st.lists(st.integers(1, 4), min_size=1, max_size=3).filter(lambda m: math.prod(m) < 13)
    )
    axes = st.integers(0, len(shape) - 1)
    kinds = st.one_of(st.builds(Shard, axes), st.builds(Halo, axes, st.integers(0, 3)))
    return Layout(shape, mesh, [draw(kinds) for _ in mesh])


@given(layouts())
@settings(derandomize=True, max_examples=200)
def test_boxes_fill_the_local_array_and_every_value_has_one_owner(layout):
    owners = np.zeros(layout.shape, int)
    for rank in range(layout.size):
        filled = np.zeros(layout.local_shape(rank), int)
        for box in layout.held(rank):
            filled[box.local] += 1
        assert (filled == 1).all()
        for box in layout.owned(rank):
            owners[box.whole] += 1
    assert (owners == 1).all()


@given(layouts())
@settings(derandomize=True, max_examples=200)
def test_placements_are_splits_of_the_local_array_from_left_to_right(layout):
    # The same by plain index arrays: every placement splits what the one before has left.
    whole = np.arange(math.prod(layout.shape)).reshape(layout.shape)
    parts = [whole]
    for count, placement in zip(layout.mesh, layout.placements, strict=True):
        parts = [piece for part in parts for piece in split_array(part, placement, count)]
    for rank, part in enumerate(parts):
        np.testing.assert_array_equal(layout.cut(whole, rank), part, strict=True)


def split_array(array, placement, count):
    width = getattr(placement, "width", 0)
    places = np.arange(array.shape[placement.axis])
    kept = [
        places[max(0, own[0] - width) : own[-1] + width + 1] if len(own) else own
        for own in np.array_split(places, count)
    ]
    return [array.take(places, placement.axis) for places in kept]


def test_equal_layouts_are_equal_and_can_be_keys():
    one = Layout((4,), (2,), (Shard(0, (1, 3)),))
    assert {one: 1}[Layout([4], [2], [Shard(0, [1, 3])])] == 1
    assert one != Layout((4,), (2,), (Shard(0),))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Layout((4,), (2,), (Shard(0, (1, 2)),)), "sizes .* 3 items in all; .* array axis 4 items"),
        (lambda: Layout((4,), (2,), (Shard(0, (1, 2, 1)),)), "3 parts .* the mesh axis has 2 ranks"),
        (lambda: Layout((4,), (2,), (Shard(1),)), "Shard.axis=1.*axes 0 to 0"),
        (lambda: Layout((4,), (2, 2), (Shard(0),)), "2 placements at least, got 1"),
        (lambda: Layout((4,), (0,), (Shard(0),)), "1 rank per axis"),
        (lambda: Layout((), (1,), (Shard(0),)), "needs an axis"),
        (lambda: Layout((5,), (2,), (Shard(0),)).rows(3, 6), r"rows 3\.\.6 of an array of 5 rows"),
        (lambda: Shard(0, (5, -1)), "sizes must be >= 0"),
        (lambda: Halo(0, -1), "width of a halo"),
        (lambda: Halo(0, ((1, 2), (0, -1))), "width of a halo"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_both_numbers(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_copies_come_round_along_a_periodic_axis():
    # 6 items, of which the last stands for the first: a period of 5.
    layout = Layout((6,), (3,), (Halo(0, width=3, sizes=(2, 2, 2), period=5),))
    held = [[2, 3, 4, 0, 1, 2, 3, 4], [4, 0, 1, 2, 3, 4, 0, 1], [1, 2, 3, 4, 5, 1, 2, 3]]
    for rank, expected in enumerate(held):
        np.testing.assert_array_equal(layout.cut(np.arange(6), rank), expected)


def test_a_rank_may_have_more_copies_before_its_items_than_after():
    layout = Layout((6,), (3,), (Halo(0, width=((0, 0), (2, 1), (1, 4)), sizes=(2, 3, 1)),))
    for rank, expected in enumerate(([0, 1], [0, 1, 2, 3, 4, 5], [4, 5])):
        np.testing.assert_array_equal(layout.cut(np.arange(6), rank), expected)
        assert layout.place(rank) == (slice(expected[0], expected[-1] + 1),)


def test_the_place_of_what_is_held_goes_on_beyond_a_periodic_axis():
    layout = Layout((4, 5), (1, 2), (Halo(0, 1), Halo(1, width=2, sizes=(3, 2), period=5)))
    assert layout.place(0) == (slice(0, 4), slice(-2, 5))
    assert layout.place(1) == (slice(0, 4), slice(1, 7))
