"""One rank needs no MPI library: not for help, and not for work."""

import os
import subprocess
import sys

import pytest

import mosaicdd as package

COMMANDS = ("generate", "train", "solve", "compare", "plot", "info", "plan", "doctor")
MODULES = {f"mosaicdd.cli.{command}" for command in COMMANDS}

# Stands in for a machine without MPI: mpi4py is not there, or finds no library to load.
BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == {blocked!r}:
            raise {error}("cannot load MPI library")

sys.meta_path.insert(0, Blocker())
"""
# Each in a fork, as a command that has been started: it remembers nothing of the others, but of imports.
COMMAND_LINES = """
import importlib, os
from mosaicdd.cli.main import main
for module in {modules!r}:
    importlib.import_module(module)

for arguments in {arguments!r}:
    if os.fork() == 0:
        sys.argv = ["mosaicdd", *arguments]
        try:
            main()
        except SystemExit as ended:
            print("exit code", ended.code, flush=True)
        os._exit(0)
    os.wait()
"""
EVERYTHING = """
import importlib, pkgutil
import mosaicdd

for module in pkgutil.walk_packages(mosaicdd.__path__, "mosaicdd."):
    importlib.import_module(module.name)
    print(module.name)
"""


def python(script, **environment):
    """Run a program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def without_mpi(blocked, error, *arguments, works=True, **environment):
    """Run command lines one after another where MPI cannot be imported; ``works``: more than their messages."""
    modules = MODULES | ({"torch", "mosaicdd.solution.solver"} if works else set())
    names = {"blocked": blocked, "error": error, "arguments": arguments, "modules": modules}
    return python((BLOCKER + COMMAND_LINES).format(**names), **environment)


ABSENT, WITHOUT_LIBRARY = ("mpi4py", "ImportError"), ("mpi4py.MPI", "RuntimeError")
ONE_OF_BOTH = pytest.mark.parametrize(
    ("blocked", "error"), [ABSENT, pytest.param(*WITHOUT_LIBRARY, marks=pytest.mark.nightly)]
)


@ONE_OF_BOTH
def test_everything_can_be_imported(blocked, error):
    ended = python(BLOCKER.format(blocked=blocked, error=error) + EVERYTHING)
    assert ended.returncode == 0, ended.stderr
    assert "mosaicdd.parallel.layouts.redistribution" in ended.stdout.splitlines()


@ONE_OF_BOTH
def test_help_and_version_need_no_mpi(blocked, error):
    helps = [(command, "--help") for command in COMMANDS]
    lines = [("--help",), ("-h",), ("--version",), *helps]
    ended = without_mpi(blocked, error, *lines, works=False)
    assert ended.stderr == ""
    assert ended.stdout.count("exit code 0") == 3 + len(COMMANDS)
    assert ended.stdout.count("Usage: mosaicdd") == 2 + len(COMMANDS)
    assert f"mosaicdd, version {package.__version__}" in ended.stdout


@ONE_OF_BOTH
def test_every_command_works_on_one_rank(blocked, error, tmp_path):
    data, model, out = (str(tmp_path / name) for name in ("data.h5", "model.h5", "out.h5"))
    image = str(tmp_path / "out.png")
    small = ("--samples", "50", "--windows", "9", "--cells", "8", "--size", "0.125")
    lines = [
        ("generate", data, *small, "--method", "direct"),
        ("train", data, "-o", model, "--epochs", "40", "--batch-size", "9"),
        ("solve", "-o", out, "--cells", "64x64"),
        ("solve", "-o", out, "--cells", "64x64", "--boundary", "gp:seed=0..3"),
        ("compare", out, "--reference", "dst"),
        ("plot", out, "-o", image),
        ("info", out),
        ("plan", "--cells", "256x256", "--ranks", "4", "--json"),
    ]
    ended = without_mpi(blocked, error, *lines)
    assert ended.stdout.count("exit code 0\n") == len(lines), ended.stderr


@ONE_OF_BOTH
def test_one_rank_is_told_how_to_get_it_for_several(blocked, error):
    ended = without_mpi(blocked, error, ("doctor",), works=False, PMI_SIZE="1", PMI_RANK="0")
    assert ended.stdout.endswith("exit code 0\n")
    assert ended.stdout.count("\n") > 10  # all else is looked at, too
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("MPI")]
    assert "-> for several ranks: pip install 'mosaicdd[mpi]'" in line


@ONE_OF_BOTH
def test_of_several_ranks_the_first_says_how_to_get_it(blocked, error, tmp_path):
    out = str(tmp_path / "out.h5")
    lines = [("solve", "-o", out, "--cells", "64x64"), ("generate", out)]
    two = {"PMI_SIZE": "2", "PMI_RANK": "0"}
    ended = without_mpi(blocked, error, *lines, ("doctor",), works=False, **two)
    refused = len(lines) * "exit code 2\n"
    assert ended.stdout.startswith(refused)
    said = ended.stderr.splitlines()
    assert len(said) == len(lines), ended.stderr
    for line in said:
        assert line.startswith("Error: no MPI library was found: pip install 'mosaicdd[mpi]'")
    assert not list(tmp_path.iterdir())
    doctor = ended.stdout.removeprefix(refused)
    assert doctor.endswith("exit code 1\n")
    (line,) = [line for line in doctor.splitlines() if line.startswith("MPI")]
    assert "-> pip install 'mosaicdd[mpi]'" in line
