"""Node values that are read when they are sliced."""

import numpy as np

from mosaicdd.problems.coarser import every
from mosaicdd.problems.fields.evaluated import Sliced

VALUES = np.random.default_rng(0).standard_normal((4, 5, 7))


def test_some_problems_have_their_own_values():
    some = Sliced.some(VALUES, range(1, 3))
    assert some.shape == (2, 5, 7)
    np.testing.assert_array_equal(some[..., 1:3, 2:6], VALUES[1:3, 1:3, 2:6])


def test_one_of_some_problems_is_coarsened_alone():
    np.testing.assert_array_equal(
        every(Sliced.some(VALUES, range(1, 3)), 1, 2, 2), VALUES[2, ::2, ::2]
    )


def test_one_time_has_its_own_values():
    frame = Sliced.of_time(VALUES, 3)
    assert frame.shape == (5, 7)
    for place in ((slice(1, 3), slice(2, 6)), (..., slice(1, 3), slice(2, 6))):
        np.testing.assert_array_equal(frame[place], VALUES[3, 1:3, 2:6])
