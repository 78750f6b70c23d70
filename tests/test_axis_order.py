"""The order of axes, as the library's page says it: arrays (y, x), coordinates (x, y), a shell x first.

The domain is wider than high, and ``u = x + 10 y``, a solution of Laplace's equation, differs along both.
"""

import numpy as np
import pytest

import mosaicdd as m

H = 0.25
CELLS = (8, 12)  # along y and x
SIZE = {"x": 3.0, "y": 2.0}


def solved(domain=None, sides="x + 10*y", **options):
    problem = m.Problem(domain or m.Domain(CELLS, H), "laplace", sides=m.Dirichlet(sides))
    return m.solve(problem, local_solver="exact", **options)


@pytest.fixture(scope="module")
def solution():
    return solved()


def test_an_array_holds_the_node_at_j_and_i_where_y_is_j_h_and_x_is_i_h(solution):
    assert solution.field.shape == (9, 13)
    assert (solution.x[-1], solution.y[-1]) == (SIZE["x"], SIZE["y"])
    j, i = 3, 5
    assert solution.field[j, i] == pytest.approx(i * H + 10 * j * H, abs=1e-6)
    assert [(p.start, p.stop) for p in solution.place] == [(0, 9), (0, 13)]


@pytest.mark.parametrize("sides", [lambda x, y: x + 10 * y, "x + 10*y"], ids=["function", "text"])
def test_functions_and_expressions_take_coordinates_from_x_on(solution, sides):
    np.testing.assert_allclose(solved(sides=sides).field, solution.field, rtol=0, atol=1e-12)


def test_points_are_coordinates(solution):
    assert solution.at([[2.5, 0.5]]) == pytest.approx(2.5 + 10 * 0.5, abs=1e-6)


def test_corners_of_polygons_are_coordinates():
    inside = m.Domain.from_polygons(
        [(0.5, 0.5), (2.75, 0.5), (2.75, 1.5), (0.5, 1.5)], cells=CELLS, spacing=H
    )
    field = solved(inside).field
    assert np.argwhere(np.isfinite(field)).tolist() == [
        [j, i] for j in range(2, 7) for i in range(2, 12)
    ]


def test_cells_and_windows_may_be_named(solution):
    named = m.Domain({"x": 12, "y": 8}, H)
    assert named == m.Domain(CELLS, H)
    window = solved(named, window={"x": (1.0, 2.5), "y": (0.5, 1.0)})
    assert window.field.shape == (3, 7)
    np.testing.assert_allclose(window.field, solution.field[2:5, 4:11], rtol=0, atol=1e-12)
    as_pair = solved(window=((0.5, 1.0), (1.0, 2.5)))
    np.testing.assert_array_equal(as_pair.field, window.field)
    assert solved(window={"x": (1.0, 2.5)}).field.shape == (9, 7)  # the whole of y


@pytest.mark.parametrize("domain", [{"x": 12}, {"x": 12, "z": 4}, {"nx": 12, "ny": 8}])
def test_cells_by_wrong_names_are_refused_in_one_line(domain):
    with pytest.raises(ValueError, match=r"^axes are named x, y(, z)?, got .*$"):
        m.Domain(domain)


def test_a_window_by_a_wrong_name_is_refused_in_one_line():
    with pytest.raises(ValueError, match=r"^window: axes are named x, y, got z$"):
        solved(window={"z": (0.0, 1.0)})


def test_in_a_shell_x_comes_first(solution, mosaicdd, tmp_path):
    """In arrays of files y does."""
    path = tmp_path / "u.h5"
    words = f"solve -o {path} --cells 12x8 --spacing {H} --local-solver exact"
    ended = mosaicdd(f"{words} --boundary expr:x+10*y --window 1:2.5,0.5:1")
    assert ended.code == 0
    assert "12x8 cells" in ended.out + ended.err
    part = m.read(path).field
    assert part.shape == (3, 7)
    np.testing.assert_allclose(part, solution.field[2:5, 4:11], rtol=0, atol=1e-6)
