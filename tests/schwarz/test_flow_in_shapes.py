"""Advection and diffusion on domains that are no rectangles: orders of accuracy, and the same answer everywhere."""

import numpy as np
import pytest

from mosaicdd import Dirichlet, Domain, Neumann, Periodic, Problem, Robin, SolveSettings, solve
from mosaicdd.solvers.references import solve_directly

TIGHT = SolveSettings(rtol=1e-11)


def test_a_fast_flow_past_a_cylinder_keeps_between_the_values_that_it_meets():
    # Potential flow around it; upwind of it the value of the inflow, in its wake its own.
    x, y, r = "(x - 0.5)", "(y - 0.5)", "((x - 0.5)**2 + (y - 0.5)**2 + 1e-3)"
    fields = {"a": 1e-3, "bx": f"1 - 0.01*({x}**2 - {y}**2)/{r}**2", "by": f"-0.02*{x}*{y}/{r}**2"}
    sides = {name: Neumann() for name in ("right", "bottom", "top")}
    sides |= {"left": Dirichlet(0.0), "hole1": Dirichlet(1.0)}
    domain = Domain.from_distance("0.1 - hypot(x - 0.5, y - 0.5)", (96, 128), 1 / 96)
    solution = solve(Problem(domain, "advection-diffusion", fields, sides), settings=TIGHT)
    field = solution.field
    assert -1e-9 <= np.nanmin(field) <= np.nanmax(field) <= 1 + 1e-9
    assert field[48, 12] < 1e-3  # at x = 0.125
    assert field[48, 120] > 0.2  # at x = 1.25


def two_holes(x, y):
    return np.maximum(0.3 - np.hypot(x - 0.9, y - 1.1), 0.2 - np.hypot(x - 2.1, y - 1.7))


def constant(n=144):
    """Return a problem whose coefficients are numbers."""
    domain = Domain.from_distance(two_holes, (n, n), 3 / n)
    fields = {"bx": 3.0, "by": -20.0, "f": "x"}
    return Problem(domain, "advection-diffusion", fields, {"left": Dirichlet("y")})


def natural(n=144):
    """Return one with fluxes and exchange on sides and on a hole."""
    domain = Domain.from_distance(two_holes, (n, n), 3 / n)
    sides = {"left": Dirichlet("y"), "right": Neumann(), "top": Robin(2.0, 1.0)}
    sides |= {"hole1": Robin(5.0, 1.0), "hole2": Neumann(1.0)}
    return Problem(domain, "advection-diffusion", {"bx": 30.0, "by": "x", "c": 1.0}, sides)


def rough(n=144):
    """Return a staircase in a medium, with a fast flow."""
    x = np.arange(n + 1) * 3 / n
    domain = Domain.from_mask(two_holes(x, x[:, None]) < 0, 3 / n)
    a = np.exp(2 * np.random.default_rng(0).standard_normal((n, n)))
    fields = {"bx": "10*y", "by": -400.0, "a": a}
    sides = {"left": Dirichlet("y"), "hole1": Neumann()}
    return Problem(domain, "advection-diffusion", fields, sides)


def around(n=144):
    """Return one between periodic sides."""
    domain = Domain.from_distance(two_holes, (n, n), 3 / n)
    sides = {"left": Periodic(), "right": Periodic(), "hole1": Dirichlet(1.0)}
    return Problem(domain, "advection-diffusion", {"bx": 10.0, "by": "cos(x)"}, sides)


PROBLEMS = {one.__name__: one for one in (constant, natural, rough, around)}


@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_fields_are_those_of_a_direct_solver(make):
    problem = make()
    solution, reference = solve(problem, settings=TIGHT), solve_directly(problem)
    assert solution.status == "converged_rtol"
    scale = np.nanmax(abs(reference))
    np.testing.assert_allclose(solution.field, reference, rtol=0, atol=1e-9 * scale)
    loose = solve(problem, settings=SolveSettings(rtol=1e-4))
    rms = np.sqrt(np.nanmean((loose.field - reference) ** 2))
    assert rms <= loose.error_estimate <= 30 * rms


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_all_numbers_of_ranks_give_the_same(alone_and_together, make):
    alone, together = alone_and_together(solve, make(), settings=TIGHT)
    # In the fast flow rounding decides how biconjugate gradients go on.
    if make is not rough:
        assert abs(together.iterations - alone.iterations) <= 1
    scale = np.nanmax(abs(alone.field))
    np.testing.assert_allclose(together.gather(), alone.field, rtol=0, atol=1e-10 * scale)
