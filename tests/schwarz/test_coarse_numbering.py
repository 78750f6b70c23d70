"""The order in which coarse values are eliminated."""

import numpy as np
import pytest

from mosaicdd.schwarz.condensed.coarse_numbering import _dissected


def strip(cells, axis):
    """Return places ``(2, n)`` in a strip two lattice cells wide and so many long, in halves of cells."""
    shape = np.array([3, 3])
    shape[axis] = 2 * cells - 1
    places = 1 + np.indices(shape).reshape(2, -1)
    return places[:, (places % 2 == 0).any(axis=0)]  # nothing stands in the middle of a cell


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("cells", [64, 32768, 65536])
def test_a_strip_is_eliminated_as_its_halves_and_the_line_between_however_long_it_is(cells, axis):
    whole, half = strip(cells, axis), strip(cells // 2, axis)
    order, fronts, _ = _dissected(*whole)
    alone, own, _ = _dissected(*half)
    count, middle = half.shape[1], np.zeros((2, 1), int)
    middle[axis] = cells
    first, second, line = np.split(whole[:, order], [count, 2 * count], axis=1)
    np.testing.assert_array_equal(first, half[:, alone])
    np.testing.assert_array_equal(second, middle + half[:, alone])
    assert (line[axis] == cells).all()
    last = own[-1] + 1
    expected = np.concatenate([own, last + own, np.full(line.shape[1], 2 * last)])
    np.testing.assert_array_equal(fronts, expected)
