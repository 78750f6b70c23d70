"""Local solvers of nonlinear equations: Newton's method in subdomains gives the field of Newton's method on the grid."""

import re

import numpy as np
import pytest

from mosaicdd.local_solvers.nonlinear.nonlinear import SubdomainNewton
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references.references import solve_directly
from mosaicdd.problems.sides.conditions import Dirichlet, Neumann
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.solver import Solver, solve
from mosaicdd.time.march import march
from mosaicdd.unsupported import Unsupported

CELLS = (64, 128)  # of which there is a coarser grid
SIDES = Dirichlet("2*sin(3*x) + cos(y)")
FLAT = Dirichlet("0.5*sin(3*x) + 0.3*cos(y)")
TIGHT = SolveSettings(rtol=1e-10)


def smooth(x, y):
    return 20.0 * np.sin(2 * x) * np.cos(y)


FIELDS = {
    "poisson-boltzmann": {"c": 20.0, "f": smooth},
    "minimal-surface": {"f": lambda x, y: 0.2 * np.sin(x)},
    "p-laplace": {"p": 3.0, "eps": 0.1, "a": "1.5 + sin(x)"},
    "allen-cahn": {"eps": "0.2 + 0.05*x", "c": 10.0, "f": smooth},
}


def problem(name, cells=CELLS, **fields):
    steep = name in ("poisson-boltzmann", "allen-cahn")
    return Problem(Domain(cells), name, FIELDS[name] | fields, SIDES if steep else FLAT)


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_those_of_newtons_method_on_the_grid(name):
    one = problem(name)
    solution = solve(one, "subdomain-newton", settings=TIGHT)
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 12
    np.testing.assert_allclose(solution.field, solve_directly(one), rtol=0, atol=1e-8)


def test_without_a_coarser_grid_it_starts_from_the_linear_equations_solution():
    one = problem("p-laplace", (48, 112))
    solution = solve(one, "subdomain-newton", settings=TIGHT)
    np.testing.assert_allclose(solution.field, solve_directly(one), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "allen-cahn" else pytest.mark.nightly)
        for name in FIELDS
    ],
)
def test_the_iterations_do_not_grow_with_the_domain(name):
    counts = [
        solve(problem(name, (n, n)), "subdomain-newton", settings=SolveSettings()).iterations
        for n in (64, 128)
    ]
    assert (
        counts[1] <= counts[0] <= 6
    )  # from the linear equation's solution 6 to 8, and more on the larger


@pytest.mark.nightly
def test_nor_with_finer_grids_where_the_linear_equations_solution_is_far():
    fields, counts = {"p": 4.0, "eps": 0.1, "a": "1.5 + sin(x)"}, []
    for n in (64, 128):
        one = Problem(Domain((n, n), 4 / n), "p-laplace", fields, FLAT)
        counts.append(solve(one, "subdomain-newton", settings=SolveSettings(rtol=1e-6)).iterations)
    assert counts[1] <= counts[0] <= 7


def test_acceleration_makes_few_iterations_of_many_where_it_is_steep():
    steep = Problem(Domain((48, 96)), "minimal-surface", {}, Dirichlet("2*sin(2*x) + y"))
    solution = solve(steep, "subdomain-newton", settings=SolveSettings(rtol=1e-6))
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 10  # 16 without, from the linear equation's solution


@pytest.mark.parametrize("name", FIELDS)
def test_residuals_are_relative_to_the_right_hand_side_of_the_linearised_equation(name):
    one = problem(name)
    solution = solve(one, "subdomain-newton", settings=SolveSettings(rtol=1e-3))
    grid, u = one.domain.grid(), solution.field
    part = tuple(slice(0, nodes) for nodes in grid.nodes)
    operator, inner, f = one.operator.on(grid, part), u.copy(), 0.0
    inner[[0, -1]] = inner[:, [0, -1]] = 0.0
    if one.source is not None:
        f = grid.spacing**2 * one.source_at(grid, part)[0, 1:-1, 1:-1]
    right = operator.products(u, [inner])[0] - operator.residual(u) + f
    expected = np.linalg.norm(operator.residual(u) - f) / np.linalg.norm(right)
    # Away from the edges, whose part is the largest, the latter is taken at every eighth node; and in float32 values
    # are rounded by 6e-8, so where 3e-6 is left some per cent of it are that.
    assert solution.report["discrete_residual"] == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("rtol", [1e-2, 1e-4])
def test_the_estimate_covers_the_error_of_few_iterations(rtol):
    one = problem("poisson-boltzmann")
    solution = solve(one, "subdomain-newton", settings=SolveSettings(rtol=rtol))
    error = np.sqrt(np.square(solution.field - solve_directly(one)).mean())
    assert error <= solution.error_estimate <= 20 * error


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("name", FIELDS)
def test_all_numbers_of_ranks_give_the_same(alone_and_together, name):
    alone, together = alone_and_together(solve, problem(name), "subdomain-newton", settings=TIGHT)
    assert together.iterations == alone.iterations
    np.testing.assert_allclose(together.gather(), alone.field, rtol=0, atol=1e-10)
    assert together.error_estimate == pytest.approx(alone.error_estimate, rel=1e-3)
    residuals = [one.report["discrete_residual"] for one in (alone, together)]
    assert residuals[1] == pytest.approx(residuals[0], rel=1e-3)


