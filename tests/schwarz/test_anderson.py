"""Anderson acceleration: the same solutions in fewer iterations, and no false ones."""

import numpy as np
import pytest

from mosaicdd.local_solvers.loading import find_local_solver
from mosaicdd.problems.sides.boundary import Boundary

RANKS = pytest.mark.ranks(1, 2, 4)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(3, 10))]
)
def test_the_sdnet_reaches_its_stationary_solution_in_fewer_iterations(
    seed, make_lattice, make_solver
):
    lattice = make_lattice((5 + seed % 3, 6 + seed % 4), m=32)
    data = [{}, {"length": 0.2}, {"noise": 0.3}][seed % 3]
    boundary = Boundary.of_gaussian_process(lattice.grid, seed=seed, **data)
    sdnet = find_local_solver("laplace-sdnet").as_trained()
    plain, fast = (
        make_solver(lattice, local_solver=sdnet, accelerate=name, rtol=1e-9).solve(boundary)
        for name in ("none", "anderson")
    )
    assert plain.status == fast.status == "converged_rtol"
    assert fast.iterations < plain.iterations
    # Both updates are below 1e-9 of values of size 1; the iteration contracts by 0.25.
    np.testing.assert_allclose(fast.field, plain.field, rtol=0, atol=1e-8)
    # No false fixed point: T v = v, measured by the fill, not by the acceleration.
    assert fast.residual <= 1e-9


def test_one_level_profits_most(make_lattice, make_solver, problem):
    lattice = make_lattice((9, 9))
    boundary, truth = problem(lattice)
    counts = {}
    for name in ("none", "anderson"):
        solver = make_solver(
            lattice, levels=1, sweep="additive", accelerate=name, max_iterations=10_000, rtol=1e-9
        )
        solution = solver.solve(boundary)
        counts[name] = solution.iterations
        # 1 - rho = 1.3e-2 at K = 4.5 (DESIGN 3.1, ~ 1 / K^2): the error is 80 updates.
        np.testing.assert_allclose(solution.field, truth, rtol=0, atol=1e-6)
    assert counts["anderson"] < counts["none"] / 3


def test_an_iteration_without_a_fixed_point_is_not_made_to_have_one(
    make_lattice, make_solver, changed_exact, problem
):
    def jump(g, out):
        out += 0.5 * (g.mean(dim=1, keepdim=True) < out.mean(dim=1, keepdim=True))
        out -= 0.5 * (g.mean(dim=1, keepdim=True) >= out.mean(dim=1, keepdim=True))

    lattice = make_lattice((8, 8))
    boundary, _ = problem(lattice)
    local_solver = changed_exact(lattice.subdomain, jump, linear=False)
    solver = make_solver(lattice, local_solver=local_solver, accelerate="anderson")
    assert not solver.solve(boundary).converged


@RANKS
def test_the_iterations_do_not_depend_on_the_ranks(make_lattice, make_solver, make_ranks, problem):
    lattice = make_lattice((9, 14))
    boundary, _ = problem(lattice)
    serial, parallel = (
        make_solver(lattice, ranks=ranks, accelerate="anderson").solve(boundary)
        for ranks in (make_ranks(alone=True), make_ranks())
    )
    assert parallel.iterations == serial.iterations
    # Weights from a 6 x 6 system of condition 1e14 at most carry rounding to 1e-14 of the
    # residuals, themselves at most 1: what is left is that of the last updates, 1e-10 of values 1.
    np.testing.assert_allclose(parallel.field, serial.field[parallel.place], rtol=0, atol=1e-10)
