"""The shipped network of an equation in the gradient: how right it is, and what it is not trusted with."""

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

NAME = "minimal-surface"
CELLS = (96, 160)
FAST = SolveSettings(rtol=1e-5)
WAVES = "0.7*sin(1.3*x + 0.5*y)*cos(0.7*y - 0.3*x) + 0.2*x"


def problem(cells=CELLS, sides=WAVES, spacing=None, **fields):
    return Problem(Domain(cells, spacing), NAME, fields, Dirichlet(sides))


def random_problem(length, amplitude, seed):
    domain = Domain(CELLS)
    boundary = Boundary.of_gaussian_process(
        domain.grid(), seed=seed, length=length, amplitude=amplitude
    )
    return Problem(domain, NAME, {}, boundary)


def relative(solution, one):
    truth = solve_directly(one)
    return np.linalg.norm(solution.field - truth) / np.linalg.norm(truth)


@pytest.mark.parametrize(
    ("one", "most"),
    [
        (problem(), 1e-4),
        (random_problem(2.0, 1.0, 911), 1e-4),
        (problem(f="0.4*sin(2*x)", sides="0.3*x*y"), 2e-4),
    ],
    ids=["waves", "random", "source"],
)
def test_smooth_data_are_solved_and_the_estimate_says_how_well(one, most):
    solution = solve(one, NAME, settings=FAST)
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 12
    error = relative(solution, one)
    assert error <= most
    size = np.sqrt(np.square(solution.field).mean())
    assert error * size <= 1.2 * solution.error_estimate
    assert solution.error_estimate <= 20 * error * size + 1e-5


def test_another_spacing_is_as_well_solved_as_surfaces_have_no_scale():
    large = solve(problem(), NAME, settings=FAST)
    scaled = problem(sides="(0.7*sin(130*x + 50*y)*cos(70*y - 30*x) + 20*x)/100", spacing=1 / 6400)
    found = solve(scaled, NAME, settings=FAST)
    np.testing.assert_allclose(100 * found.field, large.field, rtol=0, atol=1e-6)


def test_the_first_ring_by_newtons_method_takes_out_what_rough_data_cost():
    one = random_problem(0.4, 0.2, 1)
    errors = [
        relative(solve(one, NAME, settings=FAST.with_changes(out_of_range=how)), one)
        for how in ("network", "edge")
    ]
    assert errors[1] <= 5e-4
    assert errors[1] < 0.7 * errors[0]


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("fields", [{}, {"f": "0.4*sin(2*x)"}], ids=["plain", "source"])
def test_all_numbers_of_ranks_give_the_same(alone_and_together, across_batches, fields):
    one = problem(**fields)
    alone, together = alone_and_together(solve, one, NAME, settings=FAST)
    assert together.iterations == alone.iterations
    assert together.report["outside_training_range"] == alone.report["outside_training_range"]
    # Corrections and fills are in float32, summed in other orders in batches of other sizes.
    atol = across_batches(alone.field)
    np.testing.assert_allclose(together.gather(), alone.field, rtol=0, atol=atol)


def test_slopes_beyond_the_range_are_left_to_newtons_method():
    one = problem(sides="2.5*sin(1.3*x + 0.5*y)")
    solution = solve(one, NAME, settings=FAST)
    assert solution.status == "converged_rtol"
    assert 0 < solution.report["outside_training_range"] < solution.report["subdomains"]
    assert relative(solution, one) <= 2e-4


def test_a_network_that_does_not_solve_the_equation_is_refused(changed_model):
    with pytest.raises(ValueError, match="in its self-test"):
        Solver(problem(), changed_model)


def test_a_certificate_makes_up_for_any_network(changed_model):
    one = problem(cells=(64, 96))
    solution = solve(one, changed_model, settings=FAST.with_changes(certify=1e-9))
    assert solution.status == "converged_rtol"
    assert solution.report["discrete_residual"] <= 1e-9
    assert relative(solution, one) <= 1e-7


def test_a_certificate_takes_no_more_newton_steps_than_without_the_network():
    exact = solve(problem(), "exact", settings=SolveSettings(rtol=1e-9))
    certified = solve(problem(), NAME, settings=FAST.with_changes(certify=1e-9))
    steps = certified.report["certificate"]["iterations"]
    assert steps <= min(2, exact.iterations)


def test_another_equation_is_refused_in_one_line():
    with pytest.raises(ValueError, match="does not solve p-laplace; take 'exact'") as caught:
        Solver(Problem(Domain(CELLS), "p-laplace"), NAME)
    assert "\n" not in str(caught.value)


STEEP = "1.6*exp(-((x - 0.3)**2 + (y - 0.3)**2)/0.6)*sin(4*(x + y))"  # near one corner


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_all_ranks_take_newtons_steps_in_subdomains_of_one(
    known_by_one, comm, across_batches, monkeypatch
):
    one = problem(cells=(128, 128), sides=STEEP)
    alone = known_by_one(solve, one, NAME, settings=FAST)
    had, did = [], []

    def recorded(rows, work, ranks):
        def counted(rows):
            did.append(len(rows))
            return work(rows)

        had.append(len(rows))
        return evenly(rows, counted, ranks)

    monkeypatch.setattr(nonlinear_iteration, "evenly", recorded)
    together = solve(one, NAME, settings=FAST, ranks=comm)
    had, did = (np.array(comm.allgather(counts)) for counts in (had, did))
    means = had.mean(axis=0)
    assert did.shape == (comm.size, together.iterations + 1)  # once more for the derivative
    np.testing.assert_array_equal(did.sum(axis=0), had.sum(axis=0))
    assert (did.max(axis=0) <= np.maximum(1.2 * means, np.ceil(means))).all()
    assert did.sum(axis=1).max() <= 1.2 * means.sum()
    assert comm.size == 1 or had.sum(axis=1).max() >= 1.5 * means.sum()
    assert together.iterations == alone.iterations
    assert together.report["outside_training_range"] == alone.report["outside_training_range"]
    atol = across_batches(alone.field)
    np.testing.assert_allclose(together.gather(), alone.field, rtol=0, atol=atol)
