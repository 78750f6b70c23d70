"""Relaxation by factors that take turns: the same solutions in fewer iterations."""

import itertools

import numpy as np
import pytest

from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.local_solvers.loading import find_local_solver

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *itertools.product(["exact", "laplace"], [{}, {"length": 0.2}, {"noise": 0.3}]),
        ("laplace-sdnet", {"noise": 0.3}),
        pytest.param("laplace-sdnet", {}, marks=pytest.mark.nightly),
        pytest.param("laplace-sdnet", {"length": 0.2}, marks=pytest.mark.nightly),
    ],
)
def test_they_save_a_sixth_of_the_iterations_at_least(name, data, make_lattice, make_solver):
    lattice = make_lattice((8, 9) if name == "laplace-sdnet" else (16, 17), m=32)
    boundary = Boundary.of_gaussian_process(lattice.grid, seed=1, **data)
    solver = {} if name == "exact" else {"local_solver": find_local_solver(name).as_trained()}
    plain, relaxed = (
        make_solver(lattice, accelerate=accelerate, rtol=1e-9, **solver).solve(boundary)
        for accelerate in ("none", "chebyshev")
    )
    assert plain.status == relaxed.status == "converged_rtol"
    assert relaxed.iterations <= 5 / 6 * plain.iterations
    # Both updates are at most 1e-9 of values of size 1, in the root mean square; the iterations
    # contract by 0.25, and single nodes are off by up to 10 times as much.
    np.testing.assert_allclose(relaxed.field, plain.field, rtol=0, atol=1e-8)


@RANKS
@pytest.mark.parametrize("depth", [1, 2])
def test_every_rank_takes_the_same_steps_as_one(
    depth, make_lattice, make_solver, make_ranks, all_dims, problem
):
    lattice = make_lattice((13, 14))
    boundary, _ = problem(lattice)
    for steps in range(1, 6):  # each factor once, and the first again
        solve = {"max_iterations": steps, "rtol": 0.0}
        serial = make_solver(lattice, **solve).solve(boundary).field
        for ranks in map(make_ranks, all_dims):
            solver = make_solver(lattice, ranks=ranks, halo_depth=depth, **solve)
            solution = solver.solve(boundary)
            np.testing.assert_allclose(
                solution.field, serial[solution.place], rtol=0, atol=1e-13 * 4
            )


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_a_continued_run_goes_on_with_the_factor_that_is_due(
    steps, make_lattice, make_solver, problem
):
    lattice = make_lattice((13, 14))
    boundary, _ = problem(lattice)
    whole = make_solver(lattice).solve(boundary)
    part = make_solver(lattice, max_iterations=steps).solve(boundary)
    assert part.status == "diverged_max_iterations"
    rest = make_solver(lattice).solve(boundary, start=part.interface, histories=[part.history])
    np.testing.assert_array_equal(rest.history.update, whole.history.update)
    np.testing.assert_array_equal(rest.field, whole.field)
