"""Media by operators of subdomains: the fixed point, both sweeps, ranks, and what is refused."""

import numpy as np
import pytest
import torch
from bench_field_networks import inclusions, lognormal, problem_of
from media import MEDIA

from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.models.trained_model import OperatorModel
from mosaicdd.local_solvers.networks.operator import (
    REACTION,
    ROUGHNESS,
    OperatorNetwork,
    OperatorSettings,
)
from mosaicdd.local_solvers.upscaling import RATIO
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references.references import solve_directly
from mosaicdd.problems.sides.conditions import Dirichlet
from mosaicdd.schwarz.base_engine import SolveOptions
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.solver import Solver, solve
from mosaicdd.schwarz.upscaled.operator_engine import OperatorEngine
from mosaicdd.schwarz.upscaled.upscaled_engine import UpscaledEngine
from mosaicdd.storage.model_file import ModelCard
from mosaicdd.unsupported import Unsupported

SIDES = Dirichlet("sin(3*x) + y*y")
TIGHT = SolveSettings(rtol=1e-10)


def problem_in(kind, cells=(128, 192), **fields):
    a = MEDIA[kind](tuple(n + 1 for n in cells), np.random.default_rng(0))
    return Problem(Domain(cells), "diffusion", {"a": a} | fields, SIDES)


def model(size=0.0, roughest=1e9):
    """Return a network with random modes of a size; of size 0 it is the lifting."""
    torch.manual_seed(0)
    network = OperatorNetwork(OperatorSettings(modes=4, filters=4, features=2, width=8))
    torch.nn.init.normal_(network.modes, std=size)
    ranges = {ROUGHNESS: [0.0, roughest], REACTION: [0.0, 1.0]}
    card = ModelCard("diffusion", 32, 0.5, "operator", {}, None, [-1.0, 1.0], ranges=ranges)
    return OperatorModel("operators", network, card)


@pytest.mark.parametrize("fields", [{}, {"f": "cos(2*x) + y", "c": "1 + x"}], ids=["sides", "f"])
@pytest.mark.parametrize("kind", ["smooth", "checkerboard"])
def test_the_lifting_alone_solves_the_equation_of_averages(kind, fields):
    """The subdomains' graphs agree where the coarse equation of the whole domain is solved."""
    problem = problem_in(kind, **fields)
    grid = problem.domain.grid()
    bound = model().bind(problem, grid)
    engine = OperatorEngine(Ranks.alone(), Lattice(grid, bound.subdomain), bound, TIGHT)
    thinned = [one.every(RATIO) for one in problem.boundaries(grid)]
    (mine,) = engine._approximate(thinned, SolveOptions())
    (expected,) = UpscaledEngine._approximate(engine, thinned, SolveOptions())
    assert abs(mine.field - expected.field).max() < 1e-8 * float(expected.field.abs().max())
    assert len(mine.history.update) <= 18  # contrast 1e4, to 1e-10


@pytest.mark.parametrize(
    "settings",
    [
        {"levels": 1, "max_iterations": 3000, "rtol": 1e-9},
        {"levels": 1, "accelerate": "gmres", "max_iterations": 3000, "rtol": 1e-9},
        {"accelerate": "none", "rtol": 1e-9},
    ],
    ids=["phases", "gmres", "stationary"],
)
def test_all_sweeps_have_the_same_fixed_point(settings):
    problem, solver = problem_in("smooth", (64, 96), f=1.0), model()
    two_level = solve(problem, solver, settings=TIGHT)
    other = solve(problem, solver, settings=SolveSettings(**settings))
    assert other.status == "converged_rtol"
    # 1e-9 in the last update, of an iteration that contracts by 0.95 at least.
    assert abs(other.field - two_level.field).max() < 1e-6 * np.ptp(two_level.field)


