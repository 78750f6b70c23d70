"""Networks at one point per perimeter: the same function as at fixed points."""

import numpy as np
import pytest
import torch

from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.schwarz.local_solvers.network_solver import NetworkSolver
from mosaicdd.storage.model_file import ModelCard

SUBDOMAIN = Subdomain(cells=8, size=0.25)
NETWORKS = ["linear", "sdnet", "sdnet-concat", "mlp", "deeponet"]
KIND = {"device": torch.device("cpu"), "dtype": torch.float64}


def make_solver(name):
    torch.manual_seed(0)
    network = build_network(name, {"width": 16}, SUBDOMAIN)
    card = ModelCard("laplace", 8, 0.25, name, {"width": 16}, 2, [-4.0, 4.0])
    return NetworkSolver(name, LAPLACE.at(), SUBDOMAIN, network, card)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_point_of_its_own_gives_what_the_plan_for_all_points_gives(name):
    solver, rng = make_solver(name), np.random.default_rng(0)
    g = torch.as_tensor(rng.standard_normal((20, 32)))
    points = rng.uniform(0, 8, (20, 2))
    points[:8] = np.rint(points[:8])
    everywhere = torch.empty(20, 20, dtype=torch.float64)
    solver.plan(points, **KIND)(g, everywhere)
    values = solver.plan_points(**KIND)(g, points)
    # Sums of 32 products in another order, through four layers at most.
    eps = np.finfo(float).eps
    torch.testing.assert_close(values, everywhere.diagonal(), rtol=0, atol=500 * eps)


@pytest.mark.parametrize("name", NETWORKS)
def test_harmonic_polynomials_are_exact_at_any_point(name):
    solver = make_solver(name)
    y, x = SUBDOMAIN.perimeter.T - 4.0
    points = np.random.default_rng(0).uniform(0, 8, (20, 2))
    v, u = points.T - 4.0
    g = torch.as_tensor(x * x - y * y + x * y - 3 * x + 1).expand(20, -1)
    values = solver.plan_points(**KIND)(g, points).numpy()
    expected = u * u - v * v + u * v - 3 * u + 1
    # The remainder is of the size of rounding and comes back at that size; values reach 30.
    np.testing.assert_allclose(values, expected, rtol=0, atol=30 * 1e-13)
