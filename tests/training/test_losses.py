"""Residuals by Taylor propagation, double backward and nested forward mode, and analytic ones."""

import numpy as np
import pytest
import torch

from mosaicdd.networks.registry import NETWORKS, build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.networks.trunk import Jet
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.training.losses import UnitOperator, data_loss, pde_residual

P = 32
EPS = np.finfo(float).eps
OPERATORS = {
    "laplace": UnitOperator.of(LAPLACE.at(), Subdomain()),
    "screened anisotropic": UnitOperator((2.0, 1.0), (0.5, -0.25), -1.0),
}


class Analytic(torch.nn.Module):
    """``u(y, x) = g_0 sin(2 y) exp(x) + g_1 (x**3 - 3 x y**2)``."""

    linear, jet = True, None

    def forward(self, g, points):
        y, x = points[..., 0], points[..., 1]
        basis = torch.stack([torch.sin(2 * y) * torch.exp(x), x**3 - 3 * x * y**2], dim=-1)
        return (basis * g[:, None]).sum(-1)


def draw(count, size):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, size, generator=generator, dtype=torch.float64)


def make(name, axes=2, **settings):
    torch.manual_seed(0)
    subdomain = Subdomain(P // 4) if axes == 2 else Subdomain(4, axes=3)
    return build_network(name, {"width": 8, **settings}, subdomain).double()


def forward_mode(network, operator, g, points):
    """Differentiate by nested Jacobian-vector products, along each axis."""

    def along(function, direction):
        return lambda p: torch.func.jvp(function, (p,), (direction,))[1]

    # One set of points per perimeter: then no network merges equal ones.
    points = points.expand(len(g), *points.shape).clone()
    first, second = [], 0.0
    for axis, weight in enumerate(operator.second):
        direction = torch.zeros_like(points)
        direction[..., axis] = 1.0
        gradient = along(lambda p: network(g, p), direction)
        first.append(gradient(points))
        second = second + weight * along(gradient, direction)(points)
    return operator.apply(Jet(network(g, points), torch.stack(first), second))


def test_the_residual_of_a_function_is_the_analytic_one():
    operator = OPERATORS["screened anisotropic"]
    g, points = draw(4, 2), 0.5 * draw(6, 2)
    y, x = points.T
    wave, slope = torch.sin(2 * y) * torch.exp(x), 2 * torch.cos(2 * y) * torch.exp(x)
    first = -8 * wave + wave + 0.5 * slope - 0.25 * wave - wave
    cubic = x**3 - 3 * x * y**2
    second = -12 * x + 6 * x + 0.5 * -6 * x * y - 0.25 * (3 * x**2 - 3 * y**2) - cubic
    expected = g[:, :1] * first + g[:, 1:] * second
    for laplacian in ("taylor", "autograd"):  # it has no jet: both are double backward
        result = pde_residual(Analytic(), operator, g, points, laplacian)
        torch.testing.assert_close(result, expected, rtol=100 * EPS, atol=100 * EPS)


def test_a_solution_of_the_equation_has_no_residual():
    g = torch.tensor([[0.0, 1.0], [0.0, -2.0]], dtype=torch.float64)
    residual = pde_residual(Analytic(), OPERATORS["laplace"], g, draw(5, 2))
    assert residual.abs().max() < 100 * EPS  # two terms of up to 20 that cancel


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("name", sorted(name for name, kind in NETWORKS.items() if kind.jet))
def test_taylor_autograd_and_nested_forward_mode_agree(name, depth, operator):
    network = make(name, depth=depth)
    g, points = draw(3, P), draw(7, 2).clamp(-2, 2) / 2.01
    taylor = pde_residual(network, operator, g, points, "taylor")
    others = (
        pde_residual(network, operator, g, points, "autograd"),
        forward_mode(network, operator, g, points),
    )
    for other in others:
        # Sums of some hundred terms, each of the size of sigma**2 = 64.
        torch.testing.assert_close(taylor, other, rtol=1e-10, atol=1e-10)
    gradients = [
        torch.autograd.grad(residual.square().mean(), network.parameters(), allow_unused=True)
        for residual in (taylor, others[0])
    ]
    for ours, theirs in zip(*gradients, strict=True):
        if ours is None or theirs is None:  # a last bias, which second derivatives do not see
            assert all(g is None or not g.any() for g in (ours, theirs))
        else:
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", sorted(name for name, kind in NETWORKS.items() if kind.jet))
def test_the_residual_of_a_network_is_that_of_differences(name):
    network = make(name, sigma=2.0)
    g = draw(3, P)
    points = torch.tensor([[0.21, 0.57], [-0.7, 0.1], [0.33, -0.9]], dtype=torch.float64)
    step = 1e-3
    expected = torch.zeros(3, 3, dtype=torch.float64)
    for axis in range(2):
        offset = torch.zeros(2, dtype=torch.float64)
        offset[axis] = step
        left, middle, right = (network(g, points + i * offset) for i in (-1, 0, 1))
        expected += (left - 2 * middle + right) / step**2
    residual = pde_residual(network, OPERATORS["laplace"], g, points)
    # step**2 / 12 times a fourth derivative of order sigma**4, and eps / step**2 of rounding.
    torch.testing.assert_close(residual, expected, rtol=0, atol=6e-5)


@pytest.mark.parametrize("name", ["linear", "sdnet"])
def test_both_losses_reach_every_weight(name):
    network = make(name)
    g, points = draw(3, P), 0.5 * draw(5, 2)
    data_loss(network, g, points, torch.zeros(3, 5, dtype=torch.float64)).backward()
    assert all(p.grad.abs().max() > 0 for p in network.parameters())
    before = {n: p.grad.clone() for n, p in network.named_parameters()}
    # Algorithm 1: gradients add up.
    pde_residual(network, OPERATORS["laplace"], g, points).square().mean().backward()
    changed = {n for n, p in network.named_parameters() if not torch.equal(p.grad, before[n])}
    # The last bias adds a constant, which the equation does not see.
    last_bias = {"linear": "trunk.5.bias", "sdnet": "perceptron.5.bias"}[name]
    assert changed == set(before) - {last_bias}


def test_concatenated_inputs_give_the_values_of_the_split_layer():
    concatenated = make("sdnet-concat")
    split = make("sdnet", symmetric=False)
    split.load_state_dict(concatenated.state_dict())
    g, points = draw(3, P), 0.5 * draw(5, 2)
    for where in (points, points.expand(3, 5, 2)):
        # Sums of 8 * 32 + 66 products of order 1.
        torch.testing.assert_close(concatenated(g, where), split(g, where), rtol=0, atol=1000 * EPS)


def test_a_weight_of_256_weighs_the_residual_as_the_paper_does_in_domain_lengths():
    subdomain, half = Subdomain(cells=32, size=0.5), 0.25

    class Squared(torch.nn.Module):
        """``u = 2 x**2 + y**2`` in domain lengths: its Laplacian is 6 everywhere."""

        def forward(self, g, points):
            y, x = half * points[..., 0], half * points[..., 1]
            return 2 * x**2 + y**2 + 0 * g[:, :1]

    operator = UnitOperator.of(LAPLACE.at(), subdomain)
    points = draw(5, 2)
    residual = pde_residual(Squared(), operator, draw(2, P), points, "autograd")
    weight = (2 / subdomain.size) ** 4
    assert weight == 256
    np.testing.assert_allclose(weight * residual.detach().square().mean(), 6.0**2, rtol=100 * EPS)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("name", ["sdnet", "mlp"])
def test_residuals_in_cubes_are_those_of_double_backward(name, symmetric):
    network = make(name, 3, depth=3, symmetric=symmetric, features=4, sigma=2.0)
    operator = UnitOperator((2.0, 1.0, 0.5), (0.5, -0.25, 1.0), -1.0)
    g, points = draw(3, 98), draw(5, 3).clamp(-2, 2) / 2.01
    by_layers, twice = (pde_residual(network, operator, g, points, way) for way in ("taylor", "autograd"))  # fmt: skip
    torch.testing.assert_close(by_layers, twice, rtol=1e-10, atol=1e-11)
