"""The network of faces: linear, with the symmetries of the square and the cube, and the exact operator among what it can be."""

import itertools

import numpy as np
import pytest
import torch

from mosaicdd import EllipticOperator
from mosaicdd.networks.faces import FacesNetwork, FacesSettings
from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.lifting import unit_points

SUBDOMAINS = [Subdomain(8), Subdomain(6, axes=3)]


def network_of(subdomain, **settings):
    torch.manual_seed(0)
    return FacesNetwork(len(subdomain.perimeter), FacesSettings(**settings)).double()


@pytest.mark.parametrize("subdomain", SUBDOMAINS, ids=["square", "cube"])
@pytest.mark.parametrize("c", [0.0, 20.0])
def test_the_exact_operator_is_one_that_it_can_be(faces_network, subdomain, c):
    """Whose waves fade as solutions of the difference equation do."""
    network, points = faces_network(subdomain, c=c), subdomain.interior
    exact = ExactSolver(EllipticOperator(c=c), subdomain).matrix[tuple(points.T)]
    rows = network.prepare(torch.as_tensor(unit_points(points, subdomain)))
    np.testing.assert_allclose(rows.detach(), exact, rtol=0, atol=1e-9)


@pytest.mark.parametrize("subdomain", SUBDOMAINS, ids=["square", "cube"])
def test_every_symmetry_commutes_with_it(subdomain):
    network, m, axes = network_of(subdomain), subdomain.cells, subdomain.axes
    rng = np.random.default_rng(1)
    points = torch.as_tensor(rng.uniform(-1, 1, (5, axes)))
    around = subdomain.perimeter
    g = torch.as_tensor(rng.standard_normal((3, len(around))))
    values = network(g, points)
    number = np.zeros((m + 1,) * axes, int)
    number[tuple(around.T)] = np.arange(len(around))
    images = list(
        itertools.product(
            itertools.permutations(range(axes)), itertools.product((1, -1), repeat=axes)
        )
    )
    assert len(images) == {2: 8, 3: 48}[axes]
    for order, signs in images:
        turned = np.where(np.array(signs) > 0, around[:, order], m - around[:, order])
        moved = torch.empty_like(g)
        moved[:, number[tuple(turned.T)]] = g
        there = network(moved, points[:, list(order)] * torch.tensor(signs))
        np.testing.assert_allclose(there.detach(), values.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("subdomain", SUBDOMAINS, ids=["square", "cube"])
def test_it_is_linear_and_corners_and_edges_never_count(subdomain):
    network = network_of(subdomain, width=8, features=4)
    g = torch.randn(2, 4, len(subdomain.perimeter), dtype=torch.float64)
    points = torch.rand(4, 3, subdomain.axes, dtype=torch.float64) * 2 - 1
    for places in (points[0], points):  # the same for all, and one set for each
        together = network(2 * g[0] - 3 * g[1], places)
        torch.testing.assert_close(together, 2 * network(g[0], places) - 3 * network(g[1], places))
        steps = network.apply_prepared(g[0], network.prepare(places))
        torch.testing.assert_close(network(g[0], places), steps)
    ends = ((subdomain.perimeter == 0) | (subdomain.perimeter == subdomain.cells)).sum(axis=1)
    assert not network.prepare(points[0])[:, ends > 1].any()
    assert network.prepare(points[0])[:, ends == 1].all()


def test_networks_of_squares_are_refused_for_cubes():
    for name in ("linear", "sdnet-concat", "deeponet", "family"):
        with pytest.raises(
            ValueError, match="is not for cubes of 6x6x6 cells; for these take sdnet, mlp, faces"
        ):
            build_network(name, {}, SUBDOMAINS[1])
