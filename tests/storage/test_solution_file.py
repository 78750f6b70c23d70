"""Solution files: what goes in comes out, or one line says why not."""

import os

import h5py
import numpy as np
import pytest

from mosaicdd import read
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.window import Window
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.storage import atomic
from mosaicdd.storage.atomic import append_seal
from mosaicdd.storage.inputs import read_boundaries
from mosaicdd.storage.solution_writer import writing_solutions

GRID = Grid((4, 6), 0.25)
FIELD = np.random.default_rng(0).standard_normal(GRID.nodes)
ATTRIBUTES = {
    "status": "converged_rtol",
    "iterations": 12,
    "update": 1.5e-9,
    "seconds": {"setup": 1.0, "iterate": 0.25, "assemble": 0.5},
    "dims": [2, 3],
    "error_estimate": None,
    "command_line": "mosaicdd solve -o out.h5",
    "local_solver": "{not json}",
}
HISTORY = {"update": [1.0, 0.1], "residual": [2.0, np.nan], "mae": [], "seconds": [0.1, 0.2]}


def write(path, dtype="float64"):
    boundary = Boundary.of_field(FIELD)
    with writing_solutions(path, GRID, [boundary], dtype) as writer:
        # Part by part, as the ranks hand them over.
        for rows in (slice(0, 2), slice(2, 5)):
            for columns in (slice(0, 4), slice(4, 7)):
                writer.write("solution", FIELD[rows, columns], (rows, columns))
        writer.describe(ATTRIBUTES, [HISTORY])


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "out.h5")
    return tmp_path / "out.h5"


def test_what_is_written_is_read_again(path):
    solution = read(path)
    assert solution.grid == GRID
    np.testing.assert_array_equal(solution.field, FIELD)
    for name, edge in Boundary.of_field(FIELD).named.items():
        np.testing.assert_array_equal(solution.boundary.named[name], edge)
    for name, values in HISTORY.items():
        np.testing.assert_array_equal(solution.history[name], values)
    assert solution.seconds == 0.75
    for name, value in ATTRIBUTES.items():
        assert solution.attributes[name] == value
        assert type(solution.attributes[name]) is type(value)


def test_versions_are_kept(path):
    attributes = read(path).attributes
    assert attributes["kind"] == "mosaicdd solution"
    for library in ("mosaicdd", "numpy", "torch", "h5py", "pyamg"):
        assert attributes[f"version_{library}"][0].isdigit()


def test_single_precision_is_kept_but_the_boundary_data_are_not_rounded(tmp_path):
    write(tmp_path / "out.h5", "float32")
    solution = read(tmp_path / "out.h5")
    assert solution.field.dtype == np.float32
    np.testing.assert_array_equal(solution.field, FIELD.astype(np.float32))
    np.testing.assert_array_equal(solution.boundary.named["top"], FIELD[-1])


def test_it_is_a_boundary_file_too(path):
    (boundary,) = read_boundaries(path, GRID)
    np.testing.assert_array_equal(boundary.named["bottom"], FIELD[0])
    np.testing.assert_array_equal(boundary.named["right"], FIELD[:, -1])


