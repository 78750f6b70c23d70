"""Nested iteration: near the solution, as many steps on any grid, and none where there is no coarser grid."""

import numpy as np
import pytest

from mosaicdd import Dirichlet, Domain, Problem, Solver, SolveSettings, solve
from mosaicdd.solvers.newton.newton_equations import nested_start
from mosaicdd.solvers.references import solve_directly


def smooth(x, y):
    return 20.0 * np.sin(2 * x) * np.cos(y)


FIELDS = {
    "poisson-boltzmann": {"c": "20 + x", "f": smooth},
    "quasilinear-diffusion": {"k": "1 + u**2", "a": "1.5 + sin(x*y)", "f": smooth},
    "p-laplace": {"p": 3.0, "f": smooth},
}


def start(one, number=0, ranks=1):
    grid = one.domain.grid()
    boundary = one.boundaries(grid)[number]
    return nested_start(one, grid, boundary, number, SolveSettings(), ranks)


@pytest.mark.parametrize("name", FIELDS)
def test_it_is_near_the_solution(name):
    one = Problem(Domain((64, 144), 1 / 64), name, FIELDS[name], Dirichlet("sin(3*x) + y*y"))
    truth = solve_directly(one)
    found = start(one)((slice(5, 60), slice(0, 145)))
    # Second order, of nodes 1/32 apart, for solutions whose fourth derivatives are some hundreds.
    np.testing.assert_allclose(found[1:-1, 1:-1], truth[6:59, 1:-1], rtol=0, atol=100 / 32**2 / 12)


def test_it_is_that_of_the_problem_asked_for():
    sources = np.stack([np.full((65, 65), value) for value in (1.0, -5.0)])
    one = Problem(Domain((64, 64)), "poisson-boltzmann", {"f": sources}, Dirichlet(0.0))
    whole = slice(0, 65), slice(0, 65)
    first, second = (start(one, number)(whole) for number in (0, 1))
    assert first[32, 32] > 0 > 2 * second[32, 32]


def test_there_is_none_where_coarser_grids_are_too_small():
    assert start(Problem(Domain((48, 64)), "poisson-boltzmann", {}, Dirichlet("x"))) is None


def waves(x, y):  # its slope is up to 4
    return 2 / np.pi * np.sin(2 * np.pi * (x + 0.3 * y)) * np.cos(2 * y)


def test_steep_minimal_surfaces_take_few_steps_on_any_grid():
    steps = []
    for n in (64, 128, 192):
        one = Problem(Domain((n, n), 1 / n), "minimal-surface", {}, Dirichlet(waves))
        steps.append(solve(one, settings=SolveSettings(rtol=1e-8)).iterations)
    assert max(steps[1:]) <= min(steps[0], 7)


SOURCES = ["60*x", "-200*y"]


@pytest.mark.ranks(1, 2)
def test_a_solver_called_with_another_source_begins_with_its_coarser_solution(comm):
    first, second = (
        Problem(Domain((128, 128), 1 / 128), "poisson-boltzmann", {"f": f}, Dirichlet("x"))
        for f in SOURCES
    )
    fresh = solve(second, ranks=comm)
    solver = Solver(first, ranks=comm)
    solver(first)
    again = solver(second)
    assert again.iterations == fresh.iterations
    np.testing.assert_array_equal(again.history.residual, fresh.history.residual)


def test_of_several_sources_each_begins_with_its_coarser_solution():
    y, x = np.mgrid[:129, :129] / 128
    values, domain = np.stack([60 * x, -200 * y]), Domain((128, 128), 1 / 128)
    several = Problem(domain, "poisson-boltzmann", {"f": values}, Dirichlet("x"))
    one = solve(several.some(range(1, 2)))
    assert solve(several).history[1].residual == one.history.residual
