"""Ranks whose processors round otherwise take the same branches: the root's, or none where one has none."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.problems.operators import jacobian as structure
from mosaicdd.schwarz import method
from mosaicdd.solvers.newton.newton_equations import NestedGuess

pytestmark = pytest.mark.ranks(2, 3)


def test_the_way_to_drive_an_iteration(comm, monkeypatch):
    problem = m.Problem((96, 96), "screened-poisson", {"c": 30.0}, m.Dirichlet("x + y"))
    expected = m.solve(problem, "exact")
    if comm.rank:  # these have measured a spectrum that asks for GMRES and more coarse nodes
        other = method.Scheme(2, "gmres", (1.0,), 2.0)
        monkeypatch.setattr(method, "_measured", lambda *_: other)
    solution = m.solve(problem, "exact", ranks=comm)
    assert solution.report["accelerate"] == expected.report["accelerate"]
    np.testing.assert_allclose(solution.gather(), expected.field, rtol=0, atol=1e-9)


def test_a_coarser_grid_that_one_rank_finds_no_solution_on(comm, monkeypatch):
    problem = m.Problem((64, 64), "poisson-boltzmann", {"f": "9*x"}, m.Dirichlet("x"))
    expected = m.solve(problem)
    if comm.rank == comm.size - 1:
        monkeypatch.setattr(NestedGuess, "_solved", lambda self: None)
    solution = m.solve(problem, ranks=comm)
    assert solution.status == "converged_rtol"
    np.testing.assert_allclose(solution.gather(), expected.field, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("shown", "name", "field"),
    [
        ("only_reacts", "poisson-boltzmann", "c"),
        ("is_sum_of_flows", "quasilinear-diffusion", "a"),
    ],
)
def test_what_random_values_show_of_a_residual(comm, monkeypatch, shown, name, field):
    def problem():
        fields = {field: np.linspace(1, 9, 32 * 32).reshape(32, 32), "f": "9*x"}  # per cell
        return m.Problem((32, 32), name, fields, m.Dirichlet("x"))

    expected = m.solve(problem())
    if comm.rank:
        monkeypatch.setattr(structure, shown, lambda *_: False)
    solution = m.solve(problem(), ranks=comm)
    np.testing.assert_allclose(solution.gather(), expected.field, rtol=0, atol=1e-6)
