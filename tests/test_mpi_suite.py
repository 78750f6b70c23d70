"""Runs the tests marked ``ranks`` under mpiexec, so that plain ``pytest`` shows them, too."""

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_SECONDS = 900  # on a busy machine; 100 to 200 on a quiet one
_MARKED = re.compile(r"(?:pytest\.mark\.ranks|^SIZES = )\(([\d, ]+)\)", re.MULTILINE)
# torch.distributed leaves threads behind, beside which later tests of several ranks crawl: those with
# its process groups come last. What tests/training opens stays open, so another must come before.
_LAST = ("parallel/test_dtensor.py", "training/")
_FIRST = ("solution/test_solver.py",)  # it counts communicators, and other tests hold dozens


def files_with_ranks(size, sizes_that_run):
    """List the files with tests for this size: importing the others costs every rank seconds."""

    def needed(path):
        marks = _MARKED.findall(path.read_text())
        file = path.relative_to(_HERE).as_posix()
        return any(size in sizes_that_run([*map(int, mark.split(","))], file) for mark in marks)

    names = [str(path.relative_to(_HERE)) for path in _HERE.rglob("*/test_*.py") if needed(path)]

    def place(name):
        return name.startswith(_LAST) - name.startswith(_FIRST), name

    return [str(_HERE / name) for name in sorted(names, key=place)]


def _in_turns():
    """Let ranks hand a core on as soon as they wait, where that is allowed: they wait by asking again and again.

    Other processes are given the core back after milliseconds only, hundreds of times what a message takes.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def test_few_starts_serve_all_tests(sizes_that_run, pytestconfig):
    """A marker that neither 2 nor 4 is in costs the suite of each day a start of all processes."""
    if not pytestconfig.getoption("nightly"):
        assert [size for size in (3, 6, 16) if files_with_ranks(size, sizes_that_run)] == []


@pytest.mark.limit(_SECONDS + 30)
@pytest.mark.parametrize("size", [2, 3, 4, 6, 16])
def test_the_tests_for_several_ranks_pass(size, mpiexec, pytestconfig, sizes_that_run):
    files = files_with_ranks(size, sizes_that_run)
    if not files:
        pytest.skip(f"no test needs {size} ranks: --nightly has them")
    pytest_on_a_rank = [sys.executable, "-m", "pytest", "-m", "ranks", "-p", "no:cacheprovider"]
    pytest_on_a_rank += ["--nightly" if pytestconfig.getoption("nightly") else "--daily"]
    job = subprocess.run(
        [mpiexec, "-n", str(size), *pytest_on_a_rank, *files],
        cwd=_HERE.parent,
        env={"OMP_NUM_THREADS": "1"} | os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
        preexec_fn=_in_turns if size > len(os.sched_getaffinity(0)) else None,
    )
    passed = re.search(r"(\d+) passed", job.stdout)
    assert job.returncode == 0, f"exit code {job.returncode}:\n{job.stdout}"
    assert passed, f"no test ran:\n{job.stdout}"
