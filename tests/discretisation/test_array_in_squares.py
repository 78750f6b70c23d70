"""Arrays that store few squares answer as the arrays that they stand for."""

import numpy as np
import pytest

from mosaicdd.discretisation.squares_of_nodes import SIDE, ArrayInSquares

SQUARES = 4, 5


def stored(rng, count=6):
    """Return an array in squares, and the array; 6 squares hold values, others 7 or, outside, 3."""
    kinds = rng.choice([-1, -2], SQUARES)
    kinds.flat[rng.choice(kinds.size, count, replace=False)] = np.arange(count)
    plain, values = np.array([3.0, 7.0]), rng.random((count, SIDE, SIDE))
    whole = np.where(kinds < 0, plain[np.minimum(kinds, -1)], 0.0).repeat(SIDE, 0).repeat(SIDE, 1)
    for number, one in enumerate(values):
        y, x = SIDE * np.argwhere(kinds == number)[0]
        whole[y : y + SIDE, x : x + SIDE] = one
    alone = np.broadcast_to(plain[:, None, None], (2, SIDE, SIDE))
    return ArrayInSquares(kinds, plain, np.concatenate([values, alone])), whole


KEYS = (
    (slice(3, 40), slice(5, 77)),
    (slice(None, -1), slice(1, None)),
    (slice(None, None, 16), slice(None, -1)),
    (slice(2, None), slice(8, None, 16)),
    slice(5, None, 7),
    np.array([0, 9, 63]),
    (np.array([4, 60, 17]), np.array([79, 0, 33])),
    20,
)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_all_that_is_asked_for_is_that_of_the_array(key):
    one, whole = stored(np.random.default_rng(0))
    assert one.shape == whole.shape
    np.testing.assert_array_equal(one, whole)
    np.testing.assert_array_equal(one[key], whole[key])
    np.testing.assert_array_equal(one[3:60, 17:79].T[1:50, 4:], whole[3:60, 17:79].T[1:50, 4:])
    part, same = one[3:60, 17:79], whole[3:60, 17:79]
    np.testing.assert_array_equal(part[::8], same[::8])
    np.testing.assert_array_equal(part[:, ::8], same[:, ::8])


def test_what_is_computed_with_it_is_an_array():
    one, whole = stored(np.random.default_rng(0))
    other, same = 2 * one, 2 * whole
    np.testing.assert_array_equal(one - one[::1], np.zeros(whole.shape))
    np.testing.assert_array_equal(-one / other, -whole / same)
    total = same.copy()
    total += one - 1
    np.testing.assert_array_equal(total, same + (whole - 1))
