"""Multigrid where a velocity makes couplings differ in both directions, against sparse factorisations."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.solvers.references import solve_directly


def turning(cells, peclet):
    """Return a problem of a box or a rectangle: a velocity that turns, in a medium, with all kinds of sides."""
    domain = m.Domain(cells, 0.1)
    axes = np.meshgrid(*(np.linspace(-1, 1, n + 1) for n in cells), indexing="ij")
    *_, y, x = axes
    white = np.random.default_rng(0).standard_normal(y.shape)
    fields = {"a": np.exp(white), "f": "x + y", "c": 0.1}
    fields |= {"bx": -peclet / 0.1 * y, "by": peclet / 0.1 * x}
    sides = {"left": m.Dirichlet("y"), "right": m.Neumann(0.3), "bottom": m.Robin(0.7, 1.0)}
    if len(cells) == 3:
        fields["bz"] = peclet / 0.2 * np.sin(3 * x)
        sides["front"] = m.Neumann(-0.2)
    return m.Problem(domain, "advection-diffusion", fields, sides)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("cells", [(90, 131), (24, 33, 29)])
def test_every_number_of_ranks_takes_the_same_iterations_to_the_same_field(
    comm, known_by_one, cells
):
    problem, settings = turning(cells, 0.7), m.SolveSettings(rtol=1e-10)
    solution = m.solve(problem, ranks=comm, settings=settings)
    alone = known_by_one(m.solve, problem, settings=settings)
    assert solution.report["accelerate"] == "multigrid"
    assert solution.status == "converged_rtol"
    assert abs(solution.iterations - alone.iterations) <= 1  # as rounding decides
    assert solution.report["discrete_residual"] <= 1.001e-10
    expected = alone.field
    assert np.abs(solution.gather() - expected).max() <= 1e-8 * np.ptp(expected)


@pytest.mark.parametrize("peclet", [0.1, 3.0])
def test_a_field_in_space_is_that_of_a_factorisation(peclet):
    problem = turning((14, 17, 15), peclet)
    solution = m.solve(problem, rtol=1e-10)
    error = np.sqrt(np.square(solution.field - solve_directly(problem)).mean())
    assert solution.converged
    assert error <= solution.error_estimate <= 1e-8


@pytest.mark.parametrize("cells", [(70, 66), (22, 18, 26)])
def test_a_flow_that_comes_round_through_odd_numbers_of_coarse_nodes_takes_few_iterations(cells):
    around = {side: m.Periodic() for side in ("left", "right", "bottom", "top")}
    problem = turning(cells, 1.0)
    sides = around if len(cells) == 2 else around | {"back": m.Dirichlet("x")}
    fields = problem.fields | {"by": 3.0, "bx": 5.0}  # which is as fast on both sides
    problem = m.Problem(problem.domain, "advection-diffusion", fields, sides)
    solution = m.solve(problem, rtol=1e-9)
    assert solution.report["accelerate"] == "multigrid"
    assert solution.converged
    assert solution.iterations <= 20
    assert np.abs(solution.field - solve_directly(problem)).max() <= 1e-6 * np.ptp(solution.field)


def test_in_space_what_contracts_badly_goes_on_and_says_what_came_of_it():
    problem, settings = turning((20, 24, 28), 1e3), m.SolveSettings(max_iterations=20)
    solution = m.solve(problem, settings=settings)
    assert solution.report["accelerate"] == "multigrid"
    assert solution.converged == (solution.report["discrete_residual"] <= 1e-7)


@pytest.mark.parametrize("periodic", [True, False])
def test_fields_on_boxes_are_of_second_order(periodic):
    errors = []
    for n in (10, 20, 30):
        domain = m.Domain((n, n, n), 1 / n)
        u = "sin(2*pi*x)*sin(3*y)*cos(2*z)"
        ux, uy, uz = "2*pi*cos(2*pi*x)*sin(3*y)*cos(2*z)", "3*sin(2*pi*x)*cos(3*y)*cos(2*z)", "-2*sin(2*pi*x)*sin(3*y)*sin(2*z)"  # fmt: skip
        fields = {"bx": "2 + y", "by": "5*z", "bz": "-3", "a": "1.0", "c": "0.5"}
        f = f"(4*pi*pi + 13 + 0.5)*{u} + (2 + y)*{ux} + 5*z*({uy}) - 3*({uz})"
        sides = {
            side: m.Dirichlet(u) for side in ("bottom", "top", "back", "front", "left", "right")
        }
        if periodic:
            sides |= {"left": m.Periodic(), "right": m.Periodic()}
        problem = m.Problem(domain, "advection-diffusion", {**fields, "f": f}, sides)
        solution = m.solve(problem, rtol=1e-9)
        assert solution.converged
        z, y, x = np.meshgrid(*[np.arange(n + 1) / n] * 3, indexing="ij")
        exact = np.sin(2 * np.pi * x) * np.sin(3 * y) * np.cos(2 * z)
        errors.append(np.abs(solution.field - exact).max())
    assert errors[0] / errors[1] > 3.5
    assert errors[1] / errors[2] > 2.1
