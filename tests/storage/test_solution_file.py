"""Solution files: what goes in comes out, of one problem and of several, or one line says why not."""

import os

import h5py
import numpy as np
import pytest
from stored_fields import store

from mosaicdd import read
from mosaicdd.storage import atomic
from mosaicdd.storage.hdf5 import reseal

FIELD = np.random.default_rng(0).standard_normal((5, 7))
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


@pytest.fixture
def path(tmp_path):
    return store(tmp_path / "out.h5", [FIELD], histories=[HISTORY], **ATTRIBUTES)


def test_what_is_written_is_read_again(path):
    solution = read(path)
    assert (solution.grid.shape, solution.grid.spacing) == ((4, 6), 0.25)
    np.testing.assert_array_equal(solution.field, FIELD)
    edges = {"bottom": FIELD[0], "top": FIELD[-1], "left": FIELD[:, 0], "right": FIELD[:, -1]}
    for name, edge in edges.items():
        np.testing.assert_array_equal(solution.boundary.named[name], edge)
    for name, values in HISTORY.items():
        np.testing.assert_array_equal(solution.history[name], values)
    assert solution.seconds == 0.75
    for name, value in ATTRIBUTES.items():
        assert solution.attributes[name] == value
        assert type(solution.attributes[name]) is type(value)
    assert solution.attributes["kind"] == "mosaicdd solution"
    for library in ("mosaicdd", "numpy", "torch", "h5py", "pyamg"):
        assert solution.attributes[f"version_{library}"][0].isdigit()
    assert solution.fields == {}


def test_single_precision_is_kept_but_the_boundary_data_are_not_rounded(tmp_path):
    solution = read(store(tmp_path / "out.h5", [FIELD], dtype="float32"))
    assert solution.field.dtype == np.float32
    np.testing.assert_array_equal(solution.field, FIELD.astype(np.float32))
    np.testing.assert_array_equal(solution.boundary.named["top"], FIELD[-1])


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    before = path.read_bytes()
    monkeypatch.setattr("mosaicdd.storage.solution_writer.SolutionWriter.describe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store(path, [FIELD + 1])
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["out.h5"]


def changed(change, *, seal=False):
    """Return what changes a file, and seals it again or not."""

    def damage(path):
        with h5py.File(path, "r+") as file:
            change(file)
        if seal:
            reseal(path)

    return damage


def foreign(path):
    with h5py.File(path, "w") as file:
        file["solution"] = FIELD


def without(name):
    return changed(lambda file: file.pop(name), seal=True)


def a_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "missing"),
        (a_folder, "a folder"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "not a complete solution file"),
        (lambda path: path.write_bytes(b""), "not a complete solution file"),
        (lambda path: path.write_text("no HDF5 at all\n" * 1000), "not a complete solution file"),
        (foreign, "something else, a mosaicdd solution file is needed"),
        (changed(lambda file: file.attrs.update(kind="mosaicdd dataset")), "a mosaicdd dataset file, a mosaicdd solution file is needed"),
        (changed(lambda file: file.attrs.update(format_version=99)), "format 99, .* reads 1 to 2; update mosaicdd"),
        (without("solution"), "not a complete solution file .*solution"),
        (without("history"), "not a complete solution file"),
        (without("boundary/left"), "no boundary data: /boundary/left is missing"),
    ],
    ids=["missing", "folder", "cut", "empty", "text", "foreign", "kind", "future", "field", "history", "side"],
)  # fmt: skip
def test_a_file_of_no_use_is_refused_in_one_line_that_names_it(damage, message, path):
    damage(path)
    error = ValueError if path.is_file() else FileNotFoundError
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
    assert (solution.window.start, solution.window.stop) == ((0, 0), (5, 7))


@pytest.fixture
def digests(monkeypatch):
    """Return a list that grows by a number whenever that many bytes are checked."""
    checked, sealing = [], atomic._sealing

    def counted(file, size):
        checked.append(size)
        return sealing(file, size)

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
        assert solution.field.shape == FIELD.shape
        assert solution.error_map is None
    assert len(digests) == 1


def test_a_file_that_has_changed_is_checked_again(path, digests):
    older(path)
    read(path)
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)
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


