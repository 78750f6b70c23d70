"""The shipped networks of nonlinear equations: how right they are, and what they are not trusted with."""

import numpy as np
import pytest

from mosaicdd.parallel.even_shares import evenly
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references.references import solve_directly
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.problems.sides.conditions import Dirichlet
from mosaicdd.schwarz.nonlinear import nonlinear_iteration
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.solver import Solver, solve

NAMES = ("poisson-boltzmann", "minimal-surface")
CELLS = (96, 160)
FAST = SolveSettings(rtol=1e-5)
CERTIFIED = FAST.with_changes(certify=1e-9)
WAVES = "0.7*sin(1.3*x + 0.5*y)*cos(0.7*y - 0.3*x) + 0.2*x"


def charged(c=10.0, cells=CELLS, sides="2*sin(1.3*x + 0.5*y)*cos(0.7*y)", spacing=None):
    fields = {"c": c, "f": lambda x, y: 3.0 * np.sin(2 * x) * np.cos(y)}
    return Problem(Domain(cells, spacing), "poisson-boltzmann", fields, Dirichlet(sides))


def surface(cells=CELLS, sides=WAVES, spacing=None, **fields):
    return Problem(Domain(cells, spacing), "minimal-surface", fields, Dirichlet(sides))


PLAIN = dict(zip(NAMES, (charged, surface), strict=True))


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def random_surface(length, amplitude, seed):
    domain = Domain(CELLS)
    boundary = Boundary.of_gaussian_process(
        domain.grid(), seed=seed, length=length, amplitude=amplitude
    )
    return Problem(domain, "minimal-surface", {}, boundary)


def rough_charges():
    a = 0.2 * np.random.default_rng(3).standard_normal(4)
    return charged(sides=f"sin(x) + {a[0]}*sin(23*x) + {a[1]}*cos(31*y) + {a[2]}*sin(41*x + 17*y)")


def solved(problem, settings=FAST):
    return solve(problem, problem.equation.name, settings=settings)


def relative(solution, problem):
    truth = solve_directly(problem)
    return np.linalg.norm(solution.field - truth) / np.linalg.norm(truth)


@pytest.mark.parametrize(
    ("problem", "error", "iterations", "estimate"),
    [
        *((charged(c), 5e-4, 8, 10) for c in (0.0, 0.5, 5.0, 50.0)),
        (surface(), 1e-4, 12, 20),
        (random_surface(2.0, 1.0, 911), 1e-4, 12, 20),
        (surface(f="0.4*sin(2*x)", sides="0.3*x*y"), 2e-4, 12, 20),
    ],
    ids=["c=0", "c=0.5", "c=5", "c=50", "waves", "random", "source"],
)
def test_smooth_data_are_solved_and_the_estimate_says_how_well(
    problem, error, iterations, estimate
):
    solution = solved(problem)
    assert solution.status == "converged_rtol"
    assert solution.iterations <= iterations
    off = relative(solution, problem)
    assert off <= error
    off *= np.sqrt(np.square(solution.field).mean())
    assert off <= 1.2 * solution.error_estimate
    assert solution.error_estimate <= estimate * off + 1e-5


def test_another_spacing_is_as_well_solved():
    problem = charged(30.0, spacing=1 / 100)
    assert relative(solved(problem), problem) <= 5e-4


def test_another_spacing_is_as_well_solved_as_surfaces_have_no_scale():
    large = solved(surface())
    sides = "(0.7*sin(130*x + 50*y)*cos(70*y - 30*x) + 20*x)/100"
    small = solved(surface(sides=sides, spacing=1 / 6400))
    np.testing.assert_allclose(100 * small.field, large.field, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("problem", "most"),
    [(rough_charges(), 0.5), (random_surface(0.4, 0.2, 1), 0.7)],
    ids=NAMES,
)
def test_the_first_ring_by_newtons_method_takes_out_what_rough_data_cost(problem, most):
    errors = [
        relative(solved(problem, FAST.with_changes(out_of_range=how)), problem)
        for how in ("network", "edge")
    ]
    assert errors[1] <= 5e-4
    assert errors[1] < most * errors[0]


