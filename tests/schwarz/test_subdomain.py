"""The order of the nodes of a subdomain."""

import numpy as np
import pytest

from mosaicdd.networks.subdomain import Subdomain


@pytest.mark.parametrize("m", [4, 6, 32])
def test_the_perimeter_runs_counter_clockwise_from_the_lower_left_corner(m):
    y, x = Subdomain(m).perimeter.T
    assert (y[0], x[0], y[1], x[1]) == (0, 0, 0, 1)
    steps = np.abs(np.roll(y, -1) - y) + np.abs(np.roll(x, -1) - x)
    assert (steps == 1).all()
    # The shoelace formula: positive when the area lies to the left.
    assert (x * np.roll(y, -1) - np.roll(x, -1) * y).sum() == 2 * m * m


@pytest.mark.parametrize("m", [4, 6, 32])
def test_the_perimeter_holds_each_edge_node_once(m):
    perimeter = Subdomain(m).perimeter
    edge = {(y, x) for y in range(m + 1) for x in range(m + 1) if {y, x} & {0, m}}
    assert len(perimeter) == 4 * m
    assert set(map(tuple, perimeter.tolist())) == edge


def test_the_interior_is_row_by_row_and_the_centre_stands_in_both_centre_lines():
    subdomain = Subdomain(4)
    field = np.arange(25).reshape(5, 5)
    np.testing.assert_array_equal(field[tuple(subdomain.interior.T)], field[1:-1, 1:-1].ravel())
    lines = field[tuple(subdomain.centre_lines.T)]
    np.testing.assert_array_equal(lines, [11, 12, 13, 7, 12, 17])


@pytest.mark.parametrize(("cells", "size"), [(5, 0.5), (0, 0.5), (8, 0.0), (8, np.nan)])
def test_an_impossible_square_is_refused(cells, size):
    with pytest.raises(ValueError, match="subdomain"):
        Subdomain(cells, size)


@pytest.mark.parametrize("cells", [2, 4, 16, 32])
def test_the_number_of_perimeter_nodes_tells_squares_and_cubes(cells):
    for axes in (2, 3):
        subdomain = Subdomain(cells, axes=axes)
        assert Subdomain.of_perimeter(len(subdomain.perimeter)) == subdomain
    for nodes in (12, 27, 1000):
        with pytest.raises(ValueError, match=r"even number|no square and no cube"):
            Subdomain.of_perimeter(nodes + 1)