def test_a_file_that_was_replaced_or_removed_meanwhile_is_not_mixed_with_the_one_before(path):
    solution, other = read(path), read(path)
    store(path, [FIELD], dtype="float32")
    with pytest.raises(ValueError, match="has changed since it was opened"):
        _ = solution.field
    path.unlink()
    with pytest.raises(FileNotFoundError) as refused:
        _ = other.field
    assert refused.value.args == (f"{path}: the file is missing",)


HISTORIES = [
    {"update": [1.0, 0.1], "residual": [2.0, 0.2]},
    {"update": [1.0, 0.1, 0.01], "residual": [2.0, np.nan, 0.02]},
    {"update": [], "residual": []},
]
RESULTS = [
    {"status": "converged_rtol", "iterations": 2, "update": 0.1},
    {"status": "stagnated", "iterations": 3, "update": 0.01},
    {"status": "interrupted", "iterations": 0, "update": None},
]
MANY = np.random.default_rng(1).standard_normal((3, 5, 7))


@pytest.fixture
def several(tmp_path):
    """Return a function that writes so many problems."""

    def write(problems=3, **more):
        return store(
            *(tmp_path / "out.h5", MANY[:problems]),
            **{"histories": HISTORIES[:problems], "problems": RESULTS[:problems]} | more,
        )

    return write


@pytest.mark.parametrize("problems", [1, 2, 3])
def test_one_and_many_problems_are_written_alike(problems, several):
    estimates = np.ones((problems, 3, 4)) * np.arange(1.0, problems + 1)[:, None, None]
    path = several(problems, estimates=estimates)
    with h5py.File(path) as file:
        assert file["solution"].shape == ((5, 7) if problems == 1 else (problems, 5, 7))
        assert ("problems" in file) == (problems > 1)
    for i in range(problems):
        solution = read(path, i)
        assert (solution.number, solution.problems) == (i, problems)
        np.testing.assert_array_equal(solution.field, MANY[i])
        np.testing.assert_array_equal(solution.boundary.named["top"], MANY[i, -1])
        np.testing.assert_array_equal(solution.error_map, estimates[i])
        for name, values in HISTORIES[i].items():
            np.testing.assert_array_equal(solution.history[name], values)
        assert solution.attributes["pde"] == "laplace"
        if problems > 1:
            assert solution.status == RESULTS[i]["status"]
            assert solution.attributes["iterations"] == len(HISTORIES[i]["update"])
    with pytest.raises(ValueError, match=f"holds (problems 0 to {problems - 1}|one problem), not"):
        read(path, problems)


@pytest.mark.parametrize("problems", [1, 3])
def test_windows_and_shards_are_for_any_number_of_problems(problems, several):
    places = [(*[slice(0, 3)] * (problems > 1), rows, slice(0, 5)) for rows in (slice(0, 1), slice(1, 3))]  # fmt: skip
    path = several(problems, window=((1, 2), (4, 7)), places=places)
    for i in range(problems):
        solution = read(path, i)
        np.testing.assert_array_equal(solution.field, MANY[i, 1:4, 2:7])
        np.testing.assert_array_equal(solution.x, np.arange(2, 7) * 0.25)
        np.testing.assert_array_equal(solution.y, np.arange(1, 4) * 0.25)


def test_coefficients_and_sources_are_read_as_each_problem_has_them(several):
    rng = np.random.default_rng(2)
    common, own = rng.standard_normal((4, 6)), rng.standard_normal((3, 5, 7))
    path = several(given={"c": 3.0, "bx": [1.0, 2.0, 3.0], "a": common, "f": own})
    for i in range(3):
        fields = read(path, i).fields
        assert fields.keys() == {"c", "bx", "a", "f"}
        assert (fields["c"], fields["bx"]) == (3.0, i + 1.0)
        np.testing.assert_array_equal(fields["a"], common)
        np.testing.assert_array_equal(fields["f"], own[i])
    path = several(1, given={"f": own[:1], "c": [3.0]})
    with h5py.File(path) as file:  # which have no axis for one problem
        assert file["fields/f"].shape == (5, 7)
        assert file["fields"].attrs["c"] == 3.0
    np.testing.assert_array_equal(read(path).fields["f"], own[0])


def test_what_was_not_solved_is_left_empty(several):
    path = several(2, empty=(1,))
    assert np.isfinite(read(path, 0).field).all()
    assert np.isnan(read(path, 1).field).all()
