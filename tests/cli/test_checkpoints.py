"""An interrupted ``solve`` and its continuation, as a user or a batch system sees them."""

import json
import shlex
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
from forked import Forked, run

import mosaicdd as m

SOLVE = "solve -o out.h5 --local-solver exact"
SLOW = "--levels 1 --sync phase --rtol 1e-7"
LONG = f"--cells 384x384 {SLOW}"  # for a signal from outside, which comes when it comes
SHORT = f"{SOLVE} --cells 128x96 {SLOW}"
MEDIUM = "--pde diffusion --cells 768x512 --rtol 1e-11 --field f=1 --boundary 0 --field a=a.npy"
NONLINEAR = (
    "--rtol 1e-11 --pde quasilinear-diffusion --field k=expr:1+u**2 --field f=300 "
    "--domain 'expr:0.2-hypot(x-0.5,y-0.5)' --side hole1=robin:2,1 "
    "--boundary 'expr:sin(3*x)' --side left=neumann:1"
)
CHECKPOINT = "out.h5.checkpoint"


@pytest.fixture
def interrupt(signalled, common_path, monkeypatch):
    """Return a function: the report of a command line to which a signal is sent at its first checkpoint."""

    def send(words, number=signal.SIGTERM):
        monkeypatch.chdir(common_path)
        ended = signalled(number, f"{words} --json")
        part = json.loads(ended.out)
        assert (ended.code, part["status"]) == (1, "interrupted"), ended.err
        return part

    return send


@pytest.fixture
def whole(report_of, common_path):
    """Return a function: the report and the field of a command line that nothing interrupts."""

    def solve(words):
        report = report_of(words)
        return report, m.read(common_path / "out.h5").field

    return solve


def write_medium(path, seed=0):
    np.save(path, np.exp(np.random.default_rng(seed).standard_normal((513, 769))))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_writes_what_there_is_and_resume_goes_on(number, interrupt, whole, tmp_path):
    report, truth = whole(SHORT)
    part = interrupt(SHORT, number)
    assert m.read(tmp_path / "out.h5").status == "interrupted"
    rest, field = whole(f"{SHORT} --resume")
    assert rest["status"] == "converged_rtol"
    assert part["iterations"] < rest["iterations"] == report["iterations"]
    np.testing.assert_array_equal(field, truth)
    assert not (tmp_path / CHECKPOINT).exists()


@pytest.mark.nightly
@pytest.mark.limit(300)
@pytest.mark.parametrize(
    ("words", "begun", "resumed", "error"),
    [
        (LONG, 4, 3, 1e-12),
        (MEDIUM, 3, 1, 1e-9),
        (f"--cells 192x192 --spacing 0.00520833 {NONLINEAR}", 3, 2, 1e-9),
    ],
    ids=["lattice", "medium", "shape"],
)
def test_ranks_are_interrupted_by_a_signal_to_one_and_fewer_go_on(
    words, begun, resumed, error, tmp_path, mpiexec, whole, monkeypatch
):
    write_medium(tmp_path / "a.npy")
    report, truth = whole(f"{SOLVE} {words}")
    # The folder is in the command line of this job alone, by which its ranks are found.
    output = tmp_path / "part.h5"
    command = [sys.executable, "-m", "mosaicdd.cli.main", "solve", "--json", "-o", str(output)]
    command += ["--local-solver", "exact", *shlex.split(words)]
    often = ["--checkpoint-minutes", "0.0001"]
    start = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    job = subprocess.Popen([mpiexec, "-n", str(begun), *command, *often], **start)
    while not output.with_suffix(".h5.checkpoint").exists() and job.poll() is None:
        time.sleep(0.01)
    subprocess.run(["pkill", f"-{signal.SIGTERM}", "-n", "-f", str(output)], check=True)
    out, err = job.communicate(timeout=60)
    part = json.loads(out)
    assert (job.returncode, part["status"]) == (1, "interrupted"), err
    assert part["iterations"] < report["iterations"]
    launcher = (mpiexec, "-n", str(resumed))
    code, rest, err = run(command, "--resume", launcher=launcher)
    assert (code, rest["ranks"], rest["status"]) == (0, resumed, report["status"]), err
    assert rest["iterations"] > part["iterations"]
    newton = "quasilinear" in words
    assert not newton or rest["iterations"] == report["iterations"]
    size = 1.0 if newton else np.abs(truth).max()
    np.testing.assert_allclose(m.read(output).field, truth, rtol=0, atol=error * size)


