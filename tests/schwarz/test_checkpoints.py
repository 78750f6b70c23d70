"""Checkpoints of solves: what an interrupted one leaves, or one that is out of iterations, and how another goes on."""

import h5py
import numpy as np
import pytest

from mosaicdd import Dirichlet, Output, Problem, Solver, SolveSettings, solve
from mosaicdd.problems.sides.edge_data import BoundarySpec

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
        assert ("field" in file) == (how in ("multigrid", "newton"))
    again = Output(path, resume=True)
    rest = solve(make(), local_solver, settings=settings, output=again)
    assert rest.converged
    # Multigrid's gradients begin without the direction of before, which a checkpoint does not hold.
    more = how == "multigrid"
    assert few < whole.iterations <= rest.iterations <= whole.iterations + more
    np.testing.assert_allclose(rest.field, whole.field, rtol=0, atol=1e-6)
    assert not part.checkpoint.exists()
