"""``mosaicdd info``: what a file holds."""

import json

import h5py
import numpy as np
import pytest

from mosaicdd import read

MODEL = "mosaicdd/networks/shipped/laplace.h5"


@pytest.fixture
def solution(mosaicdd, tmp_path):
    path = tmp_path / "out.h5"
    assert mosaicdd("solve", "-o", path, "--cells", "128x96", "--local-solver", "exact").code == 0
    return path


def test_people_see_the_kind_the_arrays_and_how_the_field_lay_over_the_ranks(mosaicdd, solution):
    shown = mosaicdd("info", solution).out
    assert shown.startswith(f"{solution}: mosaicdd solution")
    assert "/solution" in shown
    assert "97x129" in shown
    assert "layout" in shown
    assert "Shard(axis=0, sizes=(97,))" in shown
    assert "VTKHDF" not in shown


def test_scripts_get_one_object(mosaicdd, solution):
    report = json.loads(mosaicdd("info", solution, "--json").out)
    assert report["kind"] == "mosaicdd solution"
    assert report["arrays"]["/solution"] == {"shape": [97, 129], "dtype": "float64"}
    assert report["grid"] == [128, 96]
    assert report["status"] == "converged_rtol"


def test_models_and_foreign_files_are_shown_too(mosaicdd, tmp_path):
    model = json.loads(mosaicdd("info", MODEL, "--json").out)
    assert model["kind"] == "mosaicdd model"
    assert model["card"]["cells"] == 32
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["group/x"] = [1.0, 2.0]
    other = json.loads(mosaicdd("info", tmp_path / "other.h5", "--json").out)
    assert other["kind"] == "HDF5 file"
    assert list(other["arrays"]) == ["/group/x"]


def test_a_dataset_is_shown_with_its_lists(mosaicdd, tmp_path):
    path = tmp_path / "data.h5"
    assert mosaicdd("generate", path, "--samples", "20", "--cells", "8").code == 0
    report = json.loads(mosaicdd("info", path, "--json").out)
    assert report["kind"] == "mosaicdd dataset"
    assert report["arrays"]["/boundary"]["shape"] == [20, 32]
    names = report["hyperparameter_names"]
    assert len(names) == report["arrays"]["/hyperparameters"]["shape"][1]
    assert all(isinstance(name, str) for name in names)
    assert ", ".join(f'"{name}"' for name in names) in mosaicdd("info", path).out


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (np.arange(3), [0, 1, 2]),
        (np.eye(2), [[1.0, 0.0], [0.0, 1.0]]),
        (np.bytes_(b"abc"), "abc"),
        (np.array([b"a", b"b"]), ["a", "b"]),
        (np.array([True, False]), [True, False]),
        (np.array([1.0, np.nan]), [1.0, None]),
        (h5py.Empty("f8"), None),
        (np.complex128(1 + 2j), "(1+2j)"),
    ],
)
def test_any_attribute_is_json(value, shown, mosaicdd, strict_json, tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file.attrs["value"] = value
    assert strict_json(mosaicdd("info", tmp_path / "other.h5", "--json").out)["value"] == shown
    assert mosaicdd("info", tmp_path / "other.h5").code == 0


def test_a_file_that_h5py_has_written_to_is_refused_until_it_is_resealed(mosaicdd, solution):
    before = read(solution).field
    with h5py.File(solution, "r+") as file:
        file.attrs["note"] = "mine"
    ended = mosaicdd("compare", solution, "--reference", "dst")
    assert ended.code == 2
    assert "checksum is missing" in ended.err
    assert "reseal" in ended.err
    ended = mosaicdd("info", solution, "--reseal")
    assert ended.code == 0
    assert "trusted, not known" in ended.err
    assert "note" in ended.out
    assert mosaicdd("compare", solution, "--reference", "dst").code == 0
    np.testing.assert_array_equal(read(solution).field, before)


def test_values_that_were_changed_are_resealed_as_they_are(mosaicdd, solution):
    content = bytearray(solution.read_bytes())
    content[len(content) // 2] ^= 1  # in the field, which HDF5 does not check
    solution.write_bytes(content)
    assert "its checksum differs" in mosaicdd("info", solution).err
    assert mosaicdd("info", solution, "--reseal", "--json").code == 0
    assert solution.stat().st_size == len(content)
    read(solution)


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def foreign(path):
    path.unlink()
    with h5py.File(path, "w") as file:
        file["x"] = 1.0


def with_an_unreadable_array(path):
    with h5py.File(path, "r+") as file:
        packed = file.create_dataset("packed", data=np.arange(100.0), chunks=(100,), compression=9)
        place = packed.id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[place : place + 20] = bytes(20)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: None, "its checksum is right"),
        (half, "not a complete mosaicdd file"),
        (foreign, "HDF5 file carries no checksum"),
        (with_an_unreadable_array, "not a complete mosaicdd file"),
    ],
)
def test_what_cannot_be_resealed_is_left_alone(change, message, refuse, solution):
    change(solution)
    content = solution.read_bytes()
    refuse(f"info {solution} --reseal", message)
    assert solution.read_bytes() == content
