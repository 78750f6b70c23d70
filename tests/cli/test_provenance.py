"""What every file says of how it was made, and the first commands that a user types."""

import json
from datetime import UTC, datetime

import h5py
import pytest

from mosaicdd.schwarz.local_solvers.loading import model_path
from mosaicdd.storage.atomic import digest_of_seal


@pytest.mark.ranks(1, 2)
def test_a_file_says_by_what_when_and_where_it_was_made(mosaicdd, common_path):
    path = common_path / "out.h5"
    before = datetime.now(UTC).replace(microsecond=0)
    ended = mosaicdd("solve", "-o", path, "--cells", "64", "--boundary", "expr:x", "--json")
    assert ended.code == 0
    with h5py.File(path) as file:
        attributes = dict(file.attrs)
    assert before <= datetime.fromisoformat(attributes["date"]) <= datetime.now(UTC)
    assert attributes["host"]
    assert "solve" in attributes["command_line"]
    if ended.out:  # of the first rank
        report = json.loads(ended.out)
        assert report["grid"] == [64, 64]
        assert report["model"] == digest_of_seal(model_path("laplace"))


def test_the_demo_shows_its_commands_and_leaves_what_they_write(mosaicdd, tmp_path, quick_layout):
    ended = mosaicdd("demo", "--cells", "64x32", "-o", tmp_path / "demo")
    assert ended.code == 0
    commands = [line.split()[2] for line in ended.out.splitlines() if line.startswith("$ ")]
    assert commands == ["solve", "compare", "quantities", "plot", "report"]
    assert {path.suffix for path in (tmp_path / "demo").iterdir()} == {".h5", ".png", ".html"}
    assert "against expr:" in ended.out


def test_sizes_may_be_in_units_of_1024(succeed):
    assert 'cells = "1kx64"' in succeed("solve -o out.h5 --cells 1kx64 --print-config")


FILES = [
    f"{command} ou" for command in ("compare", "info", "plot", "quantities", "report", "train")
]
FILES += [f"solve {word} ou" for word in ("-o", "--config", "--domain", "--boundary", "--points")]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("solve --pde poisson-", "plain,poisson-boltzmann"),
        ("solve --local-solver laplace-s", "plain,laplace-sdnet"),
        ("compare out.h5 --reference dir", "plain,direct"),
        ("train data.h5 --network deep", "plain,deeponet"),
        *((words, "file,ou") for words in (*FILES, "compare out.h5 --reference ou")),
    ],
)
def test_a_shell_completes_names_and_names_of_files(mosaicdd, monkeypatch, words, offered):
    monkeypatch.setenv("_MOSAICDD_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"mosaicdd {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert mosaicdd().out.split() == [offered]