def test_vtk_finds_the_field_without_a_copy(path):
    with h5py.File(path) as file:
        image = file["VTKHDF"]
        # https://docs.vtk.org: extents in points, x first; the data indexed (z,) y, x.
        assert image.attrs["Type"] == b"ImageData"
        np.testing.assert_array_equal(image.attrs["WholeExtent"], [0, 6, 0, 4, 0, 0])
        np.testing.assert_array_equal(image.attrs["Spacing"][:2], [0.25, 0.25])
        assert image["PointData/solution"] == file["solution"]


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(path):
    before = path.read_bytes()
    boundary = Boundary.of_field(FIELD)

    def interrupted():
        with writing_solutions(path, GRID, [boundary], "float64") as writer:
            writer.write("solution", FIELD[:2], (slice(0, 2), slice(None)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["out.h5"]


def reseal(path):
    with path.open("r+b") as file:
        append_seal(file)


def missing(path):
    path.unlink()
    return FileNotFoundError, "missing"


def a_folder(path):
    path.unlink()
    path.mkdir()
    return FileNotFoundError, "a folder"


def truncated(path):
    path.write_bytes(path.read_bytes()[:-100])
    return ValueError, "not a complete solution file"


def empty(path):
    path.write_bytes(b"")
    return ValueError, "not a complete solution file"


def text(path):
    path.write_text("no HDF5 at all\n" * 1000)
    return ValueError, "not a complete solution file"


def foreign(path):
    with h5py.File(path, "w") as file:
        file["solution"] = FIELD
    return ValueError, "something else, a mosaicdd solution file is needed"


def another_kind(path):
    with h5py.File(path, "r+") as file:
        file.attrs["kind"] = "mosaicdd dataset"
    return ValueError, "a mosaicdd dataset file, a mosaicdd solution file is needed"


def of_the_future(path):
    with h5py.File(path, "r+") as file:
        file.attrs["format_version"] = 99
    return ValueError, "format 99, .* reads 1 to 2; update mosaicdd"


def without(name, message):
    """Return what takes something out of a file, and what is said of that."""

    def damage(path):
        with h5py.File(path, "r+") as file:
            del file[name]
        reseal(path)
        return ValueError, message

    return pytest.param(damage, id=name)


@pytest.mark.parametrize(
    "damage",
    [
        missing,
        a_folder,
        truncated,
        empty,
        text,
        foreign,
        another_kind,
        of_the_future,
        without("solution", "not a complete solution file .*solution"),
        without("history", "not a complete solution file"),
        without("boundary/left", "no boundary data: /boundary/left is missing"),
    ],
)
def test_a_file_of_no_use_is_refused_in_one_line_that_names_it(damage, path):
    error, message = damage(path)
    with pytest.raises(error, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_files_of_the_first_format_are_read(path):
    with h5py.File(path, "r+") as file:  # which takes the seal away
        file.attrs["format_version"] = 1
        del file["solution"].attrs["first_node"]
    solution = read(path)
    np.testing.assert_array_equal(solution.field, FIELD)
    assert solution.window == Window.whole(GRID)


@pytest.fixture
def digests(monkeypatch):
    """Return a list that grows by a number whenever that many bytes are checked."""
    checked = []

    def counted(file, size):
        checked.append(size)
        return sealing(file, size)

    sealing = atomic._sealing
    monkeypatch.setattr(atomic, "_sealing", counted)
    return checked


def older(path, seconds=10):
    """Set the time of a file back, as if it had been written a while ago."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - seconds * 10**9))


def test_a_file_is_checked_once_however_often_it_is_read(path, digests):
    older(path)
    for _ in range(3):
        solution = read(path)
        assert solution.field.shape == GRID.nodes
        assert solution.error_map is None
    assert len(digests) == 1


def test_a_file_that_has_changed_is_checked_again(path, digests):
    older(path)
    read(path)
    with path.open("r+b") as file:
        file.seek(-1000, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1000, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(ValueError, match="its checksum differs"):
        read(path)
    assert len(digests) == 2


def test_a_file_of_this_moment_is_checked_each_time(path, digests):
    # The clock of files may not have moved since, and a change would not show.
    older(path, -10)
    for _ in range(2):
        read(path)
    assert len(digests) == 2


def test_large_arrays_are_read_when_they_are_asked_for(path):
    solution = read(path)
    assert "field" not in vars(solution)
    assert solution.field is solution.field
    assert (solution.x[-1], solution.y[-1]) == (1.5, 1.0)
    assert solution.status == "converged_rtol"
    assert solution.error_estimate is None


def test_a_file_that_was_replaced_meanwhile_is_not_mixed_with_the_one_before(path):
    solution = read(path)
    write(path, "float32")
    with pytest.raises(ValueError, match="has changed since it was opened"):
        _ = solution.field


def test_a_file_that_was_removed_meanwhile_is_named(path):
    solution = read(path)
    path.unlink()
    with pytest.raises(FileNotFoundError) as refused:
        _ = solution.field
    assert refused.value.args == (f"{path}: the file is missing",)
