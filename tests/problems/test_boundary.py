"""Boundary data in the plane and in space: what is refused, which way round, and the text that asks for them."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.grid.grid import perimeter_nodes
from mosaicdd.problems.shapes.outline import side_names
from mosaicdd.problems.sides.boundary import Boundary, BoundarySpec, is_file

BOX = m.Domain((8, 12, 16), 0.5).grid()
AXES = pytest.mark.parametrize(
    "grid", [m.Domain((8, 8), 1.0).grid(), m.Domain((3, 5), 1.0).grid(), BOX]
)
GRID = m.Domain((16, 24), 0.1).grid()


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


def drawn(grid):
    return np.random.default_rng(0).uniform(-5, 5, grid.nodes)


def test_sides_along_x_come_first_and_have_the_same_names_in_the_plane_and_in_space():
    assert side_names(1) == {"left": (0, 0), "right": (0, 1)}
    assert list(side_names(2).items()) == [
        ("left", (1, 0)), ("right", (1, 1)), ("bottom", (0, 0)), ("top", (0, 1))
    ]  # fmt: skip
    assert side_names(3)["back"] == (0, 0)
    assert side_names(3)["top"] == (1, 1)


@AXES
def test_imposing_and_taking_the_sides_of_a_field_are_inverse(grid):
    field, inside = drawn(grid), (slice(1, -1),) * len(grid.shape)
    boundary = Boundary.of_field(field)
    assert boundary.shape == grid.shape
    expected = field.copy()
    expected[inside] = 0.0
    np.testing.assert_array_equal(boundary.impose(np.zeros(grid.nodes)), expected)
    for (axis, end), edge in boundary.edges.items():
        np.testing.assert_array_equal(edge, field.take(-end, axis))


@AXES
def test_values_in_the_order_of_the_surface_are_those_on_the_sides(grid):
    field = drawn(grid)
    values = field[tuple(perimeter_nodes(grid.shape).T)]
    boundary, expected = Boundary.of_perimeter(values, grid), Boundary.of_field(field)
    for side, edge in expected.edges.items():
        np.testing.assert_array_equal(boundary.edges[side], edge)


def test_sides_that_do_not_meet_in_an_edge_are_refused():
    edges = dict(Boundary.of_field(drawn(BOX)).edges)
    edges[1, 0] = edges[1, 0] + np.pad([[1.0]], [(0, 8), (3, 13)])  # where back and bottom meet
    with pytest.raises(ValueError, match="back and bottom must be equal in their common corner"):
        Boundary(edges)


def test_opposite_sides_of_different_sizes_are_refused():
    edges = dict(Boundary.of_field(drawn(BOX)).edges)
    edges[0, 1] = edges[0, 1][:, :-1]
    with pytest.raises(ValueError, match=r"back \(17x13 nodes\) and front \(16x13\) differ"):
        Boundary(edges)


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ("gp", {}),
        ("gp:", {}),
        ("gp:seed=3", {"seed": 3}),
        ("gp:length=0.5,seed=1", {"seed": 1, "length": 0.5}),
        ("gp:amplitude=2,noise=1e-3", {"amplitude": 2.0, "noise": 1e-3}),
    ],
)
def test_a_gaussian_process_takes_its_settings_from_the_text(spec, settings):
    expected = Boundary.of_gaussian_process(GRID, **settings)
    (boundary,) = BoundarySpec(spec).boundaries(GRID)
    np.testing.assert_array_equal(boundary.named["left"], expected.named["left"])


@pytest.mark.parametrize("spec", ["gp:seed=2..4,noise=0.1", "gp:noise=0.1,seed=2..4"])
def test_a_range_of_seeds_is_a_problem_for_each(spec):
    boundaries = BoundarySpec(spec).boundaries(GRID)
    assert len(boundaries) == 3
    for seed, boundary in zip((2, 3, 4), boundaries, strict=True):
        expected = Boundary.of_gaussian_process(GRID, seed=seed, noise=0.1)
        np.testing.assert_array_equal(boundary.named["left"], expected.named["left"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gp:seed=1.5", "gp:seed must be a number, got '1.5'"),
        ("gp:seed", "gp:seed must be a number, got ''"),
        ("gp:seed=-1", r"gp:seed must be in \[0,"),
        ("gp:seed=3..1", r"range as 0\.\.63, from low to high, got '3\.\.1'"),
        ("gp:seed=0..", r"got '0\.\.'"),
        ("gp:seed=..3", r"got '\.\.3'"),
        ("gp:seed=-1..3", r"got '-1\.\.3'"),
        ("gp:seed=0..1..2", r"got '0\.\.1\.\.2'"),
        ("gp:seed=0..1,seed=3", "gp:seed is given twice"),
        ("gp:seed=1,seed=2", "gp:seed is given twice"),
        ("gp:noise=1,noise=1", "gp:noise is given twice"),
        ("gp:seed=0..1000000", "at most 1000000 in a range"),
        ("gp:length=0", "gp:length must be in"),
        ("gp:length=nan", "gp:length must be in"),
        ("gp:noise=inf", "gp:noise must be in"),
        ("gp:amplitude=-1", "gp:amplitude must be in"),
        ("gp:colour=3", "no setting 'colour'; known: seed, length, amplitude, noise"),
        ("expr:", "cannot read the expression"),
        ("expr:open(x)", "not allowed"),
    ],
)
def test_a_malformed_text_is_refused_by_name(spec, message):
    with pytest.raises(ValueError, match=message):
        BoundarySpec(spec).boundaries(GRID)


def test_anything_else_is_a_file():
    assert is_file("edges.h5")
    assert is_file("gpx")
    assert is_file("./gp:seed=0")
    assert not is_file("gp")
    assert not is_file("gp:seed=0")
    assert not is_file("expr:x")
