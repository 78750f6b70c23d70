"""What works before anything is computed, and where no MPI is installed."""

import subprocess
import sys
from pathlib import Path

import pytest

import mosaicdd as package

COMMANDS = ("generate", "train", "solve", "compare", "plot", "info", "bench", "plan", "doctor")

# Stands in for a machine without MPI: mpi4py is not there, or finds no library to load.
BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == {blocked!r}:
            raise {error}("cannot load MPI library")

sys.meta_path.insert(0, Blocker())
import click
from mosaicdd.cli.main import main

for arguments in {arguments!r}:
    sys.argv = ["mosaicdd", *arguments]
    try:
        main()
    except SystemExit as ended:
        print("exit code", ended.code, flush=True)
"""


def without_mpi(blocked, error, *arguments):
    """Run command lines one after another in a process that cannot import MPI."""
    script = BLOCKER.format(blocked=blocked, error=error, arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


NO_MPI = pytest.mark.parametrize(
    ("blocked", "error"), [("mpi4py", "ImportError"), ("mpi4py.MPI", "RuntimeError")]
)


@NO_MPI
def test_help_and_version_need_no_mpi(blocked, error):
    helps = [(command, "--help") for command in COMMANDS]
    ended = without_mpi(blocked, error, ("--help",), ("-h",), ("--version",), *helps)
    assert ended.stderr == ""
    assert ended.stdout.count("exit code 0") == 3 + len(COMMANDS)
    assert ended.stdout.count("Usage: mosaicdd") == 2 + len(COMMANDS)
    assert f"mosaicdd, version {package.__version__}" in ended.stdout


@NO_MPI
def test_plan_needs_no_mpi(blocked, error):
    ended = without_mpi(blocked, error, ("plan", "--cells", "256x256", "--ranks", "4", "--json"))
    assert ended.stderr == ""
    assert ended.stdout.endswith("exit code 0\n")


@NO_MPI
def test_one_rank_generates_and_trains_without_mpi(blocked, error, tmp_path):
    data, model = str(tmp_path / "data.h5"), str(tmp_path / "model.h5")
    square = ("--cells", "8", "--size", "0.125", "--samples", "50", "--windows", "9")
    training = ("train", data, "-o", model, "--epochs", "40", "--batch-size", "9", "--json")
    ended = without_mpi(blocked, error, ("generate", data, *square, "--json"), training)
    assert ended.stdout.count("exit code 0") == 2, ended.stderr
    assert ended.stderr == ""
    assert Path(model).exists()


@NO_MPI
def test_solve_without_mpi_says_how_to_get_it(blocked, error, tmp_path):
    ended = without_mpi(
        blocked, error, ("solve", "-o", str(tmp_path / "out.h5"), "--cells", "64x64")
    )
    assert ended.stdout == "exit code 2\n"
    assert ended.stderr.startswith("Error: no MPI library was found: pip install 'mosaicdd[mpi]'")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "out.h5").exists()


@pytest.mark.ranks(1, 3)
def test_without_arguments_the_help_is_shown_once(mosaicdd):
    ended = mosaicdd()
    assert ended.code == 2
    assert (ended.out + ended.err).count("Usage: ") == 1
    for command in COMMANDS:
        assert f"\n  {command} " in ended.out + ended.err


def test_every_option_is_described_with_its_default(mosaicdd):
    ended = mosaicdd("solve", "--help")
    assert ended.code == 0
    for option in ("--cells", "--boundary", "--local-solver", "--rtol", "--dims", "--json"):
        assert option in ended.out
    # All but --output, --cells, the two flags and --until-mae, --certify: no default to show.
    assert ended.out.count("[default") >= 10
