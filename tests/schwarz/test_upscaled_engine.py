"""Answers on a coarser grid: their error, what they say of it, and that ranks agree."""

import numpy as np
import pytest
import torch
from media import MEDIA

from mosaicdd.local_solvers.networks.conductances import (
    ConductanceNetwork,
    ConductanceSettings,
    LearnedRule,
)
from mosaicdd.local_solvers.upscaled import Averaged, UpscaledSolver
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references.references import solve_directly
from mosaicdd.problems.sides.conditions import Dirichlet
from mosaicdd.schwarz.settings import Output, SolveSettings
from mosaicdd.schwarz.solver import Solver, solve
from mosaicdd.unsupported import Unsupported

SIDES = Dirichlet("sin(3*x) + y*y")


def problem_in(kind, cells=(128, 192), **fields):
    a = MEDIA[kind](tuple(n + 1 for n in cells), np.random.default_rng(0))
    return Problem(Domain(cells), "diffusion", {"a": a} | fields, SIDES)


class Learned:
    """A network with random weights, of which no answer is good, and the estimate must say so."""

    name = "learned"
    spacing = None

    def __init__(self, roughest=1e9):
        torch.manual_seed(0)
        self.network = ConductanceNetwork(ConductanceSettings(filters=4, width=8))
        for part in (self.network.edges, self.network.cells):
            torch.nn.init.normal_(part.rest[-1].weight, std=0.3)
        self.roughest = roughest

    def bind(self, problem, grid):
        return UpscaledSolver(self.name, problem, grid, LearnedRule(self.network, self.roughest))


def rms(values):
    return float(np.sqrt((values**2).mean()))


def test_uniform_media_are_solved_to_the_order_of_the_coarse_grid():
    problem = Problem(Domain((128, 128)), "diffusion", {"a": np.full((129, 129), 2.0)}, SIDES)
    solution = solve(problem, "averaged")
    # sin(3 x) over two units: h^2 / 12 times the fourth derivative, 4 h = 1/16, is 3e-2 at most; most
    # of it is taken out by the correction.
    assert rms(solution.field - solve_directly(problem)) < 1e-3


def test_the_tolerance_of_a_call_ends_the_coarse_iteration():
    with Solver(problem_in("smooth"), "averaged", settings=SolveSettings(rtol=1e-11)) as solver:
        tight, loose = solver(), solver(atol=1e-3)
    # Of values up to 5, an update below 1e-3 comes long before one below 1e-11 of them.
    assert loose.converged
    assert loose.report["update"] <= 1e-3
    assert loose.iterations < tight.iterations


@pytest.mark.parametrize("local_solver", [Averaged(), Learned()], ids=["averaged", "learned"])
@pytest.mark.parametrize("fields", [{}, {"f": "cos(2*x) + y", "c": "1 + x"}], ids=["sides", "f"])
@pytest.mark.parametrize("kind", ["smooth", "checkerboard", "channels"])
def test_the_estimate_covers_the_error_and_the_residual_is_that_of_the_grid(
    kind, fields, local_solver
):
    problem = problem_in(kind, **fields)
    solution = solve(problem, local_solver)
    truth = solve_directly(problem)
    error = rms(solution.field - truth)
    assert error <= solution.error_estimate
    if isinstance(local_solver, Averaged) and kind == "smooth":
        assert error < 2e-3 * rms(truth)
    if error > 0.1 * rms(truth):
        assert solution.status == "stagnated"
    assert solution.report["discrete_residual"] > 1e-5  # nobody takes it for an exact answer


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("local_solver", [Averaged(), Learned()], ids=["averaged", "learned"])
def test_all_numbers_of_ranks_give_the_same(alone_and_together, local_solver):
    problem = problem_in("smooth", (128, 192), f="cos(x)", c=1.0)
    settings = SolveSettings(rtol=1e-10)
    alone, together = alone_and_together(solve, problem, local_solver, settings=settings)
    # The correction is solved to 1e-2 of itself; networks work in float32.
    tolerance = 1e-2 * alone.error_estimate + 1e-5 * np.ptp(alone.field)
    assert abs(together.gather() - alone.field).max() < tolerance
    assert together.error_estimate == pytest.approx(alone.error_estimate, rel=0.05)
    residuals = [one.report["discrete_residual"] for one in (alone, together)]
    assert residuals[1] == pytest.approx(residuals[0], rel=0.05)


def test_several_problems_and_new_sources_are_as_each_by_itself():
    problem = problem_in("smooth")
    f = np.random.default_rng(1).standard_normal((2, 129, 193))
    with Solver(problem, "averaged") as solver:
        solver()
        both = solver(problem.with_fields(f=f)).field
    for one, field in zip(f, both, strict=True):
        alone = solve(problem.with_fields(f=one), "averaged").field
        assert abs(field - alone).max() < 1e-3 * np.ptp(alone)


@pytest.mark.ranks(1, 4)
def test_a_window_is_the_part_of_the_field(in_window):
    fields = in_window(problem_in("checkerboard"), ((0.3, 1.2), (0.5, 2.0)), "averaged")
    np.testing.assert_allclose(*fields, atol=1e-12)


def test_a_file_holds_the_same(tmp_path):
    problem = problem_in("smooth")
    written = solve(problem, "averaged", output=Output(tmp_path / "out.h5"))
    np.testing.assert_array_equal(written.field, solve(problem, "averaged").field)


def test_a_certified_answer_is_exact_whatever_was_asked_for():
    problem = problem_in("noise")
    solution = solve(problem, Learned(roughest=0.01), settings=SolveSettings(certify=1e-9))
    assert solution.report["discrete_residual"] <= 1e-9
    assert abs(solution.field - solve_directly(problem)).max() < 1e-6 * np.ptp(solution.field)


@pytest.mark.ranks(1, 2)
def test_a_medium_that_the_network_does_not_know_is_refused(comm):
    with pytest.raises(
        ValueError,
        match=r"rougher than learned is for.*take 'exact', or ask for a certified answer",
    ):
        Solver(problem_in("noise"), Learned(roughest=0.01), ranks=comm)


@pytest.mark.parametrize("kind", ["noise", "spread"])
def test_the_shipped_network_refuses_rough_media_but_for_a_certificate(kind):
    """In such media its answers are off by tenths, and those of averages are worse."""
    problem = problem_in("noise")
    if kind == "spread":  # a fifth of the medium is
        a = np.ones((129, 193))
        a[:, :39] = MEDIA["noise"]((129, 39), np.random.default_rng(0))
        problem = problem.with_fields(a=a)
    with pytest.raises(ValueError, match="rougher than diffusion is for"):
        solve(problem, "diffusion")
    certified = solve(problem, "diffusion", settings=SolveSettings(certify=1e-9))
    assert certified.report["discrete_residual"] <= 1e-9


def test_what_it_is_not_for_is_refused():
    with pytest.raises(ValueError, match="are numbers here; take 'exact'"):
        Solver(Problem(Domain((128, 128)), "diffusion", {"a": 2.0}), "averaged")
    with pytest.raises(ValueError, match="needs multiples of 16, at least 64"):
        Solver(problem_in("smooth", (48, 64)), "averaged")
    with pytest.raises(Unsupported, match="fields only"):
        Solver(problem_in("smooth"), "averaged", keep="interface")
