"""Networks of squares and cubes: their symmetries, linearity and steps, the exact operator among what one can be."""

import itertools

import numpy as np
import pytest
import torch

from mosaicdd import EllipticOperator
from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.schwarz.local_solvers.exact import ExactSolver

# 2 / 12 is not a binary fraction: folds bear rounding.
SUBDOMAINS = {2: Subdomain(12), 3: Subdomain(4, axes=3)}
SMALL = {"width": 16, "features": 4, "sigma": 2.0}
CONVOLVED = SMALL | {"channels": 2, "kernel": 3}
EPS = np.finfo(float).eps
NETWORKS = {
    "linear": ("linear", SMALL, 2),
    "sdnet": ("sdnet", CONVOLVED, 2),
    "sdnet of cubes": ("sdnet", CONVOLVED, 3),
    "mlp": ("mlp", SMALL, 2),
    "mlp of cubes": ("mlp", SMALL, 3),
    "faces": ("faces", SMALL, 2),
    "faces of cubes": ("faces", SMALL, 3),
    "sdnet, concatenated": ("sdnet-concat", CONVOLVED, 2),
    "deeponet": ("deeponet", SMALL, 2),
    "linear, not symmetric": ("linear", SMALL | {"symmetric": False}, 2),
    "sdnet, not symmetric": ("sdnet", CONVOLVED | {"symmetric": False}, 2),
    "sdnet of cubes, not symmetric": ("sdnet", CONVOLVED | {"symmetric": False}, 3),
}
SYMMETRIC, ASYMMETRIC = list(NETWORKS)[:7], list(NETWORKS)[-3:]


def network_of(name):
    """Return a network of random weights, its subdomain, perimeters and points, some of them on folds."""
    of, settings, axes = NETWORKS[name]
    torch.manual_seed(0)
    network, rng = build_network(of, settings, SUBDOMAINS[axes]).double(), np.random.default_rng(1)
    folds = np.array([[0.0, 0.0, 0.0], [0.3, 0.3, 0.3], [0.0, -0.4, 0.4], [-0.6, 0.6, 0.2]])
    points = np.concatenate([rng.uniform(-1, 1, (5, axes)), folds[:, :axes]])
    g = rng.standard_normal((3, len(SUBDOMAINS[axes].perimeter)))
    return network, SUBDOMAINS[axes], torch.from_numpy(g), torch.from_numpy(points)


def moved(subdomain, g, points):
    """Yield perimeters and points as each symmetry of the square or the cube moves them."""
    around, m, axes = subdomain.perimeter, subdomain.cells, subdomain.axes
    number = np.zeros((m + 1,) * axes, int)
    number[tuple(around.T)] = np.arange(len(around))
    signs = itertools.product((1, -1), repeat=axes)
    for order, sign in itertools.product(itertools.permutations(range(axes)), [*signs]):
        turned = np.where(np.array(sign) > 0, around[:, order], m - around[:, order])
        there = torch.empty_like(g)
        there[:, number[tuple(turned.T)]] = g
        yield there, points[:, list(order)] * torch.tensor(sign)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_every_symmetry_of_the_subdomain_commutes_with_a_symmetric_network(name):
    network, subdomain, g, points = network_of(name)
    values, images = network(g, points), [*moved(subdomain, g, points[:5])]
    assert len(images) == {2: 8, 3: 48}[subdomain.axes]
    for image in images:
        torch.testing.assert_close(network(*image), values[:, :5], rtol=0, atol=200 * EPS)


@pytest.mark.parametrize("name", ASYMMETRIC)
def test_without_symmetry_they_do_not_and_files_are_alike(name):
    network, subdomain, g, points = network_of(name)
    off = [abs(network(*image) - network(g, points)).max() for image in moved(subdomain, g, points)]
    assert sorted(off)[1] > 1e-6
    network_of(name.partition(",")[0])[0].load_state_dict(network.state_dict())


@pytest.mark.parametrize("name", NETWORKS)
def test_both_steps_and_points_for_each_perimeter_give_the_same_values(name):
    network, _, g, points = network_of(name)
    values = network(g, points)
    for where in (points, points.expand(len(g), -1, -1)):
        steps = network.apply_prepared(g, network.prepare(where))
        torch.testing.assert_close(steps, values, rtol=0, atol=300 * EPS)
    different = torch.stack([points.roll(i, dims=0) for i in range(len(g))])
    rolled = torch.stack([row.roll(i) for i, row in enumerate(values)])
    torch.testing.assert_close(network(g, different), rolled, rtol=0, atol=300 * EPS)


