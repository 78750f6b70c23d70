"""``--config`` and ``--print-config``: the same run from a file, and from what it has written."""

import tomllib

import numpy as np
import pytest

from mosaicdd.storage.solution_file import read_solution

OPTIONS = ("--cells", "64x32", "--pde", "diffusion", "--boundary", "0", "--rtol", "1e-8")
OPTIONS += ("--field", "a=expr:1 + x", "--field", "f=1", "--side", "left[0:0.25]=neumann:1")


@pytest.mark.ranks(1, 2)
def test_what_is_printed_is_a_file_that_gives_the_same_run(mosaicdd, common_path, ranks):
    printed = mosaicdd("solve", "-o", common_path / "first.h5", *OPTIONS, "--print-config")
    assert printed.code == 0
    path = common_path / "run.toml"
    if ranks.is_root:
        assert tomllib.loads(printed.out)["field"] == {"a": "expr:1 + x", "f": 1}
        path.write_text(printed.out)
        assert not (common_path / "first.h5").exists()
    ranks.bcast(None)
    assert mosaicdd("solve", "-o", common_path / "first.h5", *OPTIONS).code == 0
    assert mosaicdd("solve", "-o", common_path / "second.h5", "--config", path).code == 0
    if ranks.is_root:
        fields = [read_solution(common_path / name).field for name in ("first.h5", "second.h5")]
        np.testing.assert_array_equal(*fields)


def test_a_run_s_file_gives_its_options_and_the_command_line_holds(mosaicdd, tmp_path, monkeypatch):
    out, other = tmp_path / "out.h5", tmp_path / "other.h5"
    words = ("solve", "-o", str(out), *OPTIONS)
    monkeypatch.setattr("sys.argv", ["mosaicdd", *words])
    assert mosaicdd(*words).code == 0
    again = ("solve", "-o", str(other), "--config", str(out), "--rtol", "1e-10")
    monkeypatch.setattr("sys.argv", ["mosaicdd", *again])
    assert mosaicdd(*again).code == 0
    stored = read_solution(other)
    assert stored.grid.shape == (32, 64)
    assert stored.attributes["rtol"] == 1e-10
    assert stored.attributes["parameters"]["a"] == "expr:1 + x"
    third = mosaicdd("solve", "-o", tmp_path / "third.h5", "--config", other, "--print-config")
    assert tomllib.loads(third.out)["rtol"] == 1e-10
    assert tomllib.loads(third.out)["side"] == {"left[0:0.25]": "neumann:1"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rtl = 1e-8", "no option 'rtl' (did you mean 'rtol'?)"),
        ("[rtol]\na = 1", "rtol has one value, got a table"),
        ("rtol = ", "not TOML"),
        (None, "there is no such file"),
    ],
)
def test_a_file_that_says_something_else_is_refused(mosaicdd, tmp_path, text, told):
    path = tmp_path / "run.toml"
    if text is not None:
        path.write_text(text)
    ended = mosaicdd("solve", "-o", tmp_path / "out.h5", *OPTIONS, "--config", path)
    assert ended.code == 2
    assert told in ended.err
    assert not (tmp_path / "out.h5").exists()
