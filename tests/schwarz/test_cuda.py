"""The iteration on a GPU; skipped where there is none."""

import numpy as np
import pytest
import torch

from mosaicdd import Ranks, SolveSettings
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.partition import Partition
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.block import Lattice
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.local_solvers.exact import ExactSolver

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

_LATTICE = Lattice(Grid((208, 480), 0.5 / 32), Subdomain())


def _solver(device: str, **settings) -> Engine:
    settings = SolveSettings(device=device, rtol=1e-10, **settings)
    ranks = Ranks.alone()
    exact = ExactSolver(LAPLACE.at(), Subdomain())
    return Engine(Partition(exact.boxes(_LATTICE.grid, (False, False)), ranks), exact, settings)


@pytest.mark.parametrize("accelerate", ["none", "chebyshev", "gmres"])
def test_the_gpu_gives_the_solution_of_the_cpu(accelerate):
    boundary = Boundary.of_gaussian_process(_LATTICE.grid, seed=3)
    host, device = (
        _solver(name, accelerate=accelerate).solve(boundary) for name in ("cpu", "cuda")
    )
    assert device.iterations == host.iterations
    # Both stop at an update of 1e-10; in between, sums differ by rounding only.
    np.testing.assert_allclose(device.field.cpu().numpy(), host.field.numpy(), rtol=0, atol=1e-12)


def test_an_iteration_copies_nothing_back_to_the_host():
    solver = _solver("cuda")
    v = Interface(solver.block, device=torch.device("cuda"), dtype=torch.float64)
    v.impose([Boundary.of_gaussian_process(_LATTICE.grid, seed=3)])
    out = v.like_boundary()
    solver.iterate(v, out)  # libraries initialise themselves
    torch.cuda.set_sync_debug_mode("error")  # a copy to the host waits for the device
    try:
        solver.iterate(v, out)
    finally:
        torch.cuda.set_sync_debug_mode("default")
