"""Local solvers for the tests of the iteration."""

import numpy as np
import pytest
import torch
from pretended_gpu import pretended_gpu

import mosaicdd as m
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.schwarz.local_solvers.bound import SharedSolver
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.solvers.references import solve_directly


class Changed(SharedSolver):
    """The exact local solver with something done to its values.

    Parameters
    ----------
    change
        ``change(g, out)``, called with perimeters and the exact values, which it may overwrite.
    """

    name = "changed"
    operator = LAPLACE.at()
    source = None

    def __init__(self, subdomain, change, *, linear):
        self.subdomain = subdomain
        self.linear = linear
        self._exact = ExactSolver(LAPLACE.at(), subdomain)
        self._change = change

    def plan(self, points, *, device, dtype, weights=None):
        exact = self._exact.plan(points, device=device, dtype=dtype)

        def plan(g, out):
            exact(g, out)
            self._change(g, out)
            if weights is not None:
                out *= torch.as_tensor(weights).to(out)

        return plan


@pytest.fixture
def as_by_one(comm, known_by_one, by_one):
    """Return a function that solves by multigrid on all ranks, as one rank does, iteration by iteration.

    It returns the iterations, and how far the field is from that of a direct solver, by the range of this;
    ``apart``: by which the fields may differ, in the same unit.
    """

    def solve(problem, apart):
        tight = m.SolveSettings(rtol=1e-11)
        solution = m.solve(problem, "exact", ranks=comm, settings=tight)
        alone = known_by_one(m.solve, problem, "exact", settings=tight)
        assert solution.report["accelerate"] == "multigrid"
        assert (solution.status, solution.iterations) == (alone.status, alone.iterations)
        assert solution.converged
        field, reference = solution.gather(), by_one(solve_directly, problem)
        np.testing.assert_array_equal(np.isnan(field), np.isnan(reference))
        size = np.nanmax(reference) - np.nanmin(reference)
        np.testing.assert_allclose(field, alone.field, rtol=0, atol=apart * size)
        return solution.iterations, np.nanmax(abs(field - reference)) / size

    return solve


@pytest.fixture
def changed_exact():
    """Return the class of exact local solvers with changed values."""
    return Changed


@pytest.fixture
def in_window(comm):
    """Return a function that solves on all ranks in a window, and everywhere: both fields there."""

    def solve(problem, window, local_solver=None):
        whole, part = (
            m.solve(problem, local_solver, ranks=comm, window=extent) for extent in (None, window)
        )
        rows, columns = np.isin(whole.y, part.y), np.isin(whole.x, part.x)
        return part.gather(), whole.gather()[rows][:, columns]

    return solve


@pytest.fixture
def on_gpu(monkeypatch):
    """Let a GPU be there: torch's, or else one that only says what a GPU would."""
    if torch.cuda.is_available():
        yield None
    else:
        with pretended_gpu(monkeypatch) as gpu:
            yield gpu