@pytest.mark.parametrize("damage", ["missing", "other problem", "truncated", "not finite"])
def test_a_checkpoint_of_no_use_is_one_line_and_exit_2(damage, interrupt, refuse, tmp_path):
    interrupt(SHORT)
    checkpoint = tmp_path / CHECKPOINT
    if damage == "missing":
        checkpoint.unlink()
    if damage == "truncated":
        checkpoint.write_bytes(checkpoint.read_bytes()[:-1000])
    if damage == "not finite":
        with h5py.File(checkpoint, "r+") as file:
            file["problems/0/lines/0"][3, 3] = np.nan
    cells = "--cells 256x96" if damage == "other problem" else ""
    before = checkpoint.read_bytes() if checkpoint.exists() else None
    refuse(f"{SHORT} {cells} --resume", "Error: --resume")
    assert (checkpoint.read_bytes() if checkpoint.exists() else None) == before


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_a_checkpoint_holds_the_interface_whatever_the_process_grid(
    whole, succeed, write, all_dims, comm
):
    write("f.npy", np.random.default_rng(0).standard_normal((145, 225)))
    words = f"{SOLVE} --cells 224x144 --pde poisson --field f=f.npy --boundary gp:seed=0"
    report, truth = whole(words)
    for (y, x), (rows, columns) in zip(all_dims, all_dims[::-1], strict=True):
        succeed(f"{words} --max-iterations 3 --dims {x}x{y}", code=1)
        comm.Barrier()
        rest, field = whole(f"{words} --resume --dims {columns}x{rows}")
        assert rest["iterations"] == report["iterations"] > 3
        # Sums in another order: units in the last place, per iteration.
        np.testing.assert_allclose(field, truth, rtol=0, atol=1e-12 * np.abs(truth).max())
        comm.Barrier()


def test_several_problems_are_killed_and_the_others_go_on(whole, tmp_path, monkeypatch):
    several = f"{SOLVE} --cells 96x64 {SLOW} --boundary gp:seed=0..39 --batch 1"
    report, _ = whole(several)
    (tmp_path / "out.h5").rename(tmp_path / "whole.h5")
    words = shlex.split(f"mosaicdd {several} --checkpoint-minutes 0.0005")
    job, checkpoint = Forked(words, tmp_path), tmp_path / CHECKPOINT
    while not list(checkpoint.glob("ended-*")) and job.poll() is None:
        time.sleep(0.01)
    assert job.poll() is None, job.communicate(timeout=60)
    job.send_signal(signal.SIGKILL)
    job.communicate(timeout=60)
    assert not (tmp_path / "out.h5").exists()
    (checkpoint / ".begun-000002.8fcd4da3.part").write_bytes(b"not written to its end")
    rest, _ = whole(f"{several} --resume")
    iterations = [[row["iterations"] for row in each["problems"]] for each in (report, rest)]
    assert iterations[0] == iterations[1]
    with h5py.File(tmp_path / "out.h5") as file, h5py.File(tmp_path / "whole.h5") as other:
        np.testing.assert_array_equal(file["solution"][()], other["solution"][()])
    assert not checkpoint.exists()


@pytest.mark.ranks(1, 2)
def test_newtons_method_on_a_shape_is_interrupted_and_goes_on(interrupt, whole, mosaicdd, comm):
    words = f"{SOLVE} --cells 64x64 --spacing 0.015625 {NONLINEAR}"
    report, truth = whole(words)
    comm.Barrier()
    assert interrupt(words)["iterations"] < report["iterations"]
    ended = mosaicdd(f"{words} --side right=neumann:0 --resume")
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    rest, field = whole(f"{words} --resume")
    assert (rest["status"], rest["iterations"]) == ("converged_rtol", report["iterations"])
    np.testing.assert_allclose(field, truth, rtol=0, atol=1e-9)
    comm.Barrier()


def test_other_values_in_the_same_file_are_another_medium(interrupt, refuse, tmp_path):
    write_medium(tmp_path / "a.npy")
    interrupt(f"{SOLVE} {MEDIUM}")
    write_medium(tmp_path / "a.npy", 1)
    refuse(f"{SOLVE} {MEDIUM} --resume", "its field a is")


def test_another_boundary_is_another_problem(interrupt, refuse):
    interrupt(SHORT)
    refuse(f"{SHORT} --resume --boundary gp:seed=1", "its boundary is")


def test_a_warning_that_comes_after_the_work_does_not_spoil_it(succeed, monkeypatch, tmp_path):
    from mosaicdd.solution.checkpoints import Checkpoints

    remove = Checkpoints.remove

    def warned(self):
        signal.raise_signal(signal.SIGUSR1)
        remove(self)

    monkeypatch.setattr(Checkpoints, "remove", warned)
    succeed(f"{SOLVE} --cells 64x64")
    assert m.read(tmp_path / "out.h5").status == "converged_rtol"


def test_people_are_told_at_once_and_how_to_go_on(tmp_path):
    words = shlex.split(f"mosaicdd {SOLVE} {LONG} --checkpoint-minutes 0.0001")
    job = Forked(words, tmp_path)
    while not (tmp_path / CHECKPOINT).exists() and job.poll() is None:
        time.sleep(0.01)
    job.send_signal(signal.SIGINT)
    out, err = job.communicate(timeout=60)
    assert job.returncode == 1, err
    assert f"interrupted: finishing this iteration, writing out.h5 and {CHECKPOINT}" in err
    assert f"kept in {CHECKPOINT}: the same command with --resume goes on" in out