@pytest.mark.parametrize("name", NETWORKS)
def test_those_that_say_so_are_linear_in_the_perimeter_and_others_are_not(name):
    network, _, g, points = network_of(name)
    combined = network(2.0 * g - 3.0 * g.flip(0), points)
    parts = 2.0 * network(g, points) - 3.0 * network(g.flip(0), points)
    assert torch.allclose(combined, parts, rtol=1e-9, atol=300 * EPS) == network.linear


@pytest.mark.parametrize("axes", [2, 3])
def test_corners_and_edges_never_count_for_a_network_of_faces(axes):
    network, subdomain, _, points = network_of("faces" if axes == 2 else "faces of cubes")
    rows = network.prepare(points[:3])
    ends = ((subdomain.perimeter == 0) | (subdomain.perimeter == subdomain.cells)).sum(axis=1)
    assert not rows[:, ends > 1].any()
    assert rows[:, ends == 1].all()


@pytest.mark.parametrize("subdomain", [Subdomain(8), Subdomain(6, axes=3)], ids=["square", "cube"])
@pytest.mark.parametrize("c", [0.0, 20.0])
def test_the_exact_operator_is_one_that_a_network_of_faces_can_be(faces_network, subdomain, c):
    """Whose waves fade as solutions of the difference equation do."""
    network, points = faces_network(subdomain, c=c), subdomain.interior
    exact = ExactSolver(EllipticOperator(c=c), subdomain).matrix[tuple(points.T)]
    rows = network.prepare(torch.as_tensor(2.0 * points / subdomain.cells - 1.0))
    np.testing.assert_allclose(rows.detach(), exact, rtol=0, atol=1e-9)


def test_a_convolution_of_a_face_goes_on_round_its_edges():
    """On nodes inside of a face it is the plain one; beside an edge it sees the next face, across the surface."""
    cube = SUBDOMAINS[3]
    network = build_network(
        "sdnet", CONVOLVED | {"convolutions": 1, "channels": 1, "symmetric": False}, cube
    ).double()
    layer, field = network.convolutions[0], torch.randn(5, 5, 5, dtype=torch.float64)
    z, y, x = cube.perimeter.T
    convolved = torch.empty(5, 5, 5, dtype=torch.float64)
    convolved[z, y, x] = layer(field[z, y, x][None, None])[0, 0]
    kernel, bias = layer.weight[0, 0], layer.bias[0]
    # From the face z = 4 beyond x = 4: down the face x = 4, that is to z = 3.
    beyond = torch.cat([field[4], field[3, :, 4:]], dim=1)
    side = torch.cat([field[:, :, 4], field[4, :, 3][None]])
    for y, x in itertools.product((1, 2, 3), (1, 2, 3, 4)):
        expected = (kernel * beyond[y - 1 : y + 2, x - 1 : x + 2]).sum()
        if x == 4:  # on the edge, the mean of both faces, whose axes are (y, x) and (z, y)
            expected = (expected + (kernel * side[3:6, y - 1 : y + 2]).sum()) / 2
        assert convolved[4, y, x].item() == pytest.approx((expected + bias).item(), abs=20 * EPS)


@pytest.mark.parametrize(
    ("name", "settings", "axes", "message"),
    [
        ("nothing", {}, 2, "unknown network 'nothing'; known: deeponet, faces, family, linear, mlp, sdnet"),
        ("linear", {"wide": 3}, 2, "no setting 'wide'"),
        ("linear", {"width": 2.5}, 2, "must be int, got 2.5"),
        ("linear", {"width": True}, 2, "must be int, got True"),
        ("linear", {"width": 0}, 2, "width >= 1"),
        ("sdnet", {"kernel": 4}, 2, "sdnet"),
        ("sdnet", {"sigma": 0.0}, 2, "sdnet"),
        ("sdnet", {"kernel": 11}, 3, r"a kernel of 11 .* cubes of 4 cells; take 9"),
        *((name, {}, 3, "is not for cubes of 4x4x4 cells; for these take sdnet, mlp, faces")
          for name in ("linear", "sdnet-concat", "deeponet", "family")),
    ],
)  # fmt: skip
def test_unknown_names_and_values_are_refused(name, settings, axes, message):
    with pytest.raises(ValueError, match=message):
        build_network(name, settings, SUBDOMAINS[axes])


@pytest.mark.parametrize(("cells", "size"), [(5, 0.5), (0, 0.5), (8, 0.0), (8, np.nan)])
def test_an_impossible_subdomain_is_refused(cells, size):
    with pytest.raises(ValueError, match="subdomain"):
        Subdomain(cells, size)
