"""Anderson's and the quasi-Newton method: the same solutions in fewer iterations, and no false ones."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.local_solvers.loading import find_local_solver

NOISE = {"amplitude": 0.0, "noise": 1.0}
DRAWN = ({}, {"length": 0.2}, {"noise": 0.3})


@pytest.fixture
def sdnet():
    return find_local_solver("laplace-sdnet").as_trained()


def anderson(seed):
    cells, drawn = (5 + seed % 3, 6 + seed % 4), DRAWN[seed % 3]
    marks = [pytest.mark.nightly] * (seed > 2)
    return pytest.param("anderson", cells, {"seed": seed} | drawn, marks=marks)


@pytest.mark.parametrize(
    ("name", "cells", "drawn"),
    [
        *map(anderson, range(10)),
        *((None, (6, 7), {"seed": 1} | drawn) for drawn in ({}, {"length": 0.2}, NOISE)),
    ],
)
def test_the_sdnet_reaches_its_stationary_solution_in_fewer_iterations(
    name, cells, drawn, sdnet, make_lattice, make_solver
):
    lattice = make_lattice(cells, m=32)
    boundary = Boundary.of_gaussian_process(lattice.grid, **drawn)
    plain, fast = (
        make_solver(lattice, local_solver=sdnet, accelerate=how, rtol=1e-9).solve(boundary)
        for how in ("none", name)
    )
    assert plain.status == fast.status == "converged_rtol"
    assert fast.iterations < plain.iterations
    if name is None:  # the quasi-Newton method
        assert fast.iterations <= plain.iterations / 2
    # Both updates are below 1e-9 of values of size 1; the iteration contracts by 0.25.
    np.testing.assert_allclose(fast.field, plain.field, rtol=0, atol=1e-8)
    # No false fixed point: T v = v, measured by the fill, not by the acceleration.
    assert fast.residual <= 1e-9


def test_one_level_profits_most_from_anderson_s(make_lattice, make_solver, problem):
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


@pytest.mark.parametrize("drawn", [{}, NOISE])
def test_a_network_in_float32_has_the_same_solution(drawn):
    grid = m.Domain((224, 256)).grid(0.5 / 32)
    boundary = Boundary.of_gaussian_process(grid, seed=1, **drawn)
    problem = m.Problem((224, 256), "laplace", sides=boundary)
    solutions = [
        m.solve(problem, "laplace-sdnet", settings=m.SolveSettings(rtol=1e-6, network_dtype=name))
        for name in ("float64", "float32")
    ]
    assert [solution.status for solution in solutions] == ["converged_rtol"] * 2
    # Updates of at most 1e-6 of values of size 1, and rounding of some 1e-7 inside of the network, whose
    # own error is above 1e-4 of the remainders.
    np.testing.assert_allclose(solutions[1].field, solutions[0].field, rtol=0, atol=1e-5)


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


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("name", ["quasi-newton", "anderson"])
def test_the_iterations_do_not_depend_on_the_ranks(
    name, sdnet, make_lattice, make_solver, make_ranks, problem
):
    if name == "anderson":
        lattice = make_lattice((9, 14))
        (boundary, _), how = problem(lattice), {"accelerate": name}
    else:
        lattice, how = make_lattice((8, 9), m=32), {"local_solver": sdnet}
        boundary = Boundary.of_gaussian_process(lattice.grid, seed=0)
    serial, parallel = (
        make_solver(lattice, ranks=ranks, **how).solve(boundary)
        for ranks in (make_ranks(alone=True), make_ranks())
    )
    assert parallel.iterations == serial.iterations
    assert name == "anderson" or serial.iterations <= 5
    # Anderson's weights from a 6 x 6 system of condition 1e14 at most carry rounding to 1e-14 of the
    # residuals, themselves at most 1: what is left is that of the last updates, 1e-10 of values 1.
    np.testing.assert_allclose(parallel.field, serial.field[parallel.place], rtol=0, atol=1e-10)
