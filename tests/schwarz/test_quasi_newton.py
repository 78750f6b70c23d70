"""The quasi-Newton method: the fixed point of a network that is not linear, in half of the sweeps."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.local_solvers.loading import find_local_solver
from mosaicdd.problems.sides.boundary import Boundary

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)


@pytest.fixture
def sdnet():
    return find_local_solver("laplace-sdnet").as_trained()


@pytest.mark.parametrize("data", [{}, {"length": 0.2}, {"amplitude": 0.0, "noise": 1.0}])
def test_the_sdnet_reaches_its_stationary_solution_in_half_of_the_sweeps(
    data, sdnet, make_lattice, make_solver
):
    lattice = make_lattice((6, 7), m=32)
    boundary = Boundary.of_gaussian_process(lattice.grid, seed=1, **data)
    plain, fast = (
        make_solver(lattice, local_solver=sdnet, accelerate=name, rtol=1e-9).solve(boundary)
        for name in ("none", None)
    )
    assert plain.status == fast.status == "converged_rtol"
    assert fast.iterations <= plain.iterations / 2
    # Both updates are below 1e-9 of values of size 1; the iteration contracts by 0.25.
    np.testing.assert_allclose(fast.field, plain.field, rtol=0, atol=1e-8)
    assert fast.residual <= 1e-9  # T v = v, measured by the fill


@pytest.mark.parametrize("data", [{}, {"amplitude": 0.0, "noise": 1.0}])
def test_a_network_in_float32_has_the_same_solution(data):
    grid = m.Domain((224, 256)).grid(0.5 / 32)
    boundary = Boundary.of_gaussian_process(grid, seed=1, **data)
    problem = m.Problem((224, 256), "laplace", sides=boundary)
    fields = [
        m.solve(problem, "laplace-sdnet", settings=m.SolveSettings(rtol=1e-6, network_dtype=name))
        for name in ("float64", "float32")
    ]
    assert [one.status for one in fields] == ["converged_rtol"] * 2
    # Updates of at most 1e-6 of values of size 1, and rounding of some 1e-7 inside of the network, whose
    # own error is above 1e-4 of the remainders.
    np.testing.assert_allclose(fields[1].field, fields[0].field, rtol=0, atol=1e-5)


def test_where_the_exact_solver_is_no_derivative_plain_steps_converge(
    make_lattice, make_solver, changed_exact, problem
):
    def far_off(g, out):
        out *= 1 - 0.9 * (out.mean(dim=1, keepdim=True) > 0.3)

    lattice = make_lattice((8, 8))
    boundary, _ = problem(lattice)
    local_solver = changed_exact(lattice.subdomain, far_off, linear=False)
    plain, fast = (
        make_solver(lattice, local_solver=local_solver, accelerate=name).solve(boundary)
        for name in ("none", "quasi-newton")
    )
    assert fast.converged == plain.converged


def test_a_linear_solver_needs_two_steps_with_its_own_derivative(
    make_lattice, make_solver, problem
):
    lattice = make_lattice((9, 9))
    boundary, truth = problem(lattice)
    # The inner steps damp errors to 4e-4 of what they were: three times gives 1e-10.
    solution = make_solver(lattice, accelerate="quasi-newton", rtol=1e-7).solve(boundary)
    assert solution.iterations <= 4
    np.testing.assert_allclose(solution.field, truth, rtol=0, atol=1e-6)


@RANKS
def test_the_iterations_do_not_depend_on_the_ranks(sdnet, make_lattice, make_solver, make_ranks):
    lattice = make_lattice((8, 9), m=32)
    boundary = Boundary.of_gaussian_process(lattice.grid, seed=0)
    serial, parallel = (
        make_solver(lattice, ranks=ranks, local_solver=sdnet).solve(boundary)
        for ranks in (make_ranks(alone=True), make_ranks())
    )
    assert parallel.iterations == serial.iterations <= 5
    np.testing.assert_allclose(parallel.field, serial.field[parallel.place], rtol=0, atol=1e-10)
