"""Local solvers and blocks for the tests of the iteration."""

import pytest
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.problems.equations import LAPLACE


class Changed:
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

    def outside_range(self, *, device, dtype):
        return None

    def plan(self, points, *, device, dtype, weights=None):
        exact = self._exact.plan(points, device=device, dtype=dtype)

        def plan(g, out):
            exact(g, out)
            self._change(g, out)
            if weights is not None:
                out *= torch.as_tensor(weights).to(out)

        return plan


@pytest.fixture
def changed_exact():
    """Return the class of exact local solvers with changed values."""
    return Changed


@pytest.fixture
def block_of():
    """Return a function: the block of this rank."""

    def make(grid, lattice, halo=1):
        start, stop = grid.partition(lattice.subdomains)
        return Block(lattice, tuple(a + 1 for a in start), tuple(b + 1 for b in stop), halo)

    return make


@pytest.fixture
def cpu():
    """Return device and type of the tensors."""
    return {"device": torch.device("cpu"), "dtype": torch.float64}
