"""The batch jobs and ``srun`` on a real Slurm; skipped where none answers.

On a cluster the temporary files must lie where all machines see them: ``--basetemp=FOLDER``.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from mosaicdd import read
from mosaicdd.storage.model_file import read_model


def missing():
    """Return why these tests cannot run here; empty if they can."""
    if shutil.which("sbatch") is None:
        return "Slurm is not installed here"
    answer = subprocess.run(
        ["sinfo", "--noheader"], capture_output=True, text=True, timeout=30, check=False
    )
    if answer.returncode or not answer.stdout:
        return "no Slurm answers: start one, or set SLURM_CONF to that of a running one"
    return ""


REASON = missing()
pytestmark = [pytest.mark.skipif(bool(REASON), reason=REASON), pytest.mark.limit(600)]

PATIENCE = 300  # seconds: a job that was requeued may begin after two minutes
SOLVE = ("--cells", "384x384", "--local-solver", "exact", "--levels", "1", "--sync", "phase")
LONG = ("--cells", "768x768", *SOLVE[2:])
OFTEN = ("--checkpoint-minutes", "0.0001")
TRAIN = ("--network", "sdnet", "--set", "width=16", "--points", "8", "--batch-size", "16")


@pytest.fixture(scope="module")
def environment(repository):
    """Return the environment in which Slurm finds this Python and this package."""
    found = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return os.environ | {"PATH": os.pathsep.join(found), "PYTHONPATH": str(repository)}


@pytest.fixture
def submit(repository, environment, tmp_path):
    """Return a function that submits a script of the repository, as a user does."""
    submitted = []

    def run(script, *arguments, options=()):
        command = ["sbatch", "--parsable", f"--output={tmp_path}/%j.log", *options]
        job = subprocess.run(
            [*command, f"slurm/{script}", *map(str, arguments)],
            cwd=repository,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        submitted.append(Job(job.stdout.strip(), tmp_path))
        return submitted[-1]

    yield run
    subprocess.run(["scancel", *(job.number for job in submitted)], check=True)


class Job:
    """A job of Slurm's queue.

    Parameters
    ----------
    number
        As Slurm counts them.
    folder
        Where its log is.
    """

    def __init__(self, number, folder):
        self.number = number
        self.log = folder / f"{number}.log"

    def field(self, name):
        """Return what Slurm says of it, as ``JobState``."""
        shown = subprocess.run(
            ["scontrol", "show", "job", self.number], capture_output=True, text=True, check=True
        )
        return dict(word.split("=", 1) for word in shown.stdout.split() if "=" in word)[name]

    def update(self, setting):
        """Change what was asked of Slurm, if it lets this user."""
        subprocess.run(["scontrol", "update", f"JobId={self.number}", setting], check=False)

    def wait_for(self, condition):
        """Wait until a function is true; a job that was requeued for later is told to start soon.

        Not at once: a machine refuses the job while it still ends the run before.
        """
        deadline, told = time.monotonic() + PATIENCE, False
        while not condition():
            said = self.log.read_text() if self.log.exists() else "nothing"
            assert time.monotonic() < deadline, f"{self.field('JobState')}, said: {said}"
            if not told and self.field("Reason") == "BeginTime":
                self.update("StartTime=now+5")
                told = True
            time.sleep(0.2)

    def end(self):
        """Wait for the end of the job; return its state and what it said."""
        states = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
        self.wait_for(lambda: self.field("JobState") in states)
        return self.field("JobState"), self.log.read_text()


def alone(*arguments):
    """Run a command on one rank without Slurm; return what ``--json`` prints."""
    command = [sys.executable, "-m", "mosaicdd.cli.main", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(done.stdout)


def require_same_solution(path, truth):
    """Check a field against that of one rank: sums in another order round differently."""
    field, expected = read(path).field, read(truth).field
    np.testing.assert_allclose(field, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("tasks", [2, 4])
def test_a_solve_on_several_tasks_has_the_solution_of_one(tasks, submit, tmp_path):
    alone("solve", "-o", tmp_path / "alone.h5", *SOLVE)
    output = tmp_path / "out.h5"
    state, log = submit("solve.sbatch", "-o", output, *SOLVE, options=[f"-n{tasks}"]).end()
    assert state == "COMPLETED", log
    assert f"{tasks} ranks" in log
    require_same_solution(output, tmp_path / "alone.h5")


@pytest.mark.parametrize("tasks", [2, 4])
def test_a_training_on_several_tasks_has_the_error_of_one(tasks, data, submit, tmp_path):
    options = (*TRAIN, "--epochs", "2", "--optimizer", "adamw")
    expected = alone("train", data, "-o", tmp_path / "alone.h5", *options)["validation_mse"]
    output = tmp_path / "model.h5"
    job = submit("train.sbatch", data, "-o", output, *options, "--json", options=[f"-n{tasks}"])
    state, log = job.end()
    assert state == "COMPLETED", log
    figures = json.loads(log.splitlines()[-1])  # after warnings of the libraries
    assert figures["ranks"] == tasks
    # Rounding of float32, amplified by 34 steps of Adam.
    assert figures["validation_mse"] == pytest.approx(expected, rel=1e-3)


def test_a_solve_that_is_stopped_goes_on_in_the_same_job(submit, tmp_path):
    whole = alone("solve", "-o", tmp_path / "alone.h5", *SOLVE)
    output = tmp_path / "out.h5"
    job = submit("solve.sbatch", "-o", output, *SOLVE, *OFTEN)
    job.wait_for(output.with_suffix(".h5.checkpoint").exists)
    subprocess.run(["scancel", "--signal=USR1", job.number], check=True)
    state, log = job.end()
    assert (state, job.field("Restarts")) == ("COMPLETED", "1"), log
    assert log.count("interrupted after") == 1
    with h5py.File(output) as file:
        assert file.attrs["iterations"] == whole["iterations"]
    require_same_solution(output, tmp_path / "alone.h5")
    assert not output.with_suffix(".h5.checkpoint").exists()


def test_a_solve_that_reaches_its_time_limit_goes_on_in_the_same_job(submit, tmp_path):
    alone("solve", "-o", tmp_path / "alone.h5", *LONG)
    output = tmp_path / "out.h5"
    job = submit("solve.sbatch", "-o", output, *LONG, *OFTEN, options=["--signal=USR1@60"])
    job.wait_for(output.with_suffix(".h5.checkpoint").exists)
    # Slurm looks at limits every 30 seconds, and sends the signal when a minute is left.
    job.update("TimeLimit=1")
    job.wait_for(lambda: job.field("Restarts") == "1")
    job.update("TimeLimit=60")
    state, log = job.end()
    assert state == "COMPLETED", log
    assert log.count("interrupted after") == 1
    require_same_solution(output, tmp_path / "alone.h5")


def test_a_training_that_is_stopped_goes_on_in_the_same_job(data, submit, tmp_path):
    options = (*TRAIN, "--epochs", "10")
    outputs = tmp_path / "whole.h5", tmp_path / "part.h5"
    # On two tasks: then a sum over them rounds in one way only, whatever the buckets of gradients.
    whole, part = (
        submit("train.sbatch", data, "-o", out, *options, *OFTEN, options=["-n2"])
        for out in outputs
    )
    part.wait_for(lambda: any(tmp_path.glob("part.h5.checkpoint-*")))
    subprocess.run(["scancel", "--signal=USR1", part.number], check=True)
    for job, restarts in ((whole, "0"), (part, "1")):
        state, log = job.end()
        assert (state, job.field("Restarts")) == ("COMPLETED", restarts), log
    (_, expected), (_, weights) = map(read_model, outputs)
    for name, values in expected.items():
        np.testing.assert_array_equal(weights[name], values)
    assert not any(tmp_path.glob("part.h5.checkpoint-*"))


def test_every_seed_of_an_array_has_its_own_file(submit, tmp_path):
    output = tmp_path / "out-{seed}.h5"
    arguments = ("solve", "-o", output, "--cells", "64x64", "--boundary", "gp:seed={seed}")
    options = ["--array=3,5", f"--output={tmp_path}/%A_%a.log"]
    job = submit("array.sbatch", *arguments, options=options)
    job.wait_for(lambda: not queued(job.number))
    for seed in (3, 5):
        alone(
            "solve", "-o", tmp_path / "alone.h5", *arguments[3:5], "--boundary", f"gp:seed={seed}"
        )
        require_same_solution(tmp_path / f"out-{seed}.h5", tmp_path / "alone.h5")


def queued(number):
    listed = subprocess.run(
        ["squeue", "--noheader", f"--jobs={number}"], capture_output=True, text=True, check=False
    )
    return listed.stdout


def test_srun_without_a_pmi_says_one_line_and_nothing_is_written(environment, tmp_path):
    command = ["mosaicdd", "solve", "-o", tmp_path / "out.h5", "--cells", "64x64"]
    ended = subprocess.run(
        ["srun", "--mpi=none", "--ntasks=3", "--quiet", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    said = [line for line in ended.stderr.splitlines() if not line.startswith("srun: ")]
    assert len(said) == 1, ended.stderr
    assert said[0].startswith("Error: srun started 3 tasks, but")
    assert not os.listdir(tmp_path)
