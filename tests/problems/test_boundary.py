"""Boundary data: what is refused, and which way round."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.sides.boundary import Boundary


def edges(ny=3, nx=5):
    """Return the edges of a random field on ``ny x nx`` cells."""
    field = np.random.default_rng(0).standard_normal((ny + 1, nx + 1))
    return {"bottom": field[0], "top": field[-1], "left": field[:, 0], "right": field[:, -1]}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["bottom", "top", "left", "right"])
def test_values_that_are_not_finite_are_refused_with_their_edge_and_node(name, bad):
    given = {key: edge.copy() for key, edge in edges().items()}
    given[name][2] = bad
    with pytest.raises(ValueError, match=f"edge {name} has 1 of .* at node 2"):
        Boundary.of_names(**given)


@pytest.mark.parametrize("name", ["bottom", "top"])
@pytest.mark.parametrize(("end", "other"), [(0, "left"), (-1, "right")])
def test_unequal_corners_are_refused_with_both_edges(name, end, other):
    given = edges()
    given[name] = given[name].copy()
    given[name][end] += 1e-9
    with pytest.raises(ValueError, match=f"{name} and {other} must be equal"):
        Boundary.of_names(**given)


def test_corners_that_differ_by_rounding_are_accepted():
    given = edges()
    given["bottom"] = given["bottom"] * (1 + 2.3e-16)
    Boundary.of_names(**given)


@pytest.mark.parametrize(("name", "other"), [("bottom", "top"), ("left", "right")])
def test_opposite_edges_of_unequal_length_are_refused_with_both(name, other):
    given = edges()
    given[name] = np.append(given[name], given[name][-1])
    n = len(given[name])
    with pytest.raises(ValueError, match=rf"{name} \({n} nodes\) and {other} \({n - 1}\)"):
        Boundary.of_names(**given)


@pytest.mark.parametrize("edge", [np.zeros((2, 3)), np.zeros(1), np.zeros(0), 0.0])
def test_an_edge_is_one_row_of_values(edge):
    with pytest.raises(ValueError, match="bottom must be one row"):
        Boundary.of_names(**edges() | {"bottom": edge})


def test_data_for_another_grid_are_refused_with_both_sizes():
    boundary = Boundary.of_names(**edges(ny=3, nx=5))
    boundary.require_shape(m.Domain((3, 5), 1.0).grid())
    with pytest.raises(ValueError, match=r"for 5x3 cells .* has 3x5 "):
        boundary.require_shape(m.Domain((5, 3), 1.0).grid())


def test_the_perimeter_unrolls_counter_clockwise_from_the_lower_left_corner():
    boundary = Boundary.of_perimeter(np.arange(10.0), m.Domain((2, 3), 1.0).grid())
    np.testing.assert_array_equal(boundary.named["bottom"], [0, 1, 2, 3])
    np.testing.assert_array_equal(boundary.named["right"], [3, 4, 5])
    np.testing.assert_array_equal(boundary.named["top"], [8, 7, 6, 5])
    np.testing.assert_array_equal(boundary.named["left"], [0, 9, 8])


def test_on_a_square_it_is_the_order_of_a_subdomain_s_perimeter():
    subdomain = Subdomain(8)
    values = np.random.default_rng(0).standard_normal(32)
    field = Boundary.of_perimeter(values, m.Domain((8, 8), 1.0).grid()).impose(np.zeros((9, 9)))
    np.testing.assert_array_equal(field[tuple(subdomain.perimeter.T)], values)


def test_imposing_and_taking_the_edge_of_a_field_are_inverse():
    field = np.random.default_rng(0).standard_normal((4, 6))
    boundary = Boundary.of_field(field)
    result = boundary.impose(np.zeros_like(field))
    assert boundary.shape == (3, 5)
    inside = np.zeros_like(field)
    inside[1:-1, 1:-1] = field[1:-1, 1:-1]
    np.testing.assert_array_equal(result, field - inside)
    for axis in (0, 1):
        for end in (0, -1):
            np.testing.assert_array_equal(boundary.edges[axis, end % 2], field.take(end, axis))


def test_an_expression_is_evaluated_at_the_nodes_in_units_of_domain_length():
    grid = m.Domain((4, 6), 0.25).grid()  # 1 high, 1.5 wide
    boundary = Boundary.of_expression("x + 10*y", grid)
    y, x = np.arange(5) * 0.25, np.arange(7) * 0.25
    expected = Boundary.of_field(x + 10 * y[:, None])
    for name in ("bottom", "top", "left", "right"):
        np.testing.assert_allclose(boundary.named[name], expected.named[name], rtol=1e-15)


def test_a_gaussian_process_is_the_same_for_the_same_seed_only():
    grid = m.Domain((16, 24), 0.1).grid()
    one, same, other = (Boundary.of_gaussian_process(grid, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.named["bottom"], same.named["bottom"])
    np.testing.assert_array_equal(one.named["left"], same.named["left"])
    assert np.abs(one.named["bottom"] - other.named["bottom"]).max() > 0.1


def test_the_default_length_scale_is_a_sixteenth_of_the_perimeter():
    grid = m.Domain((16, 24), 0.1).grid()
    default = Boundary.of_gaussian_process(grid)
    given = Boundary.of_gaussian_process(grid, length=2 * (16 + 24) * 0.1 / 16)
    np.testing.assert_array_equal(default.named["top"], given.named["top"])


def test_the_surface_that_the_edges_span_has_their_values_and_is_exact_for_bilinear_ones():
    y, x = np.ogrid[:4, :6]
    boundary = Boundary.of_names(**edges())
    spanned = boundary.at(y, x)
    np.testing.assert_allclose(spanned, boundary.impose(spanned.copy()), atol=1e-15)
    np.testing.assert_array_equal(boundary.at(y[1:3], x[:, 2:6]), spanned[1:3, 2:6])
    field = 1.0 + 2.0 * x - y + 0.5 * x * y
    np.testing.assert_allclose(Boundary.of_field(field).at(y, x), field, atol=1e-14)
