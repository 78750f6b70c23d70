"""Nonlinear equations with natural sides and on shapes: of second order, and the same on all ranks."""

import itertools

import numpy as np
import pytest
from scipy.integrate import solve_bvp

from mosaicdd import (
    Dirichlet,
    Domain,
    Neumann,
    Output,
    Problem,
    Robin,
    Solver,
    SolveSettings,
    Unsupported,
    read,
    solve,
)
from mosaicdd.solvers.references import solve_directly

TIGHT = SolveSettings(rtol=1e-11)
CENTRE = 0.5, 0.52
INNER, OUTER = 0.187, 0.413
MIXED = {
    "left": Dirichlet("y"),
    "right": Neumann("x*y"),
    "top": Robin(2.0, "x"),
    "bottom[0.2:0.7]": Neumann(0.4),
}


def ring(n):
    def distance(x, y):
        r = np.hypot(x - CENTRE[0], y - CENTRE[1])
        return abs(r - (INNER + OUTER) / 2) - (OUTER - INNER) / 2

    return Domain.from_distance(distance, (n, n), 1 / n)


def holes(n):
    """Return a square with two holes, one of which touches no lattice line of the coarsest grids."""
    distance = "maximum(0.18 - hypot(x - 0.3, y - 0.35), 0.11 - hypot(x - 0.7, y - 0.68))"
    return Domain.from_distance(distance, (n, n), 1 / n)


@pytest.mark.parametrize(
    ("domain", "sides"),
    [
        (ring(64), {"outer": Dirichlet("x"), "hole1": Neumann(0.3)}),
        (ring(64), {"outer": Robin(1.0, "x"), "hole1": Dirichlet("y")}),
        (holes(64), {"hole1": Robin(2.0, "x"), "hole2": Dirichlet(1.0), **MIXED}),
        (Domain((50, 70), 1 / 64), MIXED),
    ],
)
def test_a_linear_equation_has_the_linear_discretisation(domain, sides):
    fields = {"a": "1 + x*y", "c": 0.5, "f": "sin(3*x)"}
    linear = solve(Problem(domain, "diffusion", fields, sides), settings=TIGHT)
    flows = Problem(domain, "quasilinear-diffusion", {**fields, "k": "1 + 0*u"}, sides)
    solution = solve(flows, settings=TIGHT)
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 3  # as the first step is solved for some digits only
    np.testing.assert_allclose(solution.field, linear.field, rtol=0, atol=1e-8)


def around_a_cylinder(condition, c):
    """Return the potential of a cylinder in an electrolyte, by its radius."""

    def slope(r, y):
        return np.stack([y[1], c * np.sinh(y[0]) - y[1] / r])

    def ends(a, b):
        flux = -a[1]  # outward: towards the axis
        if isinstance(condition, Dirichlet):
            return np.array([a[0] - condition.values, b[0]])
        alpha = condition.alpha if isinstance(condition, Robin) else 0.0
        return np.array([flux + alpha * a[0] - condition.values, b[0]])

    r = np.linspace(INNER, OUTER, 200)
    guess = np.stack([2 * (OUTER - r) / (OUTER - INNER), np.full_like(r, -2 / (OUTER - INNER))])
    found = solve_bvp(slope, ends, r, guess, tol=1e-9, max_nodes=20000)
    assert found.success
    return lambda r: found.sol(r)[0]


@pytest.mark.parametrize("condition", [Dirichlet(3.0), Neumann(8.0), Robin(2.0, 8.0)])
def test_the_potential_around_a_cylinder_is_of_second_order(condition):
    c, grids, errors = 20.0, (32, 64, 128), []
    exact = around_a_cylinder(condition, c)
    for n in grids:
        sides = {"outer": Dirichlet(0.0), "hole1": condition}
        one = solve(Problem(ring(n), "poisson-boltzmann", {"c": c}, sides), settings=TIGHT)
        assert one.status == "converged_rtol"
        radius = np.hypot(one.x - CENTRE[0], one.y[:, None] - CENTRE[1])
        inside = ~np.isnan(one.field)
        errors.append(abs(one.field - exact(radius))[inside].max())
    slope = np.polyfit(np.log(grids), np.log(errors), 1)[0]
    assert slope < -1.8, errors
    assert all(fine < coarse / 3 for coarse, fine in itertools.pairwise(errors)), errors


def u(x, y):
    return np.exp(x / 2) * np.sin(2 * y) + x * y