def require_alike(together, alone, atol):
    assert together.iterations == alone.iterations
    assert together.report["outside_training_range"] == alone.report["outside_training_range"]
    np.testing.assert_allclose(together.gather(), alone.field, rtol=0, atol=atol)


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize(
    ("problem", "how"),
    [
        (charged(), "network"),
        (charged(), "edge"),
        (surface(), None),
        (surface(f="0.4*sin(2*x)"), None),
    ],
    ids=["network", "edge", "surface", "surface with a source"],
)
def test_all_numbers_of_ranks_give_the_same(alone_and_together, across_batches, problem, how):
    settings = FAST.with_changes(out_of_range=how or FAST.out_of_range)
    alone, together = alone_and_together(solve, problem, problem.equation.name, settings=settings)
    # Corrections and fills are in float32, summed in other orders in batches of other sizes.
    require_alike(together, alone, across_batches(alone.field))


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (charged(sides="5*sin(1.3*x + 0.5*y)"), 5e-4),
        (surface(sides="2.5*sin(1.3*x + 0.5*y)"), 2e-4),
    ],
    ids=["values", "slopes"],
)
def test_what_is_beyond_the_range_is_left_to_newtons_method(problem, error):
    solution = solved(problem)
    assert solution.status == "converged_rtol"
    assert 0 < solution.report["outside_training_range"] < solution.report["subdomains"]
    assert relative(solution, problem) <= error


def test_a_network_that_does_not_solve_the_equation_is_refused(name, changed_model):
    with pytest.raises(ValueError, match="in its self-test"):
        Solver(PLAIN[name](), changed_model(name))


@pytest.mark.parametrize(
    ("problem", "error"), [(charged(), 1e-8), (surface(cells=(64, 96)), 1e-7)], ids=NAMES
)
def test_a_certificate_makes_up_for_any_network(problem, error, changed_model):
    solution = solve(problem, changed_model(problem.equation.name), settings=CERTIFIED)
    assert solution.status == "converged_rtol"
    assert solution.report["discrete_residual"] <= 1e-9
    assert relative(solution, problem) <= error


def test_a_certificate_takes_no_more_newton_steps_than_without_the_network(name):
    exact = solve(PLAIN[name](), "exact", settings=SolveSettings(rtol=1e-9))
    steps = solved(PLAIN[name](), CERTIFIED).report["certificate"]["iterations"]
    assert steps <= min(2, exact.iterations)


@pytest.mark.parametrize(
    ("problem", "network", "message"),
    [
        (charged(80.0), NAMES[0], "c=80 has 80; take 'exact', or ask for a certified answer"),
        (charged("5 + x"), NAMES[0], "c is a field here"),
        (charged(sides="1000 + x"), NAMES[0], "residual is not finite for values between"),
        (Problem(Domain(CELLS), "allen-cahn"), NAMES[0], "does not solve allen-cahn"),
        (Problem(Domain(CELLS), "p-laplace"), NAMES[1], "does not solve p-laplace; take 'exact'"),
    ],
)
def test_what_it_was_not_trained_for_is_refused_in_one_line(problem, network, message):
    with pytest.raises(ValueError, match=message) as caught:
        Solver(problem, network)
    assert "\n" not in str(caught.value)


def test_newtons_method_stays_the_default():
    assert solve(charged(cells=(64, 64))).report["local_solver"] == "exact"


STEEP = "1.6*exp(-((x - 0.3)**2 + (y - 0.3)**2)/0.6)*sin(4*(x + y))"  # near one corner


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_all_ranks_take_newtons_steps_in_subdomains_of_one(
    known_by_one, comm, across_batches, monkeypatch
):
    problem = surface(cells=(128, 128), sides=STEEP)
    alone = known_by_one(solve, problem, NAMES[1], settings=FAST)
    had, did = [], []

    def recorded(rows, work, ranks):
        def counted(rows):
            did.append(len(rows))
            return work(rows)

        had.append(len(rows))
        return evenly(rows, counted, ranks)

    monkeypatch.setattr(nonlinear_iteration, "evenly", recorded)
    together = solve(problem, NAMES[1], settings=FAST, ranks=comm)
    had, did = (np.array(comm.allgather(counts)) for counts in (had, did))
    means = had.mean(axis=0)
    assert did.shape == (comm.size, together.iterations + 1)  # once more for the derivative
    np.testing.assert_array_equal(did.sum(axis=0), had.sum(axis=0))
    assert (did.max(axis=0) <= np.maximum(1.2 * means, np.ceil(means))).all()
    assert did.sum(axis=1).max() <= 1.2 * means.sum()
    assert comm.size == 1 or had.sum(axis=1).max() >= 1.5 * means.sum()
    require_alike(together, alone, across_batches(alone.field))
