"""Solvers and local solvers for the tests of the iteration."""

import pytest
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.problems.references import solve_by_sine_transform
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.solver import SchwarzSolver
from mosaicdd.schwarz.stopping import StoppingRule

_STOPPING = ("rtol", "atol", "max_iterations", "mae")


class Changed:
    """The exact local solver with something done to its values.

    Parameters
    ----------
    change
        ``change(g, out)``, called with perimeters and the exact values, which it may overwrite.
    """

    name = "changed"
    equation = LAPLACE

    def __init__(self, subdomain, change, *, linear):
        self.subdomain = subdomain
        self.linear = linear
        self._exact = ExactSolver(LAPLACE, subdomain)
        self._change = change

    def plan(self, points, *, device, dtype):
        exact = self._exact.plan(points, device=device, dtype=dtype)

        def plan(g, out):
            exact(g, out)
            self._change(g, out)

        return plan


@pytest.fixture
def make_solver(make_grid):
    """Return a factory of solvers on a lattice: exact local solver, this rank alone, rtol 1e-10."""

    def make(lattice, *, grid=None, local_solver=None, **settings):
        given = {name: settings.pop(name) for name in _STOPPING if name in settings}
        return SchwarzSolver(
            grid or make_grid(alone=True),
            lattice,
            local_solver or ExactSolver(LAPLACE, lattice.subdomain),
            SolveSettings(stopping=StoppingRule(**{"rtol": 1e-10} | given), **settings),
        )

    return make


@pytest.fixture
def problem():
    """Return a function: rough boundary data on a lattice and the discrete solution."""

    def make(lattice, seed=0):
        boundary = Boundary.of_gaussian_process(lattice.grid, seed=seed, noise=0.05)
        return boundary, solve_by_sine_transform(LAPLACE, boundary)

    return make


@pytest.fixture
def changed_exact():
    """Return the class of exact local solvers with changed values."""
    return Changed


@pytest.fixture
def block_of():
    """Return a function: the block of this rank."""

    def make(grid, lattice):
        start, stop = grid.partition(lattice.subdomains)
        return Block(lattice, tuple(a + 1 for a in start), tuple(b + 1 for b in stop))

    return make


@pytest.fixture
def cpu():
    """Return device and type of the tensors."""
    return {"device": torch.device("cpu"), "dtype": torch.float64}
