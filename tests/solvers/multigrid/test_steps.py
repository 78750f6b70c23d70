"""Derivatives whose nodes are coupled across cells by multigrid: right beside given values, alike on ranks, in Newton's steps."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.solvers.multigrid import conjugate_gradients as flexible_gradients
from mosaicdd.solvers.newton import newton_steps as sine_step
from mosaicdd.solvers.references import solve_directly

CELLS, H = (64, 96), 1 / 64
TIGHT = m.SolveSettings(rtol=1e-11)


def steep(x, y):
    return np.sin(7 * x) * np.cos(5 * y)


@pytest.fixture(autouse=True)
def no_other_way(monkeypatch):
    monkeypatch.setattr(sine_step, "_MOST", 0)


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_a_steep_surface_is_the_same_on_all_ranks(comm, known_by_one):
    problem = m.Problem(
        m.Domain((64, 64), 1 / 64), "minimal-surface", {"f": 0.1}, m.Dirichlet("sin(5*x*y)")
    )
    solution = m.solve(problem, ranks=comm, settings=TIGHT)
    alone = known_by_one(m.solve, problem, settings=TIGHT)
    assert (solution.status, solution.iterations) == (alone.status, alone.iterations)
    assert solution.converged
    np.testing.assert_allclose(solution.gather(), alone.field, rtol=0, atol=1e-9)


@pytest.mark.ranks(1, 2)
def test_steps_that_contract_badly_are_the_same(comm, monkeypatch):
    monkeypatch.setattr(flexible_gradients, "_CONTRACTION", 1e-9)
    problem = m.Problem(m.Domain((48, 48), 1 / 48), "minimal-surface", {}, m.Dirichlet(steep))
    solution = m.solve(problem, ranks=comm, settings=TIGHT)
    assert solution.converged
    np.testing.assert_allclose(solution.gather(), solve_directly(problem), rtol=0, atol=1e-9)
