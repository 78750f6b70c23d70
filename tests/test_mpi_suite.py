"""Runs the tests marked ``ranks`` under mpiexec, so that plain ``pytest`` shows them, too."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_SECONDS = 900  # on a busy machine; 100 to 200 on a quiet one
_MANY = {16: "schwarz/test_many_ranks.py"}  # ranks: the only file that needs so many
# torch.distributed leaves threads behind, beside which later tests of several ranks crawl: those with
# its process groups come last. What tests/training opens stays open, so another must come before.
_LAST = ("parallel/test_dtensor.py", "training/")


def files_with_ranks(size):
    """List the files that hold such tests: importing the others costs every rank seconds."""
    names = [
        str(path.relative_to(_HERE))
        for path in _HERE.glob(_MANY.get(size, "*/test_*.py"))
        if "pytest.mark.ranks" in path.read_text()
    ]
    return [
        str(_HERE / name) for name in sorted(names, key=lambda name: (name.startswith(_LAST), name))
    ]


@pytest.mark.limit(_SECONDS + 30)
@pytest.mark.parametrize("size", [2, 3, 4, 6, 16])
def test_the_tests_for_several_ranks_pass(size, mpiexec):
    pytest_on_a_rank = [sys.executable, "-m", "pytest", "-m", "ranks", "-p", "no:cacheprovider"]
    job = subprocess.run(
        [mpiexec, "-n", str(size), *pytest_on_a_rank, *files_with_ranks(size)],
        cwd=_HERE.parent,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    passed = re.search(r"(\d+) passed", job.stdout)
    assert job.returncode == 0, f"exit code {job.returncode}:\n{job.stdout}"
    assert passed, f"no test ran:\n{job.stdout}"
