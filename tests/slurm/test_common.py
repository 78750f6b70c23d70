"""When a job is continued and when it goes back into the queue, with stand-ins for Slurm."""

import os
import subprocess

import pytest

SRUN = """#!/usr/bin/env bash
echo "${@:3}" >>"$LOG" # without --mpi and --kill-on-bad-exit
eval "$HAPPENS"
"""
SCONTROL = '#!/usr/bin/env bash\necho "$@" >>"$LOG"\n'
CHECKPOINT = "out.h5.checkpoint"


@pytest.fixture
def job(repository, tmp_path):
    """Return a function that runs a batch script; it gives the exit code and what was called."""
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "slurm").symlink_to(repository / "slurm")

    def run(script, *arguments, happens="true", **variables):
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        ended = subprocess.run(
            ["bash", tmp_path / "slurm" / script, *arguments],
            env={
                "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "SLURM_SUBMIT_DIR": str(tmp_path),
                "SLURM_JOB_ID": "7",
                "LOG": str(log),
                "HAPPENS": happens,
                **variables,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return ended.returncode, log.read_text().splitlines() if log.exists() else [ended.stderr]

    return run


@pytest.mark.parametrize(
    "output",
    [("-o", "out.h5"), ("-oout.h5",), ("--output", "out.h5"), ("--output=out.h5",)],
    ids=" ".join,
)
def test_the_output_is_understood_however_it_is_written(output, job, tmp_path):
    assert job("solve.sbatch", *output, "--json") == (
        0,
        [f"mosaicdd solve {' '.join(output)} --json"],
    )
    (tmp_path / CHECKPOINT).touch()
    called = f"mosaicdd solve {' '.join(output)} --json --resume"
    assert job("solve.sbatch", *output, "--json") == (0, [called])


@pytest.mark.parametrize(
    ("script", "checkpoint"),
    [("solve.sbatch", CHECKPOINT), ("train.sbatch", f"{CHECKPOINT}-000000012")],
)
@pytest.mark.parametrize("code", [1, 138, 143])
def test_a_run_that_stops_with_a_checkpoint_is_requeued(script, checkpoint, code, job):
    happens = f"echo new >>{checkpoint}; exit {code}"
    for resume in ("", " --resume"):
        _, (run, requeue) = job(script, "-o", "out.h5", happens=happens)
        assert run == f"mosaicdd {script.partition('.')[0]} -o out.h5{resume}"
        assert requeue == "requeue 7"


@pytest.mark.parametrize(
    ("happens", "code"),
    [
        ("exit 0", 0),
        ("exit 1", 1),  # the same error, or too short a time limit, again and again
        ("exit 2", 2),
        (f"rm -f {CHECKPOINT}; exit 1", 1),  # ended, without having converged
        (f"touch {CHECKPOINT}-9x other.{CHECKPOINT}; exit 1", 1),  # another job's
    ],
)
def test_a_run_that_ends_or_gets_nowhere_is_not_requeued(happens, code, job, tmp_path):
    for _ in range(2):
        ended, called = job("solve.sbatch", "-o", "out.h5", happens=happens)
        assert (ended, len(called)) == (code, 1)
        (tmp_path / CHECKPOINT).touch()


def test_of_an_array_only_the_job_itself_is_requeued(job):
    _, (run, requeue) = job(
        "array.sbatch",
        *("solve", "-o", "out-{seed}.h5", "--boundary", "gp:seed={seed}"),
        happens="touch out-3.h5.checkpoint; exit 1",
        SLURM_ARRAY_JOB_ID="7",
        SLURM_ARRAY_TASK_ID="3",
    )
    assert run == "mosaicdd solve -o out-3.h5 --boundary gp:seed=3"
    assert requeue == "requeue 7_3"


def test_an_array_whose_jobs_would_write_one_file_is_refused(job):
    code, (message,) = job("array.sbatch", "solve", "-o", "out.h5", SLURM_ARRAY_TASK_ID="3")
    assert code == 2
    assert message.count("\n") == 1
    assert "put {seed} into the name" in message


@pytest.mark.parametrize(("tasks", "sizes"), [(1, [1]), (4, [1, 2, 4]), (7, [1, 2, 4])])
def test_scaling_is_measured_on_powers_of_two(tasks, sizes, job):
    _, called = job("scaling.sbatch", "--cells", "64x64", SLURM_NTASKS=str(tasks))
    assert called == [
        f"--ntasks={size} python benchmarks/run.py scaling --cells 64x64" for size in sizes
    ]
