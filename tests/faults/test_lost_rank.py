"""What becomes of a job when a rank is lost in the middle of it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# One level and no tolerance: minutes of iterations, and a checkpoint to tell that they have begun.
LONG = ("--cells", "512x512", "--local-solver", "exact", "--levels", "1", "--rtol", "0")
MEDIUM = (
    *(
        "--pde",
        "diffusion",
        "--cells",
        "1024x1024",
        "--field",
        "f=1",
        "--rtol",
        "0",
        "--boundary",
        "0",
    ),
    *("--field", "a=expr:exp(5*sin(9*x)*cos(7*y))"),
)
SECONDS = 10
SOLVE = (sys.executable, "-m", "mosaicdd.cli.main", "solve")


def descendants(pid):
    """List the processes below a process, from the lists that Linux keeps of children."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


def running(pid):
    """Say whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def job(mpiexec, tmp_path):
    """Return a function that starts four ranks and waits until they iterate."""
    started = []

    def start(*command, options=LONG):
        output = tmp_path / "out.h5"
        process = subprocess.Popen(
            [
                mpiexec,
                "-n",
                "4",
                *command,
                "-o",
                output,
                *options,
                "--checkpoint-minutes",
                "0.0001",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        while not output.with_suffix(".h5.checkpoint").exists() and process.poll() is None:
            time.sleep(0.05)
        return process

    yield start
    for process in started:
        if process.poll() is None:  # else its number may be another's by now
            for pid in [*descendants(process.pid), process.pid]:
                os.kill(pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.limit(100)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux' list of processes")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(LONG, id="laplace"),
        pytest.param(MEDIUM, id="medium", marks=pytest.mark.nightly),
    ],
)
def test_a_killed_rank_ends_the_job_in_seconds_and_the_last_checkpoint_is_whole(
    job, tmp_path, options
):
    process = job(*SOLVE, options=options)
    below = descendants(process.pid)
    ranks = [
        pid
        for pid in below
        if b"PMI_RANK=" in Path(f"/proc/{pid}/environ").read_bytes() and not descendants(pid)
    ]
    assert process.poll() is None, process.communicate()
    assert len(ranks) == 4
    os.kill(ranks[2], signal.SIGKILL)
    deadline = time.monotonic() + SECONDS
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode != 0, err
    while any(map(running, below)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(running, below))
    goes_on = subprocess.run(
        [
            *SOLVE,
            "-o",
            tmp_path / "out.h5",
            *options,
            "--resume",
            "--json",
            "--max-iterations",
            "1",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert goes_on.returncode == 1, goes_on.stderr
    assert json.loads(goes_on.stdout)["iterations"] > 1


FAULT = """
import sys
from mosaicdd.cli import main
from mosaicdd.schwarz.monitor import Monitor
from mpi4py import MPI

measure = Monitor.measure

def fail_on_rank_2(self, *arguments):
    if self.iterations == 5 and MPI.COMM_WORLD.rank == 2:
        raise RuntimeError("a fault of rank 2")
    return measure(self, *arguments)

Monitor.measure = fail_on_rank_2
main.main()
"""


@pytest.mark.limit(100)
def test_an_exception_on_one_rank_ends_the_job_with_its_traceback(mpiexec, tmp_path):
    output = tmp_path / "out.h5"
    ended = subprocess.run(
        [mpiexec, "-n", "4", sys.executable, "-c", FAULT, "solve", "-o", output, *LONG],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    assert ended.stderr.count("RuntimeError: a fault of rank 2") == 1
    assert not os.listdir(tmp_path)
