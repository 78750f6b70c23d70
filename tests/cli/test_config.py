"""``--config`` and ``--print-config``: the same run from a file, and from what it has written."""

import json
import tomllib

import numpy as np
import pytest

from mosaicdd import read

OPTIONS = (
    "--cells 64x32 --pde diffusion --boundary 0 --rtol 1e-8 "
    "--field 'a=expr:1 + x' --field f=1 --side left[0:0.25]=neumann:1"
)


@pytest.mark.ranks(1, 2)
def test_what_is_printed_is_a_file_that_gives_the_same_run(succeed, common_path, comm, by_one):
    printed = succeed(f"solve -o first.h5 {OPTIONS} --print-config")
    assert tomllib.loads(printed)["field"] == {"a": "expr:1 + x", "f": 1}
    assert not (common_path / "first.h5").exists()
    by_one((common_path / "run.toml").write_text, printed)
    succeed(f"solve -o first.h5 {OPTIONS}")
    succeed("solve -o second.h5 --config run.toml")
    fields = [read(common_path / name).field for name in ("first.h5", "second.h5")]
    np.testing.assert_array_equal(*fields)
    comm.Barrier()


def test_a_run_s_file_gives_its_options_and_the_command_line_holds(succeed):
    succeed(f"solve -o out.h5 {OPTIONS}")
    succeed("solve -o other.h5 --config out.h5 --rtol 1e-10")
    stored = read("other.h5")
    assert stored.grid.shape == (32, 64)
    assert stored.attributes["rtol"] == 1e-10
    assert stored.attributes["parameters"]["a"] == "expr:1 + x"
    third = tomllib.loads(succeed("solve -o third.h5 --config other.h5 --print-config"))
    assert third["rtol"] == 1e-10
    assert third["side"] == {"left[0:0.25]": "neumann:1"}


@pytest.fixture
def made(mosaicdd, tmp_path, monkeypatch):
    """Return a function that runs ``solve`` in a folder, as from a shell there."""

    def run(folder, *words):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        monkeypatch.setattr("sys.argv", ["mosaicdd", "solve", *map(str, words)])
        return mosaicdd("solve", *words)

    return run


SMALL = ("--cells", "16x16", "--spacing", "0.1", "--pde", "diffusion")


def _write_inputs(folder, scale):
    folder.mkdir(exist_ok=True)
    nodes = np.ones((17, 17))
    np.save(folder / "k.npy", scale * nodes)
    np.save(folder / "side.npy", scale * nodes[0])
    np.savetxt(folder / "river.txt", [[0.4, 0.4], [0.8, 0.4]])
    (folder / "domain.json").write_text(
        json.dumps({"outer": [[0.03, 0.03], [1.57, 0.03], [1.57, 1.57], [0.03, 1.5]]})
    )
    (folder / "run.toml").write_text('boundary = "0"\n[field]\na = "k.npy"\n')


@pytest.mark.parametrize(
    "words",
    [
        ("--field", "a=k.npy", "--boundary", "0"),
        ("--side", "left=robin:side.npy,side.npy", "--boundary", "0"),
        ("--hold", "river: river.txt=2", "--boundary", "0"),
        ("--domain", "domain.json", "--boundary", "0"),
        ("--config", "run.toml"),
    ],
)
def test_a_file_repeats_its_run_from_another_folder_with_the_same_data(made, tmp_path, words):
    _write_inputs(tmp_path / "one", 1.0)
    _write_inputs(tmp_path / "two", 2.0)
    words = (*SMALL, "--field", "f=1", *words) if "a=k.npy" not in words else (*SMALL, *words)
    if "run.toml" in words:
        words = (*SMALL, "--config", "run.toml")
    assert made("one", "-o", "out.h5", *words).code == 0
    assert made("two", "-o", "out.h5", "--config", "../one/out.h5").code == 0
    assert made("three", "-o", "out.h5", "--config", "../two/out.h5").code == 0
    first, *others = (read(tmp_path / name / "out.h5").field for name in ("one", "two", "three"))
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_other_data_than_those_of_a_run_are_refused_but_may_be_given_anew(made, tmp_path):
    _write_inputs(tmp_path / "one", 1.0)
    first = ("--field", "a=k.npy", "--field", "f=1", "--boundary", "0")
    assert made("one", "-o", "out.h5", *SMALL, *first).code == 0
    np.save(tmp_path / "one" / "k.npy", np.full((17, 17), 3.0))
    ended = made("two", "-o", "out.h5", "--config", "../one/out.h5")
    assert ended.code == 2
    assert "was made with another" in ended.err
    assert "--field" in ended.err
    (tmp_path / "one" / "k.npy").unlink()
    ended = made("two", "-o", "out.h5", "--config", "../one/out.h5")
    assert ended.code == 2
    assert f"which counts from {tmp_path / 'one'}" in ended.err
    assert not (tmp_path / "two" / "out.h5").exists()
    assert made("two", "-o", "out.h5", "--config", "../one/out.h5", "--field", "a=2").code == 0
