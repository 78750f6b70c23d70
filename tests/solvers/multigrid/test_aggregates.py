"""The second coarse space: the same aggregates on any number of ranks, and what solving for them leaves."""

import numpy as np
import pytest
import scipy.ndimage
import scipy.sparse

import mosaicdd as m
from mosaicdd.solvers.multigrid import conjugate_gradients as flexible_gradients
from mosaicdd.solvers.multigrid import cycle as balancing
from mosaicdd.solvers.references import solve_directly

AROUND = {"left": m.Periodic(), "right": m.Periodic(), "bottom": m.Dirichlet(0.0)}


def problem_of(kind):
    """Return one with conductors of 1e5 that hold few coarse nodes."""
    shape = (30, 27, 29) if kind == "a box" else (91, 83)
    rng = np.random.default_rng(3)
    smooth = scipy.ndimage.gaussian_filter(rng.standard_normal([n + 1 for n in shape]), 1.5)
    fields = {"a": np.where(smooth > 0, 1e5, 1.0), "f": rng.standard_normal(smooth.shape)}
    sides = {
        "a box": m.Dirichlet(0.0),
        "values": m.Dirichlet(0.0),
        "around": AROUND | {"top": m.Neumann("x")},
        "insulated": m.Neumann(0.0),
    }[kind]
    if kind == "insulated":
        weights = np.ones([n + 1 for n in shape])
        weights[[0, -1]] /= 2
        weights[:, [0, -1]] /= 2
        fields["f"] -= (weights * fields["f"]).sum() / weights.sum()
    return m.Problem(m.Domain(shape, 1 / 90), "diffusion", fields, sides)


def test_without_memory_for_them_iterations_go_on_as_they_are(monkeypatch):
    problem, settings = problem_of("values"), m.SolveSettings(rtol=1e-8)
    with monkeypatch.context() as patched:
        patched.setattr(flexible_gradients, "_CONTRACTION", np.inf)
        expected = m.solve(problem, settings=settings)
    monkeypatch.setattr(flexible_gradients, "_CONTRACTION", 0.2)
    monkeypatch.setattr(flexible_gradients, "fits_beside", lambda ranks, needed: False)
    solution = m.solve(problem, settings=settings)
    assert solution.converged
    assert solution.iterations >= expected.iterations
    error = np.sqrt(np.mean((solution.field - solve_directly(problem)) ** 2))
    assert error <= solution.error_estimate


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("kind", ["values", "around", "insulated", "a box"])
def test_with_them_iterations_are_few_and_alike_on_all_ranks(
    comm, known_by_one, by_one, kind, monkeypatch
):
    monkeypatch.setattr(flexible_gradients, "_CONTRACTION", 0.2)
    problem, settings = problem_of(kind), m.SolveSettings(rtol=1e-8)
    solution = m.solve(problem, ranks=comm, settings=settings)
    alone = known_by_one(m.solve, problem, settings=settings)
    monkeypatch.setattr(flexible_gradients, "_CONTRACTION", np.inf)
    without = m.solve(problem, ranks=comm, settings=settings)
    assert solution.converged
    assert abs(solution.iterations - alone.iterations) <= 1  # as rounding decides about the last
    assert solution.iterations <= without.iterations
    field, expected = solution.gather(), by_one(solve_directly, problem)
    if kind == "insulated":  # a constant is left open
        field, expected = field - field.mean(), expected - expected.mean()
    assert abs(field - expected).max() < 1e-6 * np.ptp(expected)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("kind", ["values", "around", "a box"])
def test_where_the_second_level_does_not_contract_its_cycle_knows_them_from_the_start(
    comm, known_by_one, by_one, kind, monkeypatch
):
    """On all ranks alike; the directions themselves need none."""
    monkeypatch.setitem(balancing._LEFT, 2, 1e-3)
    monkeypatch.setitem(balancing._LEFT, 3, 1e-3)
    problem, settings = problem_of(kind), m.SolveSettings(rtol=1e-6)
    with m.Solver(problem, settings=settings, ranks=comm) as solver:
        solution = solver()
        (planned,) = solver._setup.bound.planned.values()
        assert planned.gradients._cycle._balancing is not None
        assert planned.gradients._aggregates is None
    alone = known_by_one(m.solve, problem, settings=settings)
    assert solution.converged
    assert abs(solution.iterations - alone.iterations) <= 1  # as rounding decides about the last
    field, expected = solution.gather(), by_one(solve_directly, problem)
    assert abs(field - expected).max() < 1e-5 * np.ptp(expected)
    error = np.sqrt(np.mean((field - expected) ** 2))
    assert error <= solution.error_estimate
