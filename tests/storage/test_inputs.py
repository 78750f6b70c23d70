"""Boundary files of any origin."""

import h5py
import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.storage.inputs import BoundaryFile, read_boundaries, write_boundaries

GRID = Grid((3, 5), 0.1)
FIELD = np.random.default_rng(0).standard_normal(GRID.nodes)


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "edges.h5", "w") as file:
        write_boundaries(file, [Boundary.of_field(FIELD)])
    return tmp_path / "edges.h5"


def replace(path, name, values):
    with h5py.File(path, "r+") as file:
        del file[f"boundary/{name}"]
        file[f"boundary/{name}"] = values


def test_what_is_written_is_read_again(path):
    (boundary,) = read_boundaries(path, GRID)
    np.testing.assert_array_equal(boundary.impose(np.zeros(GRID.nodes))[0], FIELD[0])
    for axis in (0, 1):
        for end in (0, -1):
            np.testing.assert_array_equal(boundary.edges[axis, end % 2], FIELD.take(end, axis))


def test_whole_and_single_precision_numbers_are_accepted(path):
    for name in ("bottom", "top", "left", "right"):
        nodes = len(Boundary.of_field(FIELD).named[name])
        replace(path, name, np.ones(nodes, "f4" if name == "top" else "i2"))
    (boundary,) = read_boundaries(path, GRID)
    assert all(boundary.named[name].dtype == float for name in ("bottom", "top", "left", "right"))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("bottom", np.append(FIELD[0, :-1], np.nan), "bottom has 1 of 6 .* not finite"),
        ("top", FIELD[-1] + 1.0, "top and left must be equal"),
        ("top", FIELD[-1, :-1], r"bottom \(6 nodes\) and top \(5\)"),
        ("left", FIELD[:, :2], "left must be one row"),
        ("left", 1.0, "left must be one row"),
        ("right", np.array([b"a", b"b", b"c", b"d"]), "right must hold real numbers"),
        ("right", FIELD[:, -1] + 1j, "right must hold real numbers"),
    ],
)
def test_unsound_edges_are_refused_with_file_and_edge(path, name, values, message):
    replace(path, name, values)
    with pytest.raises(ValueError, match=message) as caught:
        read_boundaries(path, GRID)
    assert str(caught.value).startswith(str(path))


def test_a_group_is_no_edge(path):
    with h5py.File(path, "r+") as file:
        del file["boundary/top"]
        file.create_group("boundary/top/a")
    with pytest.raises(ValueError, match="top must hold real numbers"):
        read_boundaries(path, GRID)


def test_data_for_another_grid_are_refused_with_both_sizes(path):
    with pytest.raises(ValueError, match=r"for 5x3 cells .* has 6x3"):
        read_boundaries(path, Grid((3, 6), 0.1))


def test_a_missing_edge_is_named(path):
    with h5py.File(path, "r+") as file:
        del file["boundary/right"]
    with pytest.raises(ValueError, match="/boundary/right is missing"):
        read_boundaries(path, GRID)


def test_a_truncated_file_is_refused(path):
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="not a complete boundary file"):
        read_boundaries(path, GRID)


@pytest.fixture
def many(tmp_path):
    with h5py.File(tmp_path / "many.h5", "w") as file:
        write_boundaries(file, [Boundary.of_field(factor * FIELD) for factor in (1, 2, 3)])
    return tmp_path / "many.h5"


def test_a_row_per_problem_is_a_problem_each(many):
    boundaries = read_boundaries(many, GRID)
    assert len(boundaries) == 3
    for factor, boundary in zip((1, 2, 3), boundaries, strict=True):
        for name in ("bottom", "top", "left", "right"):
            expected = Boundary.of_field(factor * FIELD).named[name]
            np.testing.assert_array_equal(boundary.named[name], expected)


def test_an_unsound_edge_of_one_of_many_problems_is_named_with_its_number(many):
    with h5py.File(many, "r+") as file:
        file["boundary/top"][1, 2] = np.nan
    with pytest.raises(ValueError, match=r"many.h5: problem 1: boundary edge top has 1 of 6"):
        read_boundaries(many, GRID)


def test_edges_with_different_numbers_of_problems_are_refused(many):
    replace(many, "left", np.ones((2, 4)))
    with pytest.raises(ValueError, match=r"rows are bottom 3, top 3, left 2, right 3"):
        read_boundaries(many, GRID)


def test_edges_without_any_problem_are_refused(many):
    for name in ("bottom", "top", "left", "right"):
        replace(many, name, np.ones((0, 6 if name in ("bottom", "top") else 4)))
    with pytest.raises(ValueError, match="need a row per problem"):
        read_boundaries(many, GRID)


def test_many_problems_for_another_grid_are_refused(many):
    with pytest.raises(ValueError, match=r"problem 0: .* for 5x3 cells .* has 6x3"):
        read_boundaries(many, Grid((3, 6), 0.1))


@pytest.mark.parametrize(
    ("given", "told"),
    [({"spacing": 0.2}, "give spacing 0.1x0.1"), ({"origin": (1.0, 0.0)}, "give origin 0,0")],
)
def test_values_on_the_edges_of_a_domain_elsewhere_are_refused(tmp_path, given, told):
    path, place = tmp_path / "first.h5", {"spacing": 0.1} | given
    m.solve(m.Problem(m.Domain((16, 8), 0.1), "poisson", None, m.Dirichlet("x"))).save(path)
    problem = m.Problem(m.Domain((16, 8), **place), "poisson", None, BoundaryFile(path))
    with pytest.raises(ValueError, match=told):
        m.solve(problem)
    with h5py.File(path) as file, h5py.File(tmp_path / "bare.h5", "w") as bare:
        file.copy("boundary", bare)
    bare = m.Problem(
        m.Domain((16, 8), **place), "poisson", None, BoundaryFile(tmp_path / "bare.h5")
    )
    assert m.solve(bare).converged  # a file without a grid is of any
