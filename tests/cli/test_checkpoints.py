"""An interrupted ``solve`` and its continuation, as a user or a batch system sees them."""

import json
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
from forked import Forked, run

from mosaicdd.grid.partition import Partition
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.results.checkpoints import Checkpoints
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopping import History

SOLVE = ("solve", "--json", "--local-solver", "exact")
COMMAND = (sys.executable, "-m", "mosaicdd.cli.main", *SOLVE)
SLOW = ("--levels", "1", "--sync", "phase", "--rtol", "1e-7")
LONG = ("--cells", "384x384", *SLOW)  # for a signal from outside, which comes when it comes
SHORT = ("--cells", "128x96", *SLOW)


def interrupt(number, *arguments, launcher=()):
    """Start ``solve``, send a signal to one of its ranks in the middle, and return as `run`."""
    job = subprocess.Popen(
        [*launcher, *COMMAND, *arguments, "--checkpoint-minutes", "0.0001"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    checkpoint = arguments[arguments.index("-o") + 1].with_suffix(".h5.checkpoint")
    while not checkpoint.exists() and job.poll() is None:
        time.sleep(0.01)
    pattern = str(arguments[arguments.index("-o") + 1])
    subprocess.run(["pkill", f"-{number}", "-n", "-f", pattern], check=True)
    out, err = job.communicate(timeout=60)
    return job.returncode, json.loads(out) if out else None, err


@pytest.fixture
def interrupted(signalled, tmp_path):
    """Return the file of an interrupted solve, beside its checkpoint."""
    ended = signalled(signal.SIGTERM, *SOLVE, "-o", tmp_path / "out.h5", *SHORT)
    assert ended.code == 1, ended.err
    return tmp_path / "out.h5"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_writes_what_there_is_and_resume_goes_on(number, mosaicdd, signalled, tmp_path):
    output, whole = tmp_path / "part.h5", tmp_path / "whole.h5"
    report = json.loads(mosaicdd(*SOLVE, "-o", whole, *SHORT).out)
    ended = signalled(number, *SOLVE, "-o", output, *SHORT)
    part = json.loads(ended.out)
    assert (ended.code, part["status"]) == (1, "interrupted"), ended.err
    with h5py.File(output) as file:
        assert file.attrs["status"] == "interrupted"
    ended = mosaicdd(*SOLVE, "-o", output, *SHORT, "--resume")
    rest = json.loads(ended.out)
    assert (ended.code, rest["status"]) == (0, "converged_rtol")
    assert part["iterations"] < rest["iterations"] == report["iterations"]
    with h5py.File(output) as file, h5py.File(whole) as other:
        np.testing.assert_array_equal(file["solution"][()], other["solution"][()])
    assert not output.with_suffix(".h5.checkpoint").exists()


@pytest.mark.nightly
@pytest.mark.limit(300)
def test_four_ranks_are_interrupted_by_a_signal_to_one_and_three_go_on(tmp_path, mpiexec):
    output, whole = tmp_path / "part.h5", tmp_path / "whole.h5"
    launcher = (mpiexec, "-n", "4")
    code, part, err = interrupt(signal.SIGTERM, "-o", output, *LONG, launcher=launcher)
    assert (code, part["status"]) == (1, "interrupted"), err
    code, rest, err = run(COMMAND, "-o", output, *LONG, "--resume", launcher=(mpiexec, "-n", "3"))
    assert code == 0, err
    assert rest["ranks"] == 3
    assert run(COMMAND, "-o", whole, *LONG)[0] == 0
    with h5py.File(output) as file, h5py.File(whole) as other:
        field, truth = file["solution"][()], other["solution"][()]
    np.testing.assert_allclose(field, truth, rtol=0, atol=1e-12 * np.abs(truth).max())


@pytest.mark.parametrize("damage", ["missing", "other problem", "truncated", "not finite"])
def test_a_checkpoint_of_no_use_is_one_line_and_exit_2(damage, interrupted, mosaicdd):
    output = interrupted
    checkpoint = output.with_suffix(".h5.checkpoint")
    if damage == "missing":
        checkpoint.unlink()
    if damage == "truncated":
        checkpoint.write_bytes(checkpoint.read_bytes()[:-1000])
    if damage == "not finite":
        with h5py.File(checkpoint, "r+") as file:
            file["problems/0/lines/0"][3, 3] = np.nan
    cells = ("--cells", "256x96") if damage == "other problem" else ()
    before = checkpoint.read_bytes() if checkpoint.exists() else None
    ended = mosaicdd(*SOLVE, "-o", output, *SHORT, *cells, "--resume")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Error: --resume")
    assert len(ended.err.splitlines()) == 1
    assert (checkpoint.read_bytes() if checkpoint.exists() else None) == before


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_a_checkpoint_holds_the_interface_whatever_the_process_grid(
    make_lattice, make_ranks, all_dims, common_path
):
    lattice = make_lattice((9, 14))
    boundary = Boundary.of_gaussian_process(lattice.grid)
    exact = ExactSolver(LAPLACE.at(), lattice.subdomain)
    identities = []
    source = np.random.default_rng(0).standard_normal(lattice.grid.nodes)
    for dims in all_dims:
        ranks = make_ranks(dims)
        solver = Engine(
            Partition(exact.boxes(lattice.grid, (False,) * len(lattice.cells)), ranks),
            exact,
            SolveSettings(),
        )
        problem = Problem(lattice.grid.shape, "poisson", {"f": source}, sides=boundary)
        checkpoints = Checkpoints(
            common_path / "out.h5", ranks, solver, problem, "exact", solver.settings
        )
        v = solver.solve(boundary).interface
        history = History([1.0], [2.0], [3.0], [4.0])
        checkpoints.save(v, [history])
        checkpoints.read()
        begin = checkpoints.start(range(1), solver)
        again = begin["start"]
        again.impose([boundary])
        assert begin["histories"] == [history]
        np.testing.assert_array_equal(again.flat, v.flat)
        identities.append(checkpoints._identity)
    assert all(one == identities[0] for one in identities)
    assert "field f" in identities[0]


MEDIUM = (
    "--pde",
    "diffusion",
    "--cells",
    "768x512",
    "--rtol",
    "1e-11",
    "--field",
    "f=1",
    "--boundary",
    "0",
)


def write_medium(path, seed):
    np.save(path, np.exp(np.random.default_rng(seed).standard_normal((513, 769))))
    return *MEDIUM, "--field", f"a={path}"


@pytest.mark.nightly
@pytest.mark.limit(300)
def test_a_medium_is_interrupted_on_three_ranks_and_goes_on_on_one(tmp_path, mpiexec):
    output, medium = tmp_path / "part.h5", write_medium(tmp_path / "a.npy", 0)
    code, whole, err = run(COMMAND, "-o", tmp_path / "whole.h5", *medium)
    assert code == 0, err
    launcher = (mpiexec, "-n", "3")
    code, part, err = interrupt(signal.SIGTERM, "-o", output, *medium, launcher=launcher)
    assert (code, part["status"]) == (1, "interrupted"), err
    code, rest, err = run(COMMAND, "-o", output, *medium, "--resume")
    assert (code, rest["status"]) == (0, whole["status"]), err
    assert rest["iterations"] > part["iterations"]
    with h5py.File(output) as file, h5py.File(tmp_path / "whole.h5") as other:
        field, truth = file["solution"][()], other["solution"][()]
    np.testing.assert_allclose(field, truth, rtol=0, atol=1e-9 * np.ptp(truth))


def test_several_problems_are_killed_and_the_others_go_on(mosaicdd, tmp_path):
    output, whole = tmp_path / "out.h5", tmp_path / "whole.h5"
    several = ("--cells", "96x64", *SLOW, "--boundary", "gp:seed=0..39", "--batch", "1")
    job = Forked(["mosaicdd", *SOLVE, "-o", output, *several, "--checkpoint-minutes", "0.0005"])
    checkpoint = output.with_suffix(".h5.checkpoint")
    while not list(checkpoint.glob("ended-*")) and job.poll() is None:
        time.sleep(0.01)
    assert job.poll() is None, job.communicate(timeout=60)
    job.send_signal(signal.SIGKILL)
    job.communicate(timeout=60)
    assert not output.exists()
    (checkpoint / ".begun-000002.8fcd4da3.part").write_bytes(b"not written to its end")
    ended = mosaicdd(*SOLVE, "-o", output, *several, "--resume")
    assert ended.code == 0, ended.err
    report = json.loads(mosaicdd(*SOLVE, "-o", whole, *several).out)
    iterations = [row["iterations"] for row in report["problems"]]
    assert [row["iterations"] for row in json.loads(ended.out)["problems"]] == iterations
    with h5py.File(output) as file, h5py.File(whole) as other:
        np.testing.assert_array_equal(file["solution"][()], other["solution"][()])
    assert not checkpoint.exists()


NONLINEAR = (
    *("--cells", "192x192", "--spacing", "0.00520833", "--rtol", "1e-11"),
    *("--pde", "quasilinear-diffusion", "--field", "k=expr:1+u**2", "--field", "f=300"),
    *("--domain", "expr:0.2-hypot(x-0.5,y-0.5)", "--side", "hole1=robin:2,1"),
    *("--boundary", "expr:sin(3*x)", "--side", "left=neumann:1"),
)


@pytest.mark.ranks(1, 2)
def test_newtons_method_on_a_shape_is_interrupted_and_goes_on(
    mosaicdd, signalled, common_path, comm
):
    output, short = common_path / "part.h5", ("--cells", "64x64", "--spacing", "0.015625")
    ended = mosaicdd(*SOLVE, "-o", common_path / "whole.h5", *NONLINEAR, *short)
    assert ended.code == 0, ended.err
    whole = json.loads(ended.out)
    ended = signalled(signal.SIGTERM, *SOLVE, "-o", output, *NONLINEAR, *short)
    part = json.loads(ended.out)
    assert (ended.code, part["status"]) == (1, "interrupted"), ended.err
    assert part["iterations"] < whole["iterations"]
    other = ("--side", "right=neumann:0", "--resume")
    ended = mosaicdd(*SOLVE, "-o", output, *NONLINEAR, *short, *other)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    ended = mosaicdd(*SOLVE, "-o", output, *NONLINEAR, *short, "--resume")
    rest = json.loads(ended.out)
    assert (ended.code, rest["status"]) == (0, "converged_rtol"), ended.err
    assert rest["iterations"] == whole["iterations"]
    if comm.rank == 0:
        with h5py.File(output) as file, h5py.File(common_path / "whole.h5") as other:
            field, truth = file["solution"][()], other["solution"][()]
        np.testing.assert_allclose(field, truth, rtol=0, atol=1e-9)
    comm.Barrier()


@pytest.mark.nightly
@pytest.mark.limit(300)
def test_newtons_method_on_a_shape_is_interrupted_on_three_ranks_and_goes_on_on_two(
    mosaicdd, tmp_path, mpiexec
):
    output = tmp_path / "part.h5"
    ended = mosaicdd(*SOLVE, "-o", tmp_path / "whole.h5", *NONLINEAR)
    assert ended.code == 0, ended.err
    whole = json.loads(ended.out)
    launcher = (mpiexec, "-n", "3")
    code, part, err = interrupt(signal.SIGTERM, "-o", output, *NONLINEAR, launcher=launcher)
    assert (code, part["status"]) == (1, "interrupted"), err
    assert part["iterations"] < whole["iterations"]
    ended = mosaicdd(*SOLVE, "-o", output, *NONLINEAR, "--side", "right=neumann:0", "--resume")
    assert (ended.code, len(ended.err.splitlines())) == (2, 1)
    code, rest, err = run(
        COMMAND, "-o", output, *NONLINEAR, "--resume", launcher=(mpiexec, "-n", "2")
    )
    assert (code, rest["status"]) == (0, "converged_rtol"), err
    assert rest["iterations"] == whole["iterations"]
    with h5py.File(output) as file, h5py.File(tmp_path / "whole.h5") as other:
        field, truth = file["solution"][()], other["solution"][()]
    np.testing.assert_allclose(field, truth, rtol=0, atol=1e-9)


def test_other_values_in_the_same_file_are_another_medium(mosaicdd, signalled, tmp_path):
    output, medium = tmp_path / "part.h5", write_medium(tmp_path / "a.npy", 0)
    signalled(signal.SIGTERM, *SOLVE, "-o", output, *medium)
    write_medium(tmp_path / "a.npy", 1)
    ended = mosaicdd(*SOLVE, "-o", output, *medium, "--resume")
    assert ended.code == 2
    assert "its field a is" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_another_boundary_is_another_problem(interrupted, mosaicdd):
    ended = mosaicdd(*SOLVE, "-o", interrupted, *SHORT, "--resume", "--boundary", "gp:seed=1")
    assert ended.code == 2
    assert "its boundary is" in ended.err


def test_a_warning_that_comes_after_the_work_does_not_spoil_it(mosaicdd, monkeypatch, tmp_path):
    remove = Checkpoints.remove

    def warned(self):
        signal.raise_signal(signal.SIGUSR1)
        remove(self)

    monkeypatch.setattr(Checkpoints, "remove", warned)
    output = tmp_path / "out.h5"
    ended = mosaicdd("solve", "-o", output, "--cells", "64x64", "--local-solver", "exact")
    assert ended.code == 0, ended.err
    with h5py.File(output) as file:
        assert file.attrs["status"] == "converged_rtol"


def test_people_are_told_at_once_and_how_to_go_on(tmp_path):
    output = tmp_path / "out.h5"
    command = ["mosaicdd", *(word for word in SOLVE if word != "--json"), "-o", output, *LONG]
    job = Forked([*command, "--checkpoint-minutes", "0.0001"])
    while not output.with_suffix(".h5.checkpoint").exists() and job.poll() is None:
        time.sleep(0.01)
    job.send_signal(signal.SIGINT)
    out, err = job.communicate(timeout=60)
    assert job.returncode == 1, err
    checkpoint = f"{output}.checkpoint"
    assert f"interrupted: finishing this iteration, writing {output} and {checkpoint}" in err
    assert f"kept in {checkpoint}: the same command with --resume goes on" in out
