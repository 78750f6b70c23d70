"""The shipped network of a nonlinear equation: how right it is, and what it is not trusted with."""

import numpy as np
import pytest

from mosaicdd.problems.domain import Domain
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references.references import solve_directly
from mosaicdd.problems.sides.conditions import Dirichlet
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.solver import Solver, solve

NAME = "poisson-boltzmann"
CELLS = (96, 160)
FAST = SolveSettings(rtol=1e-5)


def smooth(x, y):
    return 3.0 * np.sin(2 * x) * np.cos(y)


def problem(c=10.0, cells=CELLS, sides="2*sin(1.3*x + 0.5*y)*cos(0.7*y)", spacing=None):
    return Problem(Domain(cells, spacing), NAME, {"c": c, "f": smooth}, Dirichlet(sides))


def relative(solution, one):
    truth = solve_directly(one)
    return np.linalg.norm(solution.field - truth) / np.linalg.norm(truth)


@pytest.mark.parametrize("c", [0.0, 0.5, 5.0, 50.0])
def test_smooth_data_are_solved_to_5e4_and_the_estimate_says_so(c):
    one = problem(c)
    solution = solve(one, NAME, settings=FAST)
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 8
    error = relative(solution, one)
    assert error <= 5e-4
    size = np.sqrt(np.square(solution.field).mean())
    assert error * size <= 1.2 * solution.error_estimate
    assert solution.error_estimate <= 10 * error * size + 1e-5


def test_another_spacing_is_as_well_solved():
    one = problem(30.0, spacing=1 / 100)
    assert relative(solve(one, NAME, settings=FAST), one) <= 5e-4


def test_the_first_ring_by_newtons_method_takes_out_what_rough_data_cost():
    rng = np.random.default_rng(3)
    a = 0.2 * rng.standard_normal(4)
    sides = f"sin(x) + {a[0]}*sin(23*x) + {a[1]}*cos(31*y) + {a[2]}*sin(41*x + 17*y)"
    one = problem(sides=sides)
    errors = [
        relative(solve(one, NAME, settings=FAST.with_changes(out_of_range=how)), one)
        for how in ("network", "edge")
    ]
    assert errors[1] <= 5e-4
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("how", ["network", "edge"])
def test_all_numbers_of_ranks_give_the_same(alone_and_together, across_batches, how):
    settings = FAST.with_changes(out_of_range=how)
    alone, together = alone_and_together(solve, problem(), NAME, settings=settings)
    assert together.iterations == alone.iterations
    assert together.report["outside_training_range"] == alone.report["outside_training_range"]
    atol = across_batches(alone.field)
    np.testing.assert_allclose(together.gather(), alone.field, rtol=0, atol=atol)


def test_values_beyond_the_range_are_left_to_newtons_method():
    one = problem(sides="5*sin(1.3*x + 0.5*y)")
    solution = solve(one, NAME, settings=FAST)
    assert solution.status == "converged_rtol"
    assert 0 < solution.report["outside_training_range"] < solution.report["subdomains"]
    assert relative(solution, one) <= 5e-4


def test_a_network_that_does_not_solve_the_equation_is_refused(changed_model):
    with pytest.raises(ValueError, match="in its self-test"):
        Solver(problem(), changed_model)


def test_a_certificate_makes_up_for_any_network(changed_model):
    one = problem()
    solution = solve(one, changed_model, settings=FAST.with_changes(certify=1e-9))
    assert solution.status == "converged_rtol"
    assert solution.report["discrete_residual"] <= 1e-9
    assert relative(solution, one) <= 1e-8


def test_a_certificate_takes_no_more_newton_steps_than_without_the_network():
    exact = solve(problem(), "exact", settings=SolveSettings(rtol=1e-9))
    certified = solve(problem(), NAME, settings=FAST.with_changes(certify=1e-9))
    steps = certified.report["certificate"]["iterations"]
    assert steps <= min(2, exact.iterations)


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (problem(80.0), "c=80 has 80; take 'exact', or ask for a certified answer"),
        (problem("5 + x"), "c is a field here"),
        (problem(sides="1000 + x"), "residual is not finite for values between"),
        (Problem(Domain(CELLS), "allen-cahn"), "does not solve allen-cahn"),
    ],
)
def test_what_it_was_not_trained_for_is_refused_in_one_line(one, message):
    with pytest.raises(ValueError, match=message) as caught:
        Solver(one, NAME)
    assert "\n" not in str(caught.value)


def test_newtons_method_stays_the_default():
    assert solve(problem(cells=(64, 64))).report["local_solver"] == "exact"
