"""Derivatives whose nodes are coupled across cells by multigrid: right beside given values, alike on ranks, in Newton's steps."""

import numpy as np
import pytest
from scipy.sparse.linalg import spsolve

import mosaicdd as m
from mosaicdd import Ranks
from mosaicdd.discretisation.system import GridSource, LinearSystem
from mosaicdd.grid.partition import NodeBoxes, Partition
from mosaicdd.problems.operators.nonlinear_part import Linearised
from mosaicdd.solvers.base_engine import engine_of
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


def derivative(problem):
    """Return that of a nonlinear problem at a steep surface, as a medium."""
    grid = problem.domain.grid()
    whole = tuple(slice(0, nodes) for nodes in grid.nodes)
    y, x = (H * np.arange(nodes) for nodes in grid.nodes)
    return Linearised(problem.operator.on(grid, whole), steep(x, y[:, None]))


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("size", [8, 16])
def test_values_on_all_edges_drive_what_a_factorisation_says(comm, size):
    domain = m.Domain(CELLS, H)
    surface = m.Problem(domain, "minimal-surface", {}, m.Dirichlet(0.0))
    # Far from zero in all corners, to which one node each is coupled.
    given = m.Problem(domain, "poisson", {"f": "30*x - y"}, m.Dirichlet("3 + 2*x*y - y"))
    grid, medium = domain.grid(), derivative(surface)
    (boundary,) = given.boundaries(grid)
    solver = LinearSystem(medium, GridSource(given, grid))
    boxes = NodeBoxes.of_size(grid, (False, False), size)
    with Ranks.of(comm) as every:
        partition = Partition(boxes, every.fitted(boxes.counts))
        outcome = engine_of(solver.method)(partition, solver, TIGHT).solve(boundary)

    whole = tuple(slice(0, nodes) for nodes in grid.nodes)
    conductances = medium.conductances(grid, whole)
    assert np.min(conductances.across) < -0.05
    field = boundary.impose(np.zeros(grid.nodes))
    b = H**2 * given.source_at(grid, whole)[0, 1:-1, 1:-1] - conductances.apply(field)
    inside = spsolve(conductances.matrix().tocsc(), b.ravel())
    field[1:-1, 1:-1] = inside.reshape(b.shape)
    own = partition.owned
    assert outcome.status == "converged_rtol"
    assert outcome.history.residual[-1] <= 1e-11
    np.testing.assert_allclose(outcome.field, field[own], rtol=0, atol=1e-9)


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