def hot(domain, kind):
    """Return the problem with ``k = 1 + u^2`` that `u` solves on a ring."""

    def gradient(x, y):
        return np.exp(x / 2) * np.sin(2 * y) / 2 + y, 2 * np.exp(x / 2) * np.cos(2 * y) + x

    def f(x, y):
        ux, uy = gradient(x, y)
        laplacian = np.exp(x / 2) * np.sin(2 * y) * (0.25 - 4)
        value = u(x, y)
        return -((1 + value**2) * laplacian + 2 * value * (ux**2 + uy**2))

    def into_the_hole(x, y):
        ux, uy = gradient(x, y)
        dx, dy = CENTRE[0] - x, CENTRE[1] - y
        return (1 + u(x, y) ** 2) * (ux * dx + uy * dy) / np.hypot(dx, dy)

    hole = {
        "flux": Neumann(into_the_hole),
        "exchange": Robin(3.0, lambda x, y: into_the_hole(x, y) + 3 * u(x, y)),
    }
    sides = {"outer": Dirichlet(u), "hole1": hole[kind]}
    return Problem(domain, "quasilinear-diffusion", {"f": f}, sides)


@pytest.mark.parametrize("kind", [pytest.param("flux", marks=pytest.mark.nightly), "exchange"])
def test_a_conductivity_of_the_solution_is_of_second_order_at_curved_outlines(kind):
    grids, errors = (32, 64, 128), []
    for n in grids:
        solution = solve(hot(ring(n), kind), settings=TIGHT)
        assert solution.status == "converged_rtol"
        errors.append(np.nanmax(abs(solution.field - u(solution.x, solution.y[:, None]))))
    # How the outline lies in the cells changes from grid to grid, and with it the constant.
    assert np.polyfit(np.log(grids), np.log(errors), 1)[0] < -1.8, errors


@pytest.mark.parametrize(
    "distance",
    [  # those of SNI (ICLR 2026)
        "minimum(hypot(x - 0.35, y - 0.5) - 0.3, maximum(abs(x - 0.65) - 0.3, abs(y - 0.5) - 0.15))",
        "maximum(0.12 - hypot(x - 0.3, y - 0.35), 0.15 - hypot(x - 0.65, y - 0.65))",
        "maximum(hypot(x - 0.5, y - 0.5) - 0.45, 0.1*(1 - hypot((x - 0.55)/0.2, (y - 0.45)/0.1)))",
    ],
)
def test_kirchhoffs_transform_is_harmonic_on_shapes(distance):
    """Of ``-div((1 + u^2) grad u) = f`` the transform ``u + u^3 / 3`` solves Poisson's equation."""
    domain = Domain.from_distance(distance, (128, 128), 1 / 128)
    g = "sin(3*x) + cos(4*y)"
    given, transformed = Dirichlet(g), Dirichlet(f"{g} + ({g})**3 / 3")
    natural = {"hole1": Neumann("1 + x - y")} if not distance.startswith("minimum") else {}
    f = {"f": 10.0}
    everywhere = {name: given for name in ("outline", "left", "right", "bottom", "top")}
    hot = Problem(domain, "quasilinear-diffusion", f, everywhere | natural)
    w = Problem(domain, "poisson", f, {name: transformed for name in everywhere} | natural)
    field = solve(hot, settings=TIGHT).field
    kirchhoff = solve(w, settings=TIGHT).field
    exact = 2 * np.sinh(np.arcsinh(1.5 * kirchhoff) / 3)
    assert np.nanmean((field - exact) ** 2) <= (1e-3) ** 2 * np.nanmean(exact**2)


def several():
    """Return a problem of each kind: equations, domains and conditions."""
    waves = "20*sin(7*x)*cos(4*y)"
    mask = np.ones((61, 91), bool)
    mask[20:35, 40:60] = False
    return {
        "rectangle": Problem(
            Domain((70, 90), 1 / 64), "reaction-diffusion", {"f": waves, "a": "1 + x"}, MIXED
        ),
        "holes": Problem(
            holes(96),
            "quasilinear-diffusion",
            {"a": "1.5 + sin(9*x*y)", "f": waves},
            {"hole1": Robin(2.0, "x"), "hole2": Dirichlet(1.0), **MIXED},
        ),
        "all natural": Problem(
            holes(64), "poisson-boltzmann", {"c": "20 + x", "f": waves}, Neumann(0.5)
        ),
        "mask": Problem(
            Domain.from_mask(mask, 1 / 32), "allen-cahn", {"f": "x - y"}, {"outline": Neumann(0.0)}
        ),
        "any number of cells": Problem(
            Domain((67, 83), 1 / 32), "poisson-boltzmann", {"c": 3.0}, Dirichlet("sin(3*x) + y")
        ),
    }


@pytest.mark.parametrize("name", several())
def test_fields_are_those_of_newtons_method_with_a_direct_solver(name):
    problem = several()[name]
    solution = solve(problem, settings=TIGHT)
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 10
    np.testing.assert_allclose(solution.field, solve_directly(problem), rtol=0, atol=1e-8)


