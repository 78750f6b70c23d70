"""Solution files of several problems: those of one, with a leading axis."""

import h5py
import numpy as np
import pytest

from mosaicdd import read
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.window import Window
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.report.stored import read_all
from mosaicdd.storage.hdf5 import line_name
from mosaicdd.storage.inputs import read_boundaries
from mosaicdd.storage.shards import complete_shard, shard_folder, writing_shard
from mosaicdd.storage.solution_writer import writing_solutions

GRID = Grid((4, 6), 0.25)
HISTORIES = [
    {"update": [1.0, 0.1], "residual": [2.0, 0.2]},
    {"update": [1.0, 0.1, 0.01], "residual": [2.0, np.nan, 0.02]},
    {"update": [], "residual": []},
]


def fields(problems):
    return np.random.default_rng(0).standard_normal((problems, *GRID.nodes))


def results(problems):
    """Return what differs between problems."""
    rows = ("converged_rtol", 2, 0.1), ("stagnated", 3, 0.01), ("interrupted", 0, None)
    names = "status", "iterations", "update"
    return [dict(zip(names, row, strict=True)) for row in rows[:problems]]


def write(path, problems, **what):
    """Write the same fields in strips of rows, always with an axis for the problems."""
    u = fields(problems)
    boundaries = [Boundary.of_field(field) for field in u]
    with writing_solutions(path, GRID, boundaries, "float64", **what) as writer:
        for rows in (slice(0, 2), slice(2, 5)):
            writer.write("solution", u[:, rows], (slice(0, problems), rows, slice(0, 7)))
        writer.create("error_estimate", (3, 4), "float64")
        for problem in range(problems):
            place = slice(problem, problem + 1), slice(0, 3), slice(0, 4)
            writer.write("error_estimate", np.full((1, 3, 4), problem + 1.0), place)
        attributes = {"status": "interrupted", "iterations": 3, "pde": "laplace"}
        writer.describe(attributes | {"problems": results(problems)}, HISTORIES[:problems])
    return u


@pytest.mark.parametrize("problems", [1, 2, 3])
def test_the_same_calls_write_one_and_many_problems(problems, tmp_path):
    path = tmp_path / "out.h5"
    u = write(path, problems)
    with h5py.File(path) as file:
        assert file["solution"].shape == (GRID.nodes if problems == 1 else (problems, *GRID.nodes))
        assert ("problems" in file) == (problems > 1)
    solutions = list(read_all(path))
    assert [(s.number, s.problems) for s in solutions] == [(i, problems) for i in range(problems)]
    for i, solution in enumerate(solutions):
        np.testing.assert_array_equal(solution.field, u[i])
        np.testing.assert_array_equal(solution.boundary.named["top"], u[i, -1])
        np.testing.assert_array_equal(solution.error_map, np.full((3, 4), i + 1.0))
        for name, values in HISTORIES[i].items():
            np.testing.assert_array_equal(solution.history[name], values)
        assert solution.attributes["pde"] == "laplace"
        if problems > 1:
            assert solution.status == results(problems)[i]["status"]
            assert solution.attributes["iterations"] == len(HISTORIES[i]["update"])


def test_a_problem_can_be_read_by_its_number(tmp_path):
    u = write(tmp_path / "out.h5", 3)
    np.testing.assert_array_equal(read(tmp_path / "out.h5", 2).field, u[2])
    with pytest.raises(ValueError, match="holds problems 0 to 2, not number 3"):
        read(tmp_path / "out.h5", 3)
    assert len(read_boundaries(tmp_path / "out.h5", GRID)) == 3


