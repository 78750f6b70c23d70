"""The network linear in the boundary: linearity, the symmetries of the square, merged points."""

import numpy as np
import pytest
import torch

from mosaicdd.networks.network import Symmetry
from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.networks.trunk import LinearNetwork, LinearSettings

SUBDOMAIN = Subdomain(cells=12)  # 2 / 12 is not a binary fraction: folding must bear rounding
P = 48
EPS = np.finfo(float).eps


@pytest.fixture
def network():
    torch.manual_seed(0)
    return LinearNetwork(P, LinearSettings(width=16, depth=2, features=8, sigma=3.0)).double()


def random_points(count):
    rng = np.random.default_rng(1)
    folds = [[0.0, 0.0], [0.3, 0.3], [0.0, -0.4], [-0.6, 0.6]]
    return torch.as_tensor(np.concatenate([rng.uniform(-1, 1, (count, 2)), folds]))


def test_the_values_are_linear_in_the_perimeter(network):
    points = random_points(9)
    first, second = torch.randn(2, 5, P, dtype=torch.float64)
    together = network(2.0 * first - 3.0 * second, points)
    parts = 2.0 * network(first, points) - 3.0 * network(second, points)
    # Sums of 48 products of unit size, each rounded once.
    np.testing.assert_allclose(together.detach(), parts.detach(), atol=2 * P * EPS)


def test_every_symmetry_of_the_square_commutes_with_the_network(network):
    symmetry = Symmetry(P)
    points = random_points(20)
    g = torch.randn(3, P, dtype=torch.float64)
    values = network(g, points)
    for matrix, image in zip(symmetry.matrices.double(), symmetry.images, strict=True):
        moved = torch.empty_like(g)
        moved[:, image] = g  # (R g)(R p) = g(p)
        rotated = network(moved, points @ matrix.T)
        np.testing.assert_allclose(rotated.detach(), values.detach(), atol=2 * P * EPS)


def test_the_images_are_the_eight_rigid_motions_of_the_perimeter():
    symmetry = Symmetry(P)
    nodes = SUBDOMAIN.perimeter - 6
    assert len({tuple(image) for image in symmetry.images.tolist()}) == 8
    for matrix, image in zip(symmetry.matrices.int().numpy(), symmetry.images, strict=True):
        np.testing.assert_array_equal(nodes[image], nodes @ matrix.T)


def test_merged_points_give_the_same_operator_from_an_eighth_of_the_trunk(network):
    points = torch.as_tensor(2.0 * SUBDOMAIN.interior / 12 - 1.0)
    fold = network.symmetry.fold(points)
    assert len(fold.canonical) == 21  # 6 * 7 / 2 nodes in the triangle, of 11 * 11
    merged, single = network.prepare(points), network.prepare(points[None])[0]
    # Images of a node differ by a rounding of the coordinates, times slopes of order sigma.
    np.testing.assert_allclose(merged.detach(), single.detach(), atol=1e3 * EPS)


def test_without_symmetry_the_trunk_sees_the_points_themselves():
    torch.manual_seed(0)
    network = build_network("linear", {"width": 8, "symmetric": False}, SUBDOMAIN)
    points = random_points(3).float()
    expected = network.trunk(points) @ network.branch
    torch.testing.assert_close(network.prepare(points), expected, rtol=0, atol=0)


def test_unknown_names_and_values_are_refused():
    for name, settings, message in (
        (
            "nothing",
            {},
            "unknown network 'nothing'; known: deeponet, faces, family, linear, mlp, sdnet",
        ),
        ("linear", {"wide": 3}, "no setting 'wide'"),
        ("linear", {"width": 2.5}, "must be int, got 2.5"),
        ("linear", {"width": True}, "must be int, got True"),
        ("linear", {"width": 0}, "width >= 1"),
    ):
        with pytest.raises(ValueError, match=message):
            build_network(name, settings, SUBDOMAIN)
