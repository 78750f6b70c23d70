"""Media and flows: right, in few iterations, alike on all ranks, whoever asks and however often."""

import numpy as np
import pytest
from media import MEDIA

from mosaicdd import (
    Dirichlet,
    Domain,
    Periodic,
    Problem,
    Solver,
    SolveSettings,
    Unsupported,
    solve,
)
from mosaicdd.discretisation.discrete import MediumSystem
from mosaicdd.solvers.references import solve_directly
from mosaicdd.solvers.settings import CONVERGED

CELLS = (128, 192)
NODES = (129, 193)
SIDES = Dirichlet("sin(3*x) + y*y")
TIGHT = SolveSettings(rtol=1e-11)


def random_problem(kind, *, seed=0, cells=CELLS, several=(), **fields):
    rng = np.random.default_rng(seed)
    nodes = tuple(n + 1 for n in cells)
    fields = {"a": MEDIA[kind](nodes, rng), "f": rng.standard_normal((*several, *nodes))} | fields
    return Problem(Domain(cells), "diffusion", fields, SIDES)


def distance(field, reference):
    """Return the largest difference, relative to the range of the reference."""
    return abs(field - reference).max() / np.ptp(reference)


def flowing_problem(peclet, *, cells=CELLS, seed=0, several=(), a=1.0, **fields):
    """Return a problem in a rotating flow, whose cell Peclet number is the largest along the edge."""
    rng = np.random.default_rng(seed)
    nodes = tuple(n + 1 for n in cells)
    y, x = (np.arange(n) - (n - 1) / 2 for n in nodes)
    speed = peclet / Domain(cells).grid().spacing / max(x.max(), y.max())
    fields = {
        "bx": np.broadcast_to(-speed * y[:, None], nodes),
        "by": np.broadcast_to(speed * x, nodes),
        "a": MEDIA[a](nodes, rng) if isinstance(a, str) else a,
        "f": rng.standard_normal((*several, *nodes)),
    } | fields
    return Problem(Domain(cells), "advection-diffusion", fields, SIDES)


@pytest.mark.parametrize("kind", MEDIA)
def test_fields_are_those_of_a_direct_solver_whatever_the_contrast(kind):
    problem = random_problem(kind, c="1 + x")
    solution = solve(problem, settings=TIGHT)
    assert solution.status == "converged_rtol"
    # The condition, 2e6 times 1e4, times the residual would allow for much more.
    assert distance(solution.field, solve_directly(problem)) < 1e-7


@pytest.mark.parametrize("flow", [0.0, 20.0])
@pytest.mark.parametrize(
    ("coefficients", "sources"), [(0, -113), (0, 143), (-134, -134), (134, 0), (-300, -300)]
)
@pytest.mark.parametrize(  # with nodes outside, too
    "nodes", [pytest.param((129, 129), marks=pytest.mark.nightly), (89, 100)], ids=str
)
def test_units_that_are_powers_of_four_do_not_change_a_bit(nodes, coefficients, sources, flow):
    rng = np.random.default_rng(0)
    a, f = MEDIA["inclusions"](nodes, rng), rng.standard_normal(nodes)
    (status, count, u), (_, others, expected) = (
        solved({"a": a * 2.0**k, "f": f * 2.0**q}, flow=flow * 2.0**k)
        for k, q in ((coefficients, sources), (0, 0))
    )
    # With nodes outside rounding leaves less than 1e-9; without, 3.6e-9 at most and 1.05e-9 at the end.
    assert (status in CONVERGED, count) == (True, others)
    np.testing.assert_array_equal(u * 2.0 ** (coefficients - sources), expected)


def solved(fields, *, flow):
    """Return how a problem ends, after how many iterations, and its field."""
    pde = "advection-diffusion" if flow else "diffusion"
    more = {"bx": flow, "by": -flow} if flow else {}
    cells = tuple(n - 1 for n in fields["f"].shape)
    problem = Problem(Domain(cells), pde, fields | more, Dirichlet(0.0))
    solution = solve(problem, settings=SolveSettings(rtol=1e-9))
    return solution.status, solution.iterations, solution.field