def test_several_problems_are_solved_by_one_call():
    sources = 9.0 * np.random.default_rng(0).standard_normal((2, *(n + 1 for n in CELLS)))
    several = problem("poisson-boltzmann", f=sources)
    together = solve(several, "subdomain-newton", settings=TIGHT)
    for f, field in zip(sources, together.field, strict=True):
        one = solve(problem("poisson-boltzmann", f=f), "subdomain-newton", settings=TIGHT)
        np.testing.assert_allclose(field, one.field, rtol=0, atol=1e-10)


def test_a_solver_takes_another_source_and_a_start():
    other = problem("poisson-boltzmann", f=lambda x, y: 1.01 * smooth(x, y))
    with Solver(problem("poisson-boltzmann"), "subdomain-newton", settings=TIGHT) as solver:
        first = solver()
        begun = solver(other, start=first)
    assert begun.iterations < first.iterations
    np.testing.assert_allclose(begun.field, solve_directly(other), rtol=0, atol=1e-8)


def test_a_window_is_a_part_of_the_field():
    one = problem("poisson-boltzmann")
    h = one.domain.grid().spacing
    whole = solve(one, "subdomain-newton", settings=TIGHT)
    window = ((10 * h, 40 * h), (32 * h, 70 * h))
    part = solve(one, "subdomain-newton", settings=TIGHT, window=window)
    np.testing.assert_allclose(part.field, whole.field[10:41, 32:71], rtol=0, atol=1e-12)


def test_a_certificate_is_newtons_on_the_grid():
    settings = SolveSettings(rtol=1e-2, certify=1e-10)
    solution = solve(problem("poisson-boltzmann"), "subdomain-newton", settings=settings)
    assert solution.status == "converged_rtol"
    assert solution.report["discrete_residual"] <= 1e-10
    assert solution.report["certificate"] is not None


def test_few_iterations_are_said_not_to_be_enough():
    settings = SolveSettings(rtol=1e-12, max_iterations=2)
    solution = solve(problem("poisson-boltzmann"), "subdomain-newton", settings=settings)
    assert solution.status == "diverged_max_iterations"


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("poisson", {}, "poisson is linear"),
        ("quasilinear-diffusion", {}, "whose derivative is symmetric"),
    ],
)
def test_what_it_cannot_do_is_refused(name, fields, message):
    one = Problem(Domain(CELLS), name, fields, SIDES)
    with pytest.raises(ValueError, match=message):
        Solver(one, "subdomain-newton")


@pytest.mark.ranks(1, 2)
def test_values_too_large_for_steps_in_float32_are_refused_in_one_line(comm):
    one = problem("poisson-boltzmann").with_sides(Dirichlet("100*sin(3*x)"))
    with pytest.raises(
        ValueError, match=r"up to 6e\+40 .* take up to 1e\+17: take 'exact'"
    ) as caught:
        Solver(one, "subdomain-newton", ranks=comm)
    assert "\n" not in str(caught.value)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize(
    ("name", "statuses"),
    [
        # Of values that grow without end rounding decides when they are no numbers any more.
        ("minimal-surface", {"diverged_nan", "diverged_max_iterations"}),
        ("poisson-boltzmann", {"stagnated"}),
    ],
)
def test_what_overflows_on_the_way_has_an_infinite_estimate(comm, name, statuses):
    one = Problem(Domain((64, 64)), name, {"f": 1e6}, Dirichlet("sin(x)"))
    solution = solve(one, "subdomain-newton", ranks=comm)
    assert solution.status in statuses
    assert solution.error_estimate == np.inf


def test_settings_of_other_methods_are_refused():
    with pytest.raises(Unsupported, match="halo_depth=2"):
        Solver(
            problem("poisson-boltzmann"), "subdomain-newton", settings=SolveSettings(halo_depth=2)
        )


@pytest.mark.ranks(2, 3)
def test_squares_whose_newtons_method_did_not_converge_are_no_convergence(comm):
    """The reaction is so steep that steps in two of the squares go to and fro; the lines come to rest anyway."""
    steep = {"r": "100*tanh(1000*(u - 0.2))"}
    one = Problem(
        Domain((24, 32), 1 / 32), "reaction-diffusion", steep, Dirichlet("sin(3*x) + cos(2*y)")
    )
    solution = solve(one, SubdomainNewton(16), ranks=comm, rtol=1e-2)
    assert solution.status == "stagnated"
    told = comm.allgather(solution.report["failure"])
    assert told == [told[0]] * comm.size
    assert re.search(
        r"did not converge in [1-6] subdomains? of 16 x 16 cells; in that of the nodes \d+ to \d+ along y and "
        r"\d+ to \d+ along x its last step is \de-0\d of the largest value there: take 'exact'",
        told[0],
    )


def test_values_without_an_elliptic_derivative_are_said():
    """What grows as the cube of itself is beyond all bounds within a thousandth of the step."""
    domain, growing = Domain((32, 32), 1 / 32), {"r": "0 - u**3"}
    natural = Problem(domain, "reaction-diffusion", growing, Neumann(0.0))
    assert march(natural, 40.0, dt=0.05, steps=2).status == "stagnated"
    given = Problem(domain, "reaction-diffusion", growing, Dirichlet(40.0))
    with pytest.raises(ValueError, match="by a node's own value is not positive at 961 of 961"):
        march(given, 40.0, dt=0.05, steps=2)
