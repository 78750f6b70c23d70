"""``mosaicdd info``: what a file holds."""

import json

import h5py
import pytest

MODEL = "mosaicdd/local_solvers/shipped/laplace.h5"


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


@pytest.mark.parametrize(
    ("name", "reason"), [("none.h5", "missing"), ("text.h5", "not a complete")]
)
def test_what_is_no_file_of_hdf5_is_bad_input(name, reason, mosaicdd, tmp_path):
    (tmp_path / "text.h5").write_text("text")
    ended = mosaicdd("info", tmp_path / name)
    assert ended.code == 2
    assert reason in ended.err
    assert ended.err.count("\n") == 1
