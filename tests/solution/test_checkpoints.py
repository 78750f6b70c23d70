"""Checkpoints of solves: what an interrupted one leaves, or one that is out of iterations, and how another goes on."""

import h5py
import numpy as np
import pytest

from mosaicdd import Dirichlet, Output, Problem, Ranks, Solver, SolveSettings, march, solve
from mosaicdd.problems.sides.boundary import BoundarySpec
from mosaicdd.storage.checkpoint_file import MARCH, read_training_checkpoint, writing_checkpoint
from mosaicdd.storage.hdf5 import new_file

CELLS = (128, 192)


def laplace():
    return Problem(CELLS, "laplace", sides=BoundarySpec("gp:seed=0"))


def test_an_interrupted_solve_says_so_and_goes_on_from_its_checkpoint(tmp_path):
    settings = SolveSettings(levels=1, rtol=1e-7)
    whole = solve(laplace(), "exact", settings=settings)
    output = Output(tmp_path / "out.h5")
    with Solver(laplace(), "exact", settings=settings, output=output) as solver:
        part = solver(progress=lambda fraction, note: solver.interrupt())
    assert part.status == "interrupted"
    assert part.checkpoint == tmp_path / "out.h5.checkpoint"
    rest = solve(
        laplace(), "exact", settings=settings, output=Output(tmp_path / "out.h5", resume=True)
    )
    assert part.iterations < rest.iterations == whole.iterations
    np.testing.assert_array_equal(rest.field, whole.field)
    assert rest.checkpoint is None
    assert not part.checkpoint.exists()


def medium():
    return Problem(CELLS, "diffusion", {"a": "1.5 + sin(9*x*y)"}, Dirichlet("x - y"))


def sinh():
    return Problem(CELLS, "poisson-boltzmann", {"c": 10.0}, Dirichlet("2*sin(3*x) + y"))


OUT_OF_ITERATIONS = {
    "stationary": (laplace, "exact", {"levels": 1, "rtol": 1e-4}, 9),
    "krylov": (laplace, "exact", {"accelerate": "gmres"}, 2),
    "multigrid": (medium, "exact", {}, 2),
    "newton": (sinh, "exact", {"rtol": 1e-10}, 1),
}


@pytest.mark.parametrize("how", OUT_OF_ITERATIONS)
def test_out_of_iterations_it_leaves_a_checkpoint_for_a_run_with_more(tmp_path, how):
    make, local_solver, given, few = OUT_OF_ITERATIONS[how]
    settings, path = SolveSettings(**given), tmp_path / "out.h5"
    whole = solve(make(), local_solver, settings=settings)
    less = settings.with_changes(max_iterations=few)
    part = solve(make(), local_solver, settings=less, output=path)
    assert (part.status, part.iterations) == ("diverged_max_iterations", few)
    with h5py.File(part.checkpoint) as file:  # a field of the whole grid, or none
        assert ("problems/0/field" in file) == (how in ("multigrid", "newton"))
    again = Output(path, resume=True)
    rest = solve(make(), local_solver, settings=settings, output=again)
    assert rest.converged
    # Multigrid's gradients begin without the direction of before, which a checkpoint does not hold.
    more = how == "multigrid"
    assert few < whole.iterations <= rest.iterations <= whole.iterations + more
    np.testing.assert_allclose(rest.field, whole.field, rtol=0, atol=1e-6)
    assert not part.checkpoint.exists()


def by_an_earlier_version(path):
    with new_file(path, "checkpoint") as file:
        file.attrs["problem"] = "{}"
        file["lines/0"] = np.zeros((3, 193))
    return "by an earlier version of mosaicdd: .* begin anew without resume"


def of_a_march(path):
    with writing_checkpoint(path, Ranks.alone(), MARCH, {}, {}):
        return "is the checkpoint of steps in time, not of a solve"


@pytest.mark.parametrize("write", [by_an_earlier_version, of_a_march])
def test_checkpoints_of_another_kind_are_refused_in_one_line(tmp_path, write):
    path = tmp_path / "out.h5.checkpoint"
    message, before = write(path), path.read_bytes()
    with pytest.raises(ValueError, match=message) as raised:
        solve(laplace(), "exact", output=Output(tmp_path / "out.h5", resume=True))
    assert len(str(raised.value).splitlines()) == 1
    assert path.read_bytes() == before


def test_checkpoints_of_marches_and_trainings_by_an_earlier_version_are_refused_in_one_line(
    tmp_path,
):
    path = tmp_path / "out.h5.checkpoint"
    with writing_checkpoint(path, Ranks.alone(), MARCH, {}, {"position": "1", "record": {}}):
        pass
    heat, output = Problem(CELLS, "heat"), Output(tmp_path / "out.h5", resume=True)
    with pytest.raises(ValueError, match=r"by an earlier version of mosaicdd: .*") as raised:
        march(heat, 0.0, dt=0.1, steps=2, output=output)
    assert len(str(raised.value).splitlines()) == 1
    with new_file(path, "training checkpoint"):
        pass
    with pytest.raises(ValueError, match=r"'training checkpoint' has left: .* train anew"):
        read_training_checkpoint(path)
