"""The iteration on a GPU; skipped where there is none."""

import numpy as np
import pytest
import torch
from media import MEDIA

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.solver import solve

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

_LATTICE = Lattice(Grid((208, 480), 0.5 / 32), Subdomain())


def _solver(device: str, **settings) -> Engine:
    settings = SolveSettings(device=device, rtol=1e-10, **settings)
    ranks = Ranks.alone()
    return Engine(ranks, _LATTICE, ExactSolver(LAPLACE.at(), Subdomain()), settings)


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
    solver.method.iterate(v, out)  # libraries initialise themselves
    torch.cuda.set_sync_debug_mode("error")  # a copy to the host waits for the device
    try:
        solver.method.iterate(v, out)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("problems", [1, 3])
@pytest.mark.parametrize("velocity", [0.0, 20.0])
@pytest.mark.parametrize("medium", ["noise", "inclusions", "checkerboard"])
def test_media_on_the_gpu_are_those_of_the_cpu(medium, velocity, problems):
    cells, nodes, rng = (128, 192), (129, 193), np.random.default_rng(0)
    fields = {"a": MEDIA[medium](nodes, rng), "f": rng.standard_normal((problems, *nodes))}
    pde = "diffusion"
    if velocity:
        pde, fields = "advection-diffusion", fields | {"bx": velocity}
    problem = Problem(Domain(cells), pde, fields)
    host, device = (
        solve(problem, settings=SolveSettings(rtol=1e-10, device=name)) for name in ("cpu", "cuda")
    )
    statuses = [[one.report["status"] for one in found.results] for found in (host, device)]
    assert statuses[0] == statuses[1]
    assert abs(device.iterations - host.iterations) <= 1
    difference = abs(device.field - host.field).max()
    assert difference < 1e-7 * np.ptp(host.field)  # residuals of 1e-10, in media of contrast 1e6