def test_problems_side_by_side_may_be_of_any_size():
    sizes = 2.0 ** np.array([0, -113, 113])
    problem = random_problem("noise").with_sides(Dirichlet(0.0))
    sources = problem.fields["f"] * sizes[:, None, None]
    alone = solve(problem, settings=TIGHT)
    together = solve(problem.with_fields(f=sources), settings=TIGHT)
    assert {one.report["iterations"] for one in together.results} == {alone.iterations}
    for field, size in zip(together.field, sizes, strict=True):
        assert distance(field / size, alone.field) < 1e-9


def test_a_solve_that_asks_for_more_than_float64_holds_ends_soon_and_is_no_worse():
    a = MEDIA["inclusions"]((257, 257), np.random.default_rng(0)) ** 1.66  # contrast 1e10
    problem = random_problem("inclusions", cells=(256, 256), a=a).with_sides(Dirichlet(0.0))
    settings = SolveSettings(rtol=1e-5), SolveSettings(rtol=1e-10)
    enough, more = (solve(problem, settings=one) for one in settings)
    assert (enough.status, more.status) == ("converged_rtol", "converged_rounding")
    assert more.iterations <= 35
    residual = more.report["discrete_residual"]
    assert residual <= 2 * max(1e-5, enough.report["discrete_residual"])


def test_rounding_that_is_less_than_the_tolerance_costs_no_iterations():
    a = MEDIA["inclusions"]((257, 257), np.random.default_rng(0)) ** 1.24  # contrast 3e7
    problem = random_problem("inclusions", cells=(256, 256), a=a).with_sides(Dirichlet(0.0))
    solution = solve(problem, settings=SolveSettings(rtol=1e-8))
    assert solution.status == "converged_rounding"
    assert solution.iterations <= 25  # more if it had to begin again


@pytest.mark.parametrize(("peclet", "most"), [(2.0, 25), (20.0, 80)])
def test_a_flow_is_solved_in_few_iterations(peclet, most):
    problem = flowing_problem(peclet, cells=(256, 256)).with_sides(Dirichlet(0.0))
    solution = solve(problem, settings=SolveSettings(rtol=1e-8))
    assert solution.status == "converged_rtol"
    assert solution.iterations <= most


@pytest.mark.parametrize("shape", [CELLS, NODES], ids=["cells", "nodes"])
def test_the_reported_residual_is_that_of_the_grid(shape):
    a = np.exp(3 * np.random.default_rng(0).standard_normal(shape))
    problem = random_problem("smooth", a=a, c=3.0)
    solution = solve(problem)
    system, whole = (
        MediumSystem(problem.operator, problem.domain.grid()),
        (slice(0, 129), slice(0, 193)),
    )
    b = system.right_hand_side(solution.field, problem.source_at(system.grid, whole)[0])
    inner = solution.field[1:-1, 1:-1].ravel()
    image = system.matrix @ np.ones_like(b)  # of a constant, the best of which is taken off
    driven = b - np.vdot(b, image) / np.vdot(image, image) * image
    residual = np.linalg.norm(b - system.matrix @ inner) / np.linalg.norm(driven)
    assert solution.report["discrete_residual"] == pytest.approx(residual, rel=1e-3)
    assert residual <= 1e-7


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("kind", ["noise", "channels", "flow"])
def test_all_numbers_of_ranks_give_the_same(alone_and_together, kind):
    if kind == "flow":
        problem = flowing_problem(20.0, several=(2,), a="smooth")
    else:
        problem = random_problem(kind, several=(2,), c=2.0)
    alone, together = alone_and_together(solve, problem, settings=TIGHT)
    assert abs(together.iterations - alone.iterations) <= 1
    assert distance(together.gather(), alone.field) < 1e-9
    alone, together = alone_and_together(solve, problem, settings=SolveSettings(rtol=1e-4))
    assert together.iterations == alone.iterations
    estimates = [
        [one.report["error_estimate"] for one in found.results] for found in (alone, together)
    ]
    # The cycle rounds to float32, and differently on other ranks; the residual that estimates are made from is what ten
    # iterations make of that. Beside a velocity each rank sweeps over its own nodes in order: a cycle of its own, by which
    # the last residual differs by some hundredths of itself.
    np.testing.assert_allclose(*estimates, rtol=0.1 if kind == "flow" else 0.01)


