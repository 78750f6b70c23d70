"""Runs the tests marked ``ranks`` under mpiexec, so that plain ``pytest`` shows them, too."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_SECONDS = 900  # on a busy machine; 100 to 200 on a quiet one
# MPICH polls 1000 times before it lets another process run: with more ranks than cores, 100 is a
# quarter faster.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "100"}


_MANY = {16: "schwarz/test_many_ranks.py"}  # ranks: the only file that needs so many
# torch.distributed leaves threads behind, beside which all later tests of several ranks crawl.
_ALONE = "parallel/test_dtensor.py"


def files_with_ranks(size):
    """List the files that hold such tests: importing the others costs every rank seconds."""
    return [
        str(path)
        for path in sorted(_HERE.glob(_MANY.get(size, "*/test_*.py")))
        if "pytest.mark.ranks" in path.read_text() and path != _HERE / _ALONE
    ]


@pytest.mark.limit(_SECONDS + 30)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_tests_with_torch_s_process_groups_pass(size, mpiexec):
    run(size, [str(_HERE / _ALONE)], mpiexec)


@pytest.mark.limit(_SECONDS + 30)
@pytest.mark.parametrize("size", [2, 3, 4, 6, 16])
def test_the_tests_for_several_ranks_pass(size, mpiexec):
    run(size, files_with_ranks(size), mpiexec)


def run(size, files, mpiexec):
    """Run the tests for several ranks in some files; all must pass, and there must be some."""
    pytest_on_a_rank = [sys.executable, "-m", "pytest", "-m", "ranks", "-p", "no:cacheprovider"]
    job = subprocess.run(
        [mpiexec, "-n", str(size), *pytest_on_a_rank, *files],
        cwd=_HERE.parent,
        env=os.environ | _ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    passed = re.search(r"(\d+) passed", job.stdout)
    assert job.returncode == 0, f"exit code {job.returncode}:\n{job.stdout}"
    assert passed, f"no test ran:\n{job.stdout}"
