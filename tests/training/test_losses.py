"""Second derivatives by automatic differentiation against analytic ones and differences."""

import numpy as np
import pytest
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.training.losses import data_loss, pde_loss, second_derivatives

P = 32
EPS = np.finfo(float).eps


class Analytic(torch.nn.Module):
    """``u(y, x) = g_0 sin(2 y) exp(x) + g_1 (x**3 - 3 x y**2)``, as either kind of network."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def prepare(self, points, merge=True):
        y, x = points[..., 0], points[..., 1]
        return torch.stack([torch.sin(2 * y) * torch.exp(x), x**3 - 3 * x * y**2], dim=-1)

    def forward(self, g, points):
        return (self.prepare(points) * g[:, None]).sum(-1)


def draw(count, size):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, size, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("linear", [True, False])
def test_second_derivatives_are_the_analytic_ones(linear):
    g, points = draw(4, 2), 0.5 * draw(6, 2)
    y, x = points.T
    wave = torch.sin(2 * y) * torch.exp(x)
    u_yy, u_xx = second_derivatives(Analytic(linear), g, points)
    torch.testing.assert_close(
        u_yy, g[:, :1] * -4 * wave + g[:, 1:] * -6 * x, rtol=100 * EPS, atol=100 * EPS
    )
    torch.testing.assert_close(
        u_xx, g[:, :1] * wave + g[:, 1:] * 6 * x, rtol=100 * EPS, atol=100 * EPS
    )


@pytest.mark.parametrize("linear", [True, False])
def test_a_solution_of_the_equation_has_no_pde_loss(linear):
    g = torch.tensor([[0.0, 1.0], [0.0, -2.0]], dtype=torch.float64)
    loss = pde_loss(Analytic(linear), LAPLACE, g, draw(5, 2))
    assert loss.item() < (100 * EPS) ** 2  # two terms of up to 20 that cancel


@pytest.mark.parametrize("name", ["linear", "sdnet"])
def test_second_derivatives_of_networks_are_those_of_differences(name):
    torch.manual_seed(0)
    network = build_network(name, {"width": 8, "sigma": 2.0}, Subdomain(cells=P // 4)).double()
    g = draw(3, P)
    points = torch.tensor([[0.21, 0.57], [-0.7, 0.1], [0.33, -0.9]], dtype=torch.float64)
    step = 1e-3
    for axis, exact in enumerate(second_derivatives(network, g, points)):
        offset = torch.zeros(2, dtype=torch.float64)
        offset[axis] = step
        left, middle, right = (network(g, points + i * offset) for i in (-1, 0, 1))
        difference = (left - 2 * middle + right) / step**2
        # step**2 / 12 times a fourth derivative of order sigma**4, and eps / step**2 of rounding.
        torch.testing.assert_close(exact, difference, rtol=0, atol=3e-5)


@pytest.mark.parametrize("name", ["linear", "sdnet"])
def test_both_losses_reach_every_weight(name):
    torch.manual_seed(0)
    network = build_network(name, {"width": 8}, Subdomain(cells=P // 4)).double()
    g, points = draw(3, P), 0.5 * draw(5, 2)
    data_loss(network, g, points, torch.zeros(3, 5, dtype=torch.float64)).backward()
    assert all(p.grad.abs().max() > 0 for p in network.parameters())
    before = {n: p.grad.clone() for n, p in network.named_parameters()}
    pde_loss(network, LAPLACE, g, points).backward()  # Algorithm 1: gradients add up
    changed = {n for n, p in network.named_parameters() if not torch.equal(p.grad, before[n])}
    # The last bias adds a constant, which the equation does not see.
    last_bias = {"linear": "trunk.5.bias", "sdnet": "perceptron.5.bias"}[name]
    assert changed == set(before) - {last_bias}