def test_a_batch_counts_the_fields_that_are_kept_until_all_are_solved(monkeypatch):
    pages = {"SC_PHYS_PAGES": 1200, "SC_PAGE_SIZE": 4096}  # 4.9 MB: 3.1 for one problem, 5.0 for 6
    monkeypatch.setattr("mosaicdd.parallel.machine.os.sysconf", pages.__getitem__)
    assert solve(random_problem("smooth", several=(4,))).status == "converged_rtol"
    with pytest.raises(ValueError, match=r"batch=6: needs at least .* a smaller batch"):
        solve(random_problem("smooth", several=(6,)))


@pytest.mark.parametrize("kind", ["smooth", "checkerboard", "channels"])
def test_what_the_tolerance_of_a_call_ends_says_so(kind):
    with Solver(random_problem(kind), settings=TIGHT) as solver:
        assert solver(atol=1e-3).status == "converged_atol"


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("rtol", [1e-2, 1e-5])
def test_the_energy_of_the_error_is_bounded_within_a_factor_of_10(seed, rtol):
    kind = list(MEDIA)[seed % len(MEDIA)]
    problem = random_problem(kind, seed=seed, cells=(96, 96), f=float(seed))
    solution = solve(problem, settings=SolveSettings(rtol=rtol))
    error = (solution.field - solve_directly(problem))[1:-1, 1:-1].ravel()
    matrix = MediumSystem(problem.operator, problem.domain.grid()).matrix
    assert 1 <= solution.report["energy_estimate"] / np.sqrt(error @ (matrix @ error)) <= 10
    assert 1 <= solution.error_estimate / np.sqrt((error**2).mean()) <= 20


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rtol", [1e-2, 1e-5])
def test_the_estimate_in_a_flow_is_within_a_factor_of_10(seed, rtol):
    kind = list(MEDIA)[seed % len(MEDIA)]
    peclet = 10.0 ** (seed % 4 - 1)
    problem = flowing_problem(peclet, a=kind, seed=seed, cells=(96, 96), f=float(seed))
    solution = solve(problem, settings=SolveSettings(rtol=rtol))
    error = (solution.field - solve_directly(problem))[1:-1, 1:-1]
    assert 1 <= solution.error_estimate / np.sqrt((error**2).mean()) <= 10


@pytest.mark.ranks(1, 4)
def test_a_window_is_the_part_of_the_field(in_window):
    fields = in_window(random_problem("checkerboard"), ((0.3, 1.2), (0.5, 2.0)))
    np.testing.assert_array_equal(*fields)


@pytest.mark.ranks(1, 2)
def test_a_coefficient_that_is_not_sound_on_one_rank_is_refused_on_all(comm):
    problem = random_problem("noise")
    for value, message in ((np.nan, "not finite"), (-1.0, "must be positive")):
        a = problem.fields["a"].copy()
        a[-3, -3] = value
        with pytest.raises(ValueError, match=message):
            Solver(problem.with_fields(a=a), ranks=comm)


@pytest.mark.parametrize(
    "settings",
    [{"levels": 1}, {"accelerate": "gmres"}, {"dtype": "float32"}, {"until_mae": 1e-3}],
    ids=str,
)
def test_what_is_of_the_other_method_is_refused(settings):
    with pytest.raises(Unsupported, match="leave it out"):
        Solver(random_problem("smooth"), settings=SolveSettings(**settings))


def test_what_is_known_up_to_a_constant_is_measured_right_over_strips():
    """Its mean is taken off strip by strip, while the next one begins with the last row as it was."""
    rng = np.random.default_rng(1)
    f = rng.standard_normal((512, 512))
    f = np.pad(f - f.mean(), ((0, 1), (0, 1)), mode="wrap")
    fields = {"a": np.exp(rng.standard_normal((512, 512))), "f": f}
    solution = solve(Problem(Domain((512, 512)), "diffusion", fields, Periodic()))
    assert solution.status == "converged_rtol"
    assert solution.report["discrete_residual"] <= 1e-6
