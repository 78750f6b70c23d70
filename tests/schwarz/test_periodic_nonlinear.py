"""Nonlinear equations between periodic sides: second order, Newton's on the grid, alike on all ranks."""

import numpy as np
import pytest
from periods import PAIRS, periodic

from mosaicdd import (
    Dirichlet,
    Domain,
    Neumann,
    Periodic,
    Problem,
    Robin,
    Solver,
    SolveSettings,
    solve,
)
from mosaicdd.solvers.references import solve_directly

TIGHT = SolveSettings(rtol=1e-10)
P = 2 * np.pi


def manufactured(n, axes, name):
    """Return a problem on ``1 x 1`` with ``n`` cells to the unit, and its solution.

    Along periodic axes it is ``sin(2 pi x + 1)``, along the others an exponential.
    """

    def part(t, around, order):
        if around:
            return P**order * np.sin(P * t + 1 + order * np.pi / 2)
        return 0.5**order * np.exp(t / 2)

    def u(x, y, dx=0, dy=0):
        return part(x, "x" in axes, dx) * part(y, "y" in axes, dy)

    def coefficient(x, y):
        return 1 + u(x, y) ** 2 if name == "quasilinear-diffusion" else 1.0

    def f(x, y):
        v, lap = u(x, y), u(x, y, 2) + u(x, y, 0, 2)
        if name == "reaction-diffusion":
            return -lap + 30 * v**3 + v
        if name == "burgers":
            return -lap + 5 * v * (u(x, y, 1) + u(x, y, 0, 1)) + v
        steep = u(x, y, 1) ** 2 + u(x, y, 0, 1) ** 2
        return -coefficient(x, y) * lap - 2 * v * steep + v

    sides = periodic(axes)
    for axis in ("x", "y"):
        if axis not in axes:
            low, high = PAIRS[axis]
            order = (1, 0) if axis == "x" else (0, 1)
            sides[low] = Dirichlet(u)
            sides[high] = Neumann(lambda x, y, order=order: coefficient(x, y) * u(x, y, *order))
    fields = {"f": f, "c": 1.0}
    if name == "reaction-diffusion":
        fields["r"] = "30*u**3"
    return Problem(Domain((n, n), 1 / n), name, fields, sides), u


@pytest.mark.parametrize(
    ("axes", "name"),
    [
        ("xy", "quasilinear-diffusion"),
        ("y", "reaction-diffusion"),
        pytest.param("x", "quasilinear-diffusion", marks=pytest.mark.nightly),
        pytest.param("y", "quasilinear-diffusion", marks=pytest.mark.nightly),
        pytest.param("x", "reaction-diffusion", marks=pytest.mark.nightly),
        pytest.param("xy", "reaction-diffusion", marks=pytest.mark.nightly),
    ],
)
def test_solutions_are_of_second_order_in_the_largest_error(axes, name):
    errors = []
    for n in (24, 48, 97):
        problem, u = manufactured(n, axes, name)
        solution = solve(problem, settings=TIGHT)
        assert solution.status == "converged_rtol"
        errors.append(abs(solution.field - u(solution.x, solution.y[:, None])).max())
    assert np.log2(errors[0] / errors[-1]) / 2 > 1.9, errors


def rough(axes, name, cells=(49, 70)):
    """Return a problem with a coefficient that varies from node to node."""
    rng = np.random.default_rng(0)
    a = np.exp(rng.standard_normal([n + 1 for n in cells]))
    fields = {
        "quasilinear-diffusion": {"a": a, "c": 1.0, "k": "1 + u**2"},
        "reaction-diffusion": {"a": a, "r": "u**3", "c": 0.5},
        "burgers": {"nu": 0.2, "c": 1.0},
        "poisson-boltzmann": {"c": 2.0},
    }[name]
    sides = periodic(axes)
    if "x" not in axes:
        sides |= {"left": Neumann(0.3), "right": Robin(1.0, "y")}
    if "y" not in axes:
        sides |= {"bottom": Dirichlet("x*(70/32 - x)"), "top": Neumann(0.5)}
    f = {"f": "5*sin(3*x) + 3*y"}
    return Problem(Domain(cells, 1 / 32), name, fields | f, sides)


NAMES = ("quasilinear-diffusion", "reaction-diffusion", "burgers", "poisson-boltzmann")


@pytest.mark.parametrize(("axes", "name"), list(zip(("xy", "x", "y", "xy"), NAMES, strict=True)))
def test_fields_are_those_of_newtons_method_with_a_direct_solver(axes, name):
    problem = rough(axes, name)
    solution, reference = solve(problem, settings=TIGHT), solve_directly(problem)
    assert abs(solution.field - reference).max() < 1e-8 * abs(reference).max()
    for axis, line in (("x", solution.field.T), ("y", solution.field)):
        assert axis not in axes or np.array_equal(line[0], line[-1])


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize(("axes", "name"), list(zip(("x", "y", "xy"), NAMES, strict=False)))
def test_all_numbers_of_ranks_give_the_same(alone_and_together, axes, name):
    problem = rough(axes, name, (73, 90))
    alone, together = alone_and_together(solve, problem, settings=TIGHT)
    assert together.iterations == alone.iterations
    assert abs(together.gather() - alone.field).max() < 1e-10 * abs(alone.field).max()


@pytest.mark.ranks(1, 2, 3)
def test_shapes_between_periodic_sides(comm):
    wave = Domain.from_distance("0.3 + 0.1*sin(pi*x) - y", (64, 64), 1 / 32)
    sides = periodic("x") | {"outline": Robin(1.0, "x*(2 - x)"), "top": Dirichlet(0.5)}
    problem = Problem(wave, "quasilinear-diffusion", {"f": "sin(pi*x)"}, sides)
    solution, reference = solve(problem, ranks=comm, settings=TIGHT), solve_directly(problem)
    np.testing.assert_allclose(solution.gather(), reference, atol=1e-8)


def test_another_solve_begins_where_one_has_ended():
    problem = rough("xy", "reaction-diffusion")
    with Solver(problem, settings=TIGHT) as solver:
        first = solver()
        again = solver(start=first)
    assert again.iterations <= 1
    assert abs(again.field - first.field).max() < 1e-9


@pytest.mark.ranks(1, 2)
def test_what_has_no_level_is_refused(comm):
    problem = Problem(Domain((64, 64)), "quasilinear-diffusion", {"f": "sin(x)"}, Periodic())
    with pytest.raises(ValueError, match="the level of the solution is not known"):
        solve(problem, ranks=comm)
