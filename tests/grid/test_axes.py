"""Where a part of the grid lies in what a rank holds."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd import axes
from mosaicdd.problems.fields.fields import Field, LocalPart

HELD = slice(30, 50), slice(8, 20)


def test_a_part_lies_where_it_was_cut_from_the_whole():
    whole = np.arange(60 * 30).reshape(60, 30)
    part = slice(35, 50), slice(8, 9)
    np.testing.assert_array_equal(whole[HELD][axes.within(part, HELD)], whole[part])


@pytest.mark.parametrize(
    "part",
    [
        (slice(10, 15), slice(8, 20)),  # numpy would count from the end, and find rows 30 to 35
        (slice(45, 55), slice(8, 20)),  # numpy would cut it short
        (slice(30, 50), slice(0, 12)),
        (slice(50, 51), slice(8, 20)),
    ],
)
def test_nodes_that_a_rank_does_not_hold_are_refused(part):
    values = np.arange(20.0 * 12).reshape(20, 12)
    field = Field("f", LocalPart(m.Domain((63, 63), 1.0).grid(), values, HELD))
    with pytest.raises(IndexError, match="is not held here, only"):
        field.sample(m.Domain((63, 63), 1.0).grid(), part)
