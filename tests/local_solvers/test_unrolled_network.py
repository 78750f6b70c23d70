"""The unrolled network before any training: what it is by construction; and the responses at planes."""

import numpy as np
import pytest
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.symmetry import images
from mosaicdd.local_solvers.networks.unrolled import (
    UnrolledNetwork,
    UnrolledSettings,
)
from mosaicdd.local_solvers.nonlinear.corrected import PlaneResponses
from mosaicdd.local_solvers.nonlinear.nonlinear import NewtonPlan, SubdomainNewton
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.problem import Problem

CELLS, SQUARES = 16, 5
SQUARE = Subdomain(CELLS, 1.0)


@pytest.fixture
def network():
    torch.manual_seed(3)
    one = UnrolledNetwork.of(UnrolledSettings(), "minimal-surface", CELLS)
    for weights in one.parameters():
        weights.data += 0.05 * torch.randn_like(weights)
    return one


@pytest.fixture
def data():
    rng = np.random.default_rng(4)
    g = torch.from_numpy(0.1 * rng.standard_normal((SQUARES, 4 * CELLS))).float()
    w = torch.from_numpy(0.01 * rng.standard_normal((SQUARES, (CELLS - 1) ** 2))).float()
    return g, w


def seen(network, w):
    return w @ torch.from_numpy(network.sight).float()


def moved(values, to):
    out = torch.empty_like(values)
    out[:, to] = values
    return out


@torch.no_grad()
def test_turned_and_mirrored_data_have_turned_and_mirrored_corrections(network, data):
    g, w = data
    here = network(g, seen(network, w))
    nodes = (SQUARE.perimeter, SQUARE.interior, network.outputs)
    for perimeter, inner, outputs in zip(*(images(n, CELLS) for n in nodes), strict=True):
        there = network(moved(g, perimeter), seen(network, moved(w, inner)))
        # Sums of 256 products in another order, four times.
        assert torch.allclose(there, moved(here, outputs), atol=1e-5 * float(here.abs().max()))


@torch.no_grad()
def test_planes_are_not_corrected_and_corrections_are_odd(network, data):
    g, w = data
    y, x = torch.from_numpy(SQUARE.perimeter / CELLS - 0.5).float().T
    plane = (0.7 * y - 1.3 * x)[None]
    assert float(network(plane, None).abs().max()) < 1e-5
    assert torch.allclose(network(-g, -seen(network, w)), -network(g, seen(network, w)), atol=1e-6)


def test_what_it_sees_of_a_source_is_the_gradient_of_its_effect(network):
    y, x = SQUARE.interior.T / CELLS
    w = x * (1 - x) * y * (1 - y)
    points = network.sight.shape[1] // 16
    first = (w @ network.sight).reshape(2, 8, points)[:, 0]  # of the symmetry that moves nothing
    y, x = network._points.T / CELLS
    exact = np.stack([x * (1 - x) * (1 - 2 * y), (1 - 2 * x) * y * (1 - y)])
    np.testing.assert_allclose(first, exact, atol=1e-12)  # central differences of a square


def test_cells_that_its_points_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="a multiple of 16 cells, got 24"):
        UnrolledNetwork(24, UnrolledSettings(), torch.rsqrt)
    with pytest.raises(ValueError, match="poisson-boltzmann has none; take the network correction"):
        UnrolledNetwork.of(UnrolledSettings(), "poisson-boltzmann", CELLS)


def plan():
    grid = Grid((96, 96), 1 / 64)
    solver = SubdomainNewton().bind(Problem(Domain((96, 96)), "minimal-surface"), grid)
    block = Block.whole(Lattice(grid, solver.subdomain))
    return NewtonPlan(solver, block, torch.device("cpu")), solver.subdomain


def test_responses_at_planes_come_from_a_table():
    exact, square = plan()
    slopes = torch.tensor([[0.0, 0.0], [0.9, -0.3], [-1.1, 1.2], [0.2, 1.3]], dtype=torch.float64)
    along = torch.arange(square.cells + 1, dtype=torch.float64) * square.spacing
    u = slopes[:, :1, None] * along[:, None] + slopes[:, 1:, None] * along
    truth = exact.derivative(u, {}).double()
    found = torch.empty_like(truth)
    PlaneResponses(exact, 2.0).write(slopes, found)
    # Between entries 0.11 apart, linear: 0.11**2 / 8 times second derivatives, up to 6 where it is steep.
    assert float((found - truth).abs().max()) < 1e-2
    # What all hats add up to stays 1 everywhere.
    assert float((found.sum(dim=1) - 1).abs().max()) < 1e-4


def test_slopes_that_are_not_finite_do_not_end_it():
    exact, _ = plan()
    found = torch.zeros(1, 8, 62, dtype=torch.float64)
    PlaneResponses(exact, 2.0).write(torch.tensor([[np.nan, 1e9]]), found)
    assert found.isfinite().all()
