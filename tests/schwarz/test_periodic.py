"""Periodic sides: iterations, estimates, plans, windows, neighbours on ranks, and what is refused."""

import numpy as np
import pytest
from media import MEDIA

from mosaicdd import Dirichlet, Domain, Neumann, Periodic, Problem, Solver, SolveSettings, solve
from mosaicdd.solvers.references import solve_directly

TIGHT = SolveSettings(rtol=1e-11)
PAIRS, AXES = {"x": ("left", "right"), "y": ("bottom", "top")}, ("x", "y", "xy")


def periodic(axes):
    """Return periodic sides along some axes."""
    return {side: Periodic() for axis in axes for side in PAIRS[axis]}


@pytest.mark.parametrize("kind", MEDIA)
@pytest.mark.parametrize("axes", AXES)
def test_odd_numbers_of_lattice_cells_are_solved_as_soon_in_any_medium(axes, kind):
    n = 5 * 16
    rng = np.random.default_rng(0)
    f = rng.standard_normal((n, n))
    f = np.pad(f - f.mean(), ((0, 1), (0, 1)), mode="wrap")
    fields = {"a": MEDIA[kind]((n, n), rng), "f": f}
    solution = solve(
        Problem(Domain((n, n)), "diffusion", fields, periodic(axes)),
        settings=SolveSettings(rtol=1e-8),
    )
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 16


def test_given_values_that_differ_at_both_ends_have_their_mean_there():
    problem = Problem(
        Domain((32, 64), 1 / 64), "laplace", sides=periodic("x") | {"top": Dirichlet("x")}
    )
    field = solve(problem, settings=TIGHT).field
    assert field[-1, 0] == field[-1, -1] == 0.5
    assert abs(field - solve_directly(problem)).max() < 1e-10


def test_iterations_are_those_of_the_square():
    a = np.exp(np.random.default_rng(0).standard_normal((256, 256)))
    counts = {}
    for axes in ("", *AXES):
        fields = {"a": a, "f": "sin(2*pi*x/4)"}
        problem = Problem(Domain((256, 256)), "diffusion", fields, periodic(axes) or Dirichlet())
        solution = solve(problem)
        assert solution.status == "converged_rtol"
        counts[axes] = solution.iterations
    assert max(counts.values()) <= 1.5 * counts[""], counts


@pytest.mark.parametrize("varying", [pytest.param(False, marks=pytest.mark.nightly), True])
@pytest.mark.parametrize("axes", AXES)
def test_iterations_do_not_grow_where_cells_are_just_above_a_multiple_of_16(axes, varying):
    counts = []
    for n in (96, 97, 107):
        a = np.exp(np.random.default_rng(0).standard_normal((n, n))) if varying else 1.0
        fields = {"a": a, "c": 0.1, "f": "sin(2*x) + y"}
        counts.append(
            solve(Problem(Domain((n, n)), "diffusion", fields, periodic(axes))).iterations
        )
    assert max(counts) <= max(counts[0] + 2, 12), counts


@pytest.mark.parametrize("axes", ["x", "xy"])
def test_the_error_estimate_bounds_the_error(axes):
    rng = np.random.default_rng(1)
    fields = {"a": np.exp(rng.standard_normal((80, 90))), "f": rng.standard_normal((81, 91))}
    fields["f"] -= trapezoidal_mean(fields["f"])
    problem = Problem(Domain((80, 90)), "diffusion", fields, periodic(axes))
    solution = solve(problem, settings=SolveSettings(rtol=1e-4))
    rms = np.sqrt(((solution.field - solve_directly(problem)) ** 2).mean())
    assert 1 <= solution.error_estimate / rms <= 30


def trapezoidal_mean(f):
    return np.mean(
        [f[y, x].mean() for y in (slice(1, None), slice(-1)) for x in (slice(1, None), slice(-1))]
    )


def test_new_values_need_no_new_plan():
    problem = Problem(Domain((64, 70), 0.1), "poisson", {"f": "x"}, periodic("x"))
    others = [
        problem.with_fields(f="x*y"),
        problem.with_sides(periodic("x") | {"top": Dirichlet(1)}),
    ]
    with Solver(problem, settings=TIGHT) as solver:
        first = solver()
        planned = list(solver._setup.bound.planned.values())
        for other in others:
            solution = solver(other, start=first)
            assert abs(solution.field - solve_directly(other)).max() < 1e-8
        assert list(solver._setup.bound.planned.values()) == planned
        with pytest.raises(ValueError, match="make a new one"):
            solver(problem.with_sides(periodic("y")))