@pytest.mark.parametrize("size", [1e-3, 0.02])
@pytest.mark.parametrize("kind", ["smooth", "checkerboard"])
def test_the_estimate_covers_the_error(kind, size):
    problem = problem_in(kind, f=1.0)
    solution = solve(problem, model(size))
    error = np.sqrt(np.mean((solution.field - solve_directly(problem)) ** 2))
    assert error <= solution.error_estimate


@pytest.mark.parametrize(
    "kind", [lognormal(8, 30), inclusions(10)], ids=["lognormal", "inclusions"]
)
def test_the_shipped_network_is_within_its_bound_and_better_than_averages(kind):
    a = kind(193, np.random.default_rng(99))
    problem = problem_of(a, "source")
    truth = solve_directly(problem)
    errors = [
        np.sqrt(np.mean((solve(problem, name).field - truth) ** 2) / np.mean(truth**2))
        for name in ("averaged", "diffusion-operator")
    ]
    assert errors[1] < 5e-3
    assert errors[1] < errors[0] / 1.5


def test_the_shipped_network_refuses_rough_media_but_for_a_certificate():
    problem = problem_in("noise")
    with pytest.raises(ValueError, match="rougher than diffusion-operator is for"):
        solve(problem, "diffusion-operator")
    certified = solve(problem, "diffusion-operator", settings=SolveSettings(certify=1e-9))
    assert certified.report["discrete_residual"] <= 1e-9


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("levels", [1, 2])
def test_all_numbers_of_ranks_give_the_same(alone_and_together, levels):
    problem = problem_in("smooth", (128, 192), f="cos(x)", c=1.0)
    settings = SolveSettings(levels=levels, rtol=1e-9, sync="phase")
    if levels == 1:
        settings = settings.with_changes(max_iterations=20)  # it need not have converged
    alone, together = alone_and_together(solve, problem, model(1e-3), settings=settings)
    assert abs(together.iterations - alone.iterations) <= 1
    # The correction is solved to 1e-2 of itself; networks work in float32.
    tolerance = 1e-2 * alone.error_estimate + 1e-5 * np.ptp(alone.field)
    assert abs(together.gather() - alone.field).max() < tolerance
    assert together.error_estimate == pytest.approx(alone.error_estimate, rel=0.05)


def test_several_problems_and_new_sources_are_as_each_by_itself():
    problem = problem_in("smooth")
    f = np.random.default_rng(1).standard_normal((2, 129, 193))
    with Solver(problem, model(1e-3)) as solver:
        solver()
        both = solver(problem.with_fields(f=f)).field
    for one, field in zip(f, both, strict=True):
        alone = solve(problem.with_fields(f=one), model(1e-3)).field
        assert abs(field - alone).max() < 1e-3 * np.ptp(alone)


@pytest.mark.ranks(1, 2)
def test_a_medium_that_the_network_does_not_know_is_refused(comm):
    with pytest.raises(ValueError, match=r"rougher than operators is for.*take 'exact'"):
        Solver(problem_in("noise"), model(roughest=0.01), ranks=comm)


def test_a_certified_answer_is_exact_whatever_was_asked_for():
    problem = problem_in("noise")
    solution = solve(problem, model(roughest=0.01), settings=SolveSettings(certify=1e-9))
    assert solution.report["discrete_residual"] <= 1e-9
    assert abs(solution.field - solve_directly(problem)).max() < 1e-6 * np.ptp(solution.field)


def test_what_it_is_not_for_is_refused():
    with pytest.raises(ValueError, match="are numbers here; take 'exact'"):
        Solver(Problem(Domain((128, 128)), "diffusion", {"a": 2.0}), model())
    with pytest.raises(ValueError, match="needs multiples of 16, at least 64"):
        Solver(problem_in("smooth", (48, 64)), model())
    with pytest.raises(
        Unsupported, match="accelerate='chebyshev' is not for coefficients that are fields"
    ):
        Solver(problem_in("smooth"), model(), settings=SolveSettings(accelerate="chebyshev"))
    with pytest.raises(Unsupported, match="dtype='float32' is not for"):
        Solver(problem_in("smooth"), model(), settings=SolveSettings(dtype="float32"))
