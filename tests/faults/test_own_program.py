"""A program of one's own that raises on one rank ends, and what it catches itself is its own affair."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from mpi4py import MPI
import mosaicdd as m

comm, hook = MPI.COMM_WORLD, sys.excepthook
problem = m.Problem((64, 64), "poisson", {"f": 1.0})
with m.Solver(problem, "exact", ranks=comm) as solver:
    solver()
assert sys.excepthook is hook
with m.Solver(problem, "exact", ranks=comm) as solver:
    solver()
    try:
        raise KeyError("caught")
    except KeyError:
        pass
    if comm.rank == 1 and "raise" in sys.argv:
        raise ValueError("on one rank alone")
    solver()
comm.Barrier()
print("done", flush=True)
"""
SECONDS = 60  # of a start on a busy machine; without the end of all it would wait for ever


@pytest.mark.parametrize("fault", ["none", "raise"])
def test_what_nothing_catches_on_one_rank_ends_all(fault, mpiexec):
    ended = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, "-c", PROGRAM, fault],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if fault == "none":
        # Two ranks' lines may mix in one stream.
        assert (ended.returncode, ended.stdout.count("done")) == (0, 2), ended.stderr
        return
    assert ended.returncode != 0
    assert "ValueError: on one rank alone" in ended.stderr