@pytest.mark.parametrize("speed", [1e3, 1e5])  # cell Peclet numbers of 16 and 1600
@pytest.mark.parametrize("axes", AXES)
def test_a_fast_flow_is_that_of_the_grid_where_the_lattice_is_longer(axes, speed):
    fields = {"bx": f"{speed}*(1 + y)", "by": -speed, "c": 1.0, "f": "1 + sin(5*x)"}
    problem = Problem(Domain((58, 79), 1 / 64), "advection-diffusion", fields, periodic(axes))
    expected = solve_directly(problem)
    assert abs(solve(problem, settings=TIGHT).field - expected).max() < 1e-8 * abs(expected).max()


@pytest.mark.ranks(1, 4)
@pytest.mark.parametrize("dims", [(1, 4), (4, 1), (2, 2)])
def test_a_rank_may_be_its_own_neighbour(comm, dims):
    problem = Problem(Domain((70, 70), 0.1), "screened-poisson", {"c": 1.0, "f": "x*y"}, Periodic())
    settings = TIGHT.with_changes(dims=dims if comm.size == 4 else None)
    solution = solve(problem, ranks=comm, settings=settings)
    assert abs(solution.gather() - solve_directly(problem)).max() < 1e-10


@pytest.mark.ranks(1, 2, 3)
def test_what_is_periodic_all_round_is_known_up_to_a_constant(comm):
    sides, cells = Periodic(), (64, 50)
    with pytest.raises(ValueError, match=r"100\.0% of the sources and fluxes are left over"):
        solve(Problem(Domain(cells, 0.1), "poisson", {"f": 1.0}, sides), ranks=comm)
    f = "1e-3 + sin(2*pi*x/5)"
    solution = solve(Problem(Domain(cells, 0.1), "poisson", {"f": f}, sides), ranks=comm)
    # The mean of |sin| is 2 / pi, on the grid as well to h^2.
    assert solution.report["imbalance"] == pytest.approx(1e-3 * np.pi / 2, rel=1e-2)
    assert abs(solution.gather()[:-1, :-1].mean()) < 1e-12


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ({"left": Periodic()}, "the side left is periodic, the side right is not; give both"),
        ({"top": Periodic()}, "the side top is periodic, the side bottom is not; give both"),
        (
            {"left": Periodic(), "right": Periodic(), "left[0:1]": Neumann()},
            r"the side left is periodic, so nothing else holds on left\[0:1\]",
        ),
        ({"left[0:1]": Periodic(), "right": Periodic()}, r"left\[0:1\] is periodic: a side is so"),
    ],
)
def test_what_is_not_a_pair_is_refused_on_all_ranks(comm, sides, message):
    with pytest.raises(ValueError, match=message):
        solve(Problem(Domain((64, 64)), "laplace", sides=sides), ranks=comm)


@pytest.mark.ranks(1, 4)
def test_a_window_may_hold_the_copies(in_window):
    problem = Problem(Domain((90, 70), 1 / 64), "poisson", {"f": "x+y"}, periodic("x"))
    fields = in_window(problem, ((0.3, 1.2), (0.5, 70 / 64)))
    np.testing.assert_array_equal(*fields)


def test_a_wave_in_a_box_is_that_of_the_differences():
    cells, h = (10, 9, 16), 0.5
    x = h * np.arange(17)
    wave = np.broadcast_to(np.sin(2 * np.pi * x / 8), [n + 1 for n in cells])
    problem = Problem(Domain(cells, h), "poisson", {"f": wave}, Periodic())
    solution = solve(problem, rtol=1e-10)
    # Of the differences of this wave.
    eigenvalue = (2 / h * np.sin(np.pi * h / 8)) ** 2
    np.testing.assert_allclose(solution.field, wave / eigenvalue, atol=1e-8)
    with pytest.raises(ValueError, match=r"100\.0% of the sources and fluxes are left over"):
        solve(problem.with_fields(f=1.0))
