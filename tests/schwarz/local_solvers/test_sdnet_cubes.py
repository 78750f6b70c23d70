"""The paper's network on cubes: convolutions that go on round edges, and the 48 symmetries of points and faces."""

import numpy as np
import pytest
import torch

from mosaicdd.networks.mlp import SDNetSettings
from mosaicdd.networks.network import Symmetry
from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.training.losses import UnitOperator, pde_residual

CUBE = Subdomain(4, axes=3)
P = len(CUBE.perimeter)
EPS = np.finfo(float).eps
SMALL = {
    "sdnet": {"channels": 2, "kernel": 3, "width": 8, "features": 4, "sigma": 2.0},
    "mlp": {"width": 8, "features": 4, "sigma": 2.0},
}


def network_of(name="sdnet", **settings):
    torch.manual_seed(0)
    return build_network(name, SMALL[name] | settings, CUBE).double()


def inputs(batch=3, points=5):
    torch.manual_seed(1)
    return torch.randn(batch, P).double(), 2 * torch.rand(points, 3).double() - 1


def test_symmetries_are_those_of_the_cube_and_points_are_folded_into_one_wedge():
    symmetry, (_, points) = Symmetry(P), inputs(points=50)
    matrices = symmetry.matrices.numpy()
    assert len(np.unique(matrices, axis=0)) == 48
    np.testing.assert_array_equal(np.linalg.det(matrices).round(), np.repeat([1, -1], 24))
    moved = CUBE.perimeter[symmetry.images] - 2
    np.testing.assert_array_equal(moved, (CUBE.perimeter - 2) @ matrices.transpose(0, 2, 1))
    fold = symmetry.fold(points, merge=False)
    assert (torch.diff(fold.canonical, prepend=torch.zeros(50, 1)) >= 0).all()
    back = torch.einsum("qij,qi->qj", symmetry.matrices[fold.element].double(), fold.canonical)
    torch.testing.assert_close(back, points, rtol=0, atol=0)
    canonical, directions, nodes = symmetry.locate(points)
    torch.testing.assert_close(canonical, fold.canonical, rtol=0, atol=0)
    torch.testing.assert_close(torch.einsum("kqi,qk->qi", directions, points), canonical)
    assert torch.equal(nodes, symmetry.images[fold.element])


@pytest.mark.parametrize("name", SMALL)
def test_every_symmetry_of_the_cube_commutes_with_a_symmetric_network(name):
    network, (g, points) = network_of(name), inputs()
    embedded = network.embed(g).unflatten(1, (-1, P))
    values = network(g, points)
    for matrix, image in zip(
        network.symmetry.matrices.double(), network.symmetry.images, strict=True
    ):
        moved = torch.empty_like(g)
        moved[:, image] = g  # (R g)(R p) = g(p)
        there = network.embed(moved).unflatten(1, (-1, P))[..., image]
        torch.testing.assert_close(there, embedded, rtol=0, atol=50 * EPS)
        torch.testing.assert_close(network(moved, points @ matrix.T), values, rtol=0, atol=50 * EPS)


def test_without_symmetry_kernels_and_points_are_as_they_are():
    network, (g, points) = network_of(symmetric=False), inputs()
    turned = g[:, Symmetry(P).images[1]]
    assert not torch.allclose(
        network(turned, points), network(g, points @ Symmetry(P).matrices[1].double())
    )
    weights = network.state_dict()
    network_of().load_state_dict(weights)  # files are alike


def test_a_convolution_of_a_face_goes_on_round_its_edges():
    """On nodes inside of a face it is the plain one; beside an edge it sees the next face, across the surface."""
    network = network_of(convolutions=1, channels=1, symmetric=False)
    layer = network.convolutions[0]
    field = torch.randn(5, 5, 5, dtype=torch.float64)
    z, y, x = CUBE.perimeter.T
    convolved = torch.empty(5, 5, 5, dtype=torch.float64)
    convolved[z, y, x] = layer(field[z, y, x][None, None])[0, 0]
    kernel, bias = layer.weight[0, 0], layer.bias[0]
    # From the face z = 4 beyond x = 4: down the face x = 4, that is to z = 3.
    beyond = torch.cat([field[4], field[3, :, 4:]], dim=1)
    for y in (1, 2, 3):
        for x in (1, 2, 3):
            expected = (kernel * beyond[y - 1 : y + 2, x - 1 : x + 2]).sum() + bias
            assert convolved[4, y, x].item() == pytest.approx(expected.item(), abs=20 * EPS)
    # A node on the edge has the mean of both faces, whose axes are (y, x) and (z, y).
    side = torch.cat([field[:, :, 4], field[4, :, 3][None]])
    for y in (1, 2, 3):
        one = (kernel * beyond[y - 1 : y + 2, 3:6]).sum()
        other = (kernel * side[3:6, y - 1 : y + 2]).sum()
        expected = (one + other) / 2 + bias
        assert convolved[4, y, 4].item() == pytest.approx(expected.item(), abs=20 * EPS)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("name", SMALL)
def test_both_steps_and_own_points_give_the_same_values(name, symmetric):
    network, (g, points) = network_of(name, symmetric=symmetric), inputs()
    values = network(g, points)
    own = points.expand(len(g), -1, -1)
    for where in (points, own):
        steps = network.apply_prepared(g, network.prepare(where))
        torch.testing.assert_close(steps, values, rtol=0, atol=50 * EPS)
    different = torch.stack([points.roll(i, dims=0) for i in range(len(g))])
    rolled = torch.stack([row.roll(i) for i, row in enumerate(values)])
    torch.testing.assert_close(network(g, different), rolled, rtol=0, atol=50 * EPS)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("name", SMALL)
def test_derivatives_through_the_layers_are_those_of_double_backward(name, symmetric):
    network, (g, points) = network_of(name, symmetric=symmetric, depth=3), inputs()
    operator = UnitOperator((2.0, 1.0, 0.5), (0.5, -0.25, 1.0), -1.0)
    taylor, autograd = (
        pde_residual(network, operator, g, points, way) for way in ("taylor", "autograd")
    )
    torch.testing.assert_close(taylor, autograd, rtol=1e-10, atol=1e-11)
    gradients = [
        torch.autograd.grad(residual.square().mean(), network.parameters())
        for residual in (taylor, autograd)
    ]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


def test_kernels_that_reach_beyond_the_next_face_are_refused():
    assert SDNetSettings(kernel=11)
    with pytest.raises(ValueError, match=r"a kernel of 11 .* cubes of 4 cells; take 9"):
        network_of(kernel=11)
