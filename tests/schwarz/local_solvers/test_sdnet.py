"""The paper's network: its split layer is a concatenation, its convolutions are circular."""

import numpy as np
import pytest
import torch

from mosaicdd.networks.mlp import SDNet, SDNetSettings

P = 32
EPS = np.finfo(float).eps


@pytest.fixture
def network():
    torch.manual_seed(0)
    return SDNet(P, SDNetSettings(channels=3, width=16, features=4, symmetric=False)).double()


def inputs(batch=5, points=7):
    torch.manual_seed(1)
    return torch.randn(batch, P).double(), 2 * torch.rand(points, 2).double() - 1


def test_the_split_layer_equals_the_concatenated_one(network):
    g, points = inputs()
    embedded, features = network.embed(g), network.features(points)
    rows = torch.cat(
        [embedded[:, None].expand(-1, len(points), -1), features[None].expand(len(g), -1, -1)],
        dim=-1,
    )  # (B, Q, C P + F): eq. 5
    weight = torch.cat([network.boundary_layer.weight, network.point_layer.weight], dim=1)
    joined = network.perceptron(rows @ weight.T + network.point_layer.bias).squeeze(-1)
    # 3 * 32 + 10 products of order one in another order; the layers after it do not amplify.
    torch.testing.assert_close(network(g, points), joined, rtol=0, atol=200 * EPS)


def test_the_convolutions_commute_with_a_shift_along_the_perimeter(network):
    g, _ = inputs()
    embedded = network.convolutions(g[:, None])
    shifted = network.convolutions(g.roll(5, dims=1)[:, None])
    torch.testing.assert_close(shifted, embedded.roll(5, dims=2), rtol=0, atol=50 * EPS)


def test_points_of_one_subdomain_each_give_the_shared_values(network):
    g, points = inputs()
    own = network(g, points.expand(len(g), -1, -1))
    torch.testing.assert_close(own, network(g, points), rtol=0, atol=50 * EPS)


def test_the_network_is_not_linear_in_the_perimeter(network):
    g, points = inputs()
    assert not torch.allclose(network(2 * g, points), 2 * network(g, points), rtol=1e-3)


def test_every_symmetry_of_the_square_commutes_with_a_symmetric_network():
    torch.manual_seed(0)
    network = SDNet(P, SDNetSettings(channels=3, width=16, features=4)).double()
    g, points = inputs()  # random points, none on a fold
    values = network(g, points)
    symmetry = network.symmetry
    for matrix, image in zip(symmetry.matrices.double(), symmetry.images, strict=True):
        moved = torch.empty_like(g)
        moved[:, image] = g  # (R g)(R p) = g(p)
        torch.testing.assert_close(network(moved, points @ matrix.T), values, rtol=0, atol=50 * EPS)


def test_own_and_shared_points_agree_in_a_symmetric_network():
    torch.manual_seed(0)
    network = SDNet(P, SDNetSettings(channels=3, width=16, features=4)).double()
    g, points = inputs()
    own = network(g, points.expand(len(g), -1, -1))
    torch.testing.assert_close(own, network(g, points), rtol=0, atol=50 * EPS)
    different = torch.stack([points.roll(i, dims=0) for i in range(len(g))])
    rolled = torch.stack([row.roll(i) for i, row in enumerate(network(g, points))])
    torch.testing.assert_close(network(g, different), rolled, rtol=0, atol=50 * EPS)


@pytest.mark.parametrize("wrong", [{"kernel": 4}, {"width": 0}, {"sigma": 0.0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="sdnet"):
        SDNetSettings(**wrong)