@pytest.mark.parametrize("problems", [1, 3])
def test_windows_and_shards_are_for_any_number_of_problems(problems, tmp_path):
    path, u = tmp_path / "out.h5", fields(problems)
    window = Window((1, 2), (4, 7))
    part = u[:, *window.place] if problems > 1 else u[0][window.place]
    shards = []
    for rank, rows in enumerate((slice(0, 1), slice(1, 3))):
        place = (slice(0, problems),) * (problems > 1) + (rows, slice(0, 5))
        shard = shard_folder(path) / f"00-{rank:04d}.h5"
        with writing_shard(shard, part[place].shape, "float64") as writer:
            writer.write("solution", part[place], (...,))
        shards.append(complete_shard(shard, place))
    boundaries = [Boundary.of_field(field) for field in u]
    new = writing_solutions(path, GRID, boundaries, "float64", window=window, shards=shards)
    with new as writer:
        writer.describe({"problems": results(problems)}, HISTORIES[:problems])
    for i, solution in enumerate(read_all(path)):
        np.testing.assert_array_equal(solution.field, u[i][window.place])
        np.testing.assert_array_equal(solution.x, np.arange(2, 7) * 0.25)
        np.testing.assert_array_equal(solution.y, np.arange(1, 4) * 0.25)


@pytest.mark.parametrize("problems", [1, 3])
def test_lines_are_written_instead_of_fields(problems, tmp_path):
    path = tmp_path / "out.h5"
    boundaries = [Boundary.of_field(field) for field in fields(problems)]
    lines = np.random.default_rng(1).standard_normal((problems, 3, 7))
    with writing_solutions(path, GRID, boundaries, "float64", lines=True) as writer:
        writer.create(line_name(0), (3, 7), "float64")
        writer.write(line_name(0), lines, (slice(0, problems), slice(0, 3), slice(0, 7)))
        writer.describe({}, HISTORIES[:problems])
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file[line_name(0)][()].reshape(lines.shape), lines)
        assert "VTKHDF" not in file
    with pytest.raises(ValueError, match="holds the interface only"):
        read(path)


def test_coefficients_and_sources_are_read_as_each_problem_has_them(tmp_path):
    rng = np.random.default_rng(2)
    common, own = rng.standard_normal(GRID.shape), rng.standard_normal((3, *GRID.nodes))
    given = {"c": 3.0, "bx": [1.0, 2.0, 3.0], "a": common, "f": own}
    write(tmp_path / "out.h5", 3, fields=given)
    for i, solution in enumerate(read_all(tmp_path / "out.h5")):
        assert solution.fields.keys() == given.keys()
        assert (solution.fields["c"], solution.fields["bx"]) == (3.0, i + 1.0)
        np.testing.assert_array_equal(solution.fields["a"], common)
        np.testing.assert_array_equal(solution.fields["f"], own[i])


def test_of_one_problem_fields_have_no_axis_for_it(tmp_path):
    own = np.random.default_rng(2).standard_normal((1, *GRID.nodes))
    write(tmp_path / "out.h5", 1, fields={"f": own, "c": [3.0]})
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["fields/f"].shape == GRID.nodes
        assert file["fields"].attrs["c"] == 3.0
    solution = read(tmp_path / "out.h5")
    np.testing.assert_array_equal(solution.fields["f"], own[0])


def test_a_file_without_fields_has_none(tmp_path):
    write(tmp_path / "out.h5", 1)
    assert read(tmp_path / "out.h5").fields == {}


def test_what_was_not_solved_is_left_empty(tmp_path):
    u = fields(2)
    boundaries = [Boundary.of_field(field) for field in u]
    with writing_solutions(tmp_path / "out.h5", GRID, boundaries, "float64") as writer:
        writer.write("solution", u[:1], (slice(0, 1), slice(0, 5), slice(0, 7)))
        writer.leave_empty("solution", 1)
        results = [{"iterations": 2}, {"iterations": 0}]
        writer.describe({"problems": results}, [HISTORIES[0], HISTORIES[2]])
    solved, empty = read_all(tmp_path / "out.h5")
    assert np.isfinite(solved.field).all()
    assert np.isnan(empty.field).all()