def test_first_values_far_too_large_are_no_measure():
    """The sinh of the smooth surface over these data is 1e8 times that of the solution."""
    top = "sin(3*x) + x*y"
    sides = {
        "left": Neumann(-1.0),
        "right": Neumann("x - y"),
        "bottom": Dirichlet(top),
        "top": Dirichlet(top),
    }
    problem = Problem(Domain((80, 32), 0.1), "poisson-boltzmann", {"f": 1.0}, sides)
    solution = solve(problem, settings=TIGHT)
    assert solution.status == "converged_rtol"
    assert solution.error_estimate < 1e-8
    np.testing.assert_allclose(solution.field, solve_directly(problem), rtol=0, atol=1e-8)


def test_a_value_just_beside_a_node_does_not_end_the_reference():
    # The outline passes a node of every tenth row at 1e-5 cells.
    rows = np.arange(65)[:, None]
    level = np.arange(65) - 40.0 + np.where(rows % 10 == 5, -1e-5, 0.3)
    domain = Domain.from_distance(level / 64, (64, 64), 1 / 64)
    problem = Problem(domain, "reaction-diffusion", {"f": "20*y"}, {"outline": Dirichlet(2.0)})
    field = solve(problem, settings=TIGHT).field
    np.testing.assert_allclose(field, solve_directly(problem), rtol=0, atol=1e-9)


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("name", ["rectangle", "holes", "all natural"])
def test_all_numbers_of_ranks_give_the_same(alone_and_together, name):
    alone, together = alone_and_together(solve, several()[name], settings=TIGHT)
    assert together.iterations == alone.iterations
    np.testing.assert_allclose(together.gather(), alone.field, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rtol", [1e-2, 1e-4])
@pytest.mark.parametrize("name", ["rectangle", "holes"])
def test_the_estimates_cover_the_error(name, rtol):
    problem = several()[name]
    solution = solve(problem, settings=SolveSettings(rtol=rtol))
    error = np.sqrt(np.nanmean(np.square(solution.field - solve_directly(problem))))
    assert error <= solution.error_estimate <= 50 * error


def test_several_problems_share_what_is_planned():
    sources = np.random.default_rng(0).standard_normal((2, 97, 97))
    fields, sides = {"a": "1.5 + sin(9*x*y)"}, {"hole1": Robin(2.0, "x"), "left": Dirichlet("y")}
    make = lambda f: Problem(holes(96), "quasilinear-diffusion", {**fields, "f": f}, sides)
    together = solve(make(sources), settings=TIGHT)
    for f, field in zip(sources, together.field, strict=True):
        np.testing.assert_allclose(field, solve_directly(make(f)), rtol=0, atol=1e-8)


def test_a_solution_is_where_another_solve_begins():
    problem = several()["holes"]
    with Solver(problem, settings=TIGHT) as solver:
        first = solver()
        # Beyond natural outlines it has no values.
        assert solver(start=first).iterations < first.iterations
        warmer = problem.with_fields(f="21*sin(7*x)*cos(4*y)")
        begun = solver(warmer, start=first)
    assert begun.iterations <= first.iterations
    np.testing.assert_allclose(begun.field, solve_directly(warmer), rtol=0, atol=1e-8)


@pytest.mark.ranks(1, 2, 3)
def test_the_file_holds_the_problem(comm, common_path):
    problem, path = several()["holes"], common_path / "out.h5"
    solve(problem, ranks=comm, settings=TIGHT, output=Output(path))
    comm.Barrier()
    stored = read(path)
    np.testing.assert_allclose(stored.field, solve_directly(stored.problem), rtol=0, atol=1e-8)


@pytest.mark.ranks(1, 2, 3)
def test_what_has_no_flows_is_refused_in_one_line(comm):
    for name in ("minimal-surface", "p-laplace"):
        with pytest.raises(Unsupported, match=f"{name} couples the differences"):
            Problem(holes(64), name)
    floating = Problem(Domain((64, 64), 1 / 64), "quasilinear-diffusion", {}, Neumann(0.0))
    with pytest.raises(ValueError, match="the level of the solution is not known"):
        solve(floating, ranks=comm)
    negative = Problem(ring(64), "quasilinear-diffusion", {"k": "0.5 - u"}, Dirichlet("1 + x"))
    with pytest.raises(ValueError, match="not positive there"):
        solve(negative, ranks=comm)


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_an_exchange_on_an_outline_counts_the_permittivity(comm):
    """The same equation in two names: in one what multiplies flows stands outside of the residual."""
    a = np.random.default_rng(0).uniform(0.5, 2.0, (65, 65))
    domain = Domain.from_distance("hypot(x - 1.63, y - 1.58) - 1.4", (64, 64), 0.05)
    sides = {"outline": Robin(0.8, 0.3)}
    salt, reacting = (
        solve(
            Problem(domain, name, {"f": 1.0, "a": a, **more}, sides),
            "exact",
            ranks=comm,
            settings=TIGHT,
        )
        for name, more in (
            ("poisson-boltzmann", {"c": 0.7}),
            ("reaction-diffusion", {"r": "0.7*sinh(u)"}),
        )
    )
    np.testing.assert_allclose(salt.local, reacting.local, rtol=1e-9)
