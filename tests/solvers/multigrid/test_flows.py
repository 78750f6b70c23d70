"""Flows of all kinds, however fast they are for the grid: few iterations to the field of a factorisation."""

import numpy as np
import pytest
from media import FLOWS, flow

import mosaicdd as m
from mosaicdd.solvers.references import solve_directly


def flowing(kind, cells, peclet, *, contrast=1e4):
    """Return a problem in a random medium with a reaction."""
    nodes = tuple(n + 1 for n in cells)
    domain = m.Domain(cells, 1 / cells[0])
    white = np.random.default_rng(0).standard_normal(nodes)
    fields = flow(kind, nodes, peclet, domain.grid().spacing)
    fields |= {"a": contrast ** ((white - white.min()) / np.ptp(white) - 0.5), "c": 1.0}
    fields["f"] = cells[0] * np.random.default_rng(1).standard_normal(nodes)
    return m.Problem(domain, "advection-diffusion", fields, m.Dirichlet("sin(5*x) + y"))


@pytest.mark.parametrize("peclet", [10.0, 1000.0])
@pytest.mark.parametrize("kind", FLOWS)
def test_flows_take_few_iterations_to_the_field_of_a_factorisation(kind, peclet):
    problem = flowing(kind, (128, 128), peclet)
    solution = m.solve(problem, rtol=1e-9)
    assert solution.status == "converged_rtol"
    assert solution.report["discrete_residual"] <= 1.001e-9
    assert solution.iterations <= (30 if kind == "4 x 4 cells" else 22)
    expected = solve_directly(problem)
    assert np.abs(solution.field - expected).max() <= 1e-6 * np.ptp(expected)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("kind", ["along y", "4 x 4 cells"])
def test_fast_flows_are_the_same_field_on_every_number_of_ranks(comm, known_by_one, kind):
    problem, settings = flowing(kind, (150, 160), 300.0), m.SolveSettings(rtol=1e-10)
    solution = m.solve(problem, ranks=comm, settings=settings)
    alone = known_by_one(m.solve, problem, settings=settings)
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 1.5 * alone.iterations + 2
    assert np.abs(solution.gather() - alone.field).max() <= 1e-7 * np.ptp(alone.field)
