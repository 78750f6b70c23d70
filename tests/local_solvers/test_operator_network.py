"""Operators of subdomains: their graphs, the channels they are made of, and what they keep exactly."""

import numpy as np
import pytest
import torch

from mosaicdd.lattice.perimeter import square_perimeter
from mosaicdd.local_solvers.networks.operator import (
    SEEN,
    OperatorNetwork,
    OperatorSettings,
    place,
    roughness,
)
from mosaicdd.local_solvers.subdomain_graphs import AROUND, CELLS, INSIDE, SubdomainGraphs
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO, restricted
from mosaicdd.problems.operators.conductances import Conductances

SIDE = RATIO * (CELLS + 2 * SEEN)


@pytest.fixture(scope="module")
def network():
    """Return a network that says something: its modes are zero at first."""
    torch.manual_seed(0)
    network = OperatorNetwork(OperatorSettings(modes=3, filters=4, features=2, width=8))
    torch.nn.init.normal_(network.modes, std=0.1)
    torch.nn.init.normal_(network.uniform, std=0.01)
    return network


def medium(rows=SIDE, columns=SIDE, c=0.0, seed=0):
    rng = np.random.default_rng(seed)
    up, right = np.exp(rng.standard_normal((rows, columns + 1))), rng.random((rows + 1, columns))
    return Conductances((up, right + 0.1), c * rng.random((rows + 1, columns + 1)))


def test_graphs_solve_the_equation_of_their_conductances():
    rng = np.random.default_rng(0)
    up, right, reaction = rng.random((8, 9)) + 0.1, rng.random((9, 8)) + 0.1, rng.random((9, 9))
    graphs = SubdomainGraphs(*(torch.from_numpy(one)[None] for one in (right, up, reaction)))
    matrix = Conductances((up, right), reaction).matrix().toarray()
    np.testing.assert_allclose(graphs.inverse[0].numpy() @ matrix, np.eye(INSIDE), atol=1e-12)
    u = rng.standard_normal((9, 9))
    u[1:-1, 1:-1] = 0
    g = u[tuple(square_perimeter(CELLS).T)]
    inside = np.linalg.solve(matrix, -Conductances((up, right), reaction).apply(u).ravel())
    np.testing.assert_allclose(graphs.operator()[0].numpy() @ g, inside, atol=1e-12)


def test_a_channel_that_is_absent_adds_nothing(network):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, SIDE + 1, SIDE, generator=generator)
    y = torch.randn(1, SIDE, SIDE + 1, generator=generator)
    c = torch.zeros(1, SIDE + 1, SIDE + 1)
    without = network.encode({"x": x, "y": y})
    torch.testing.assert_close(network.encode({"x": x, "y": y, "c": c}), without)
    assert (network.encode({"x": x, "y": y, "c": c + 1}) - without).abs().max() > 1e-4


def test_the_medium_is_seen_once_whatever_overlaps(network):
    """A convolution over all of it says what one over each subdomain's part does."""
    generator = torch.Generator().manual_seed(0)
    half, side = RATIO * CELLS // 2, SIDE
    x = torch.randn(1, side + half + 1, side + 2 * half, generator=generator)
    y = torch.randn(1, side + half, side + 2 * half + 1, generator=generator)
    whole = network.encode({"x": x, "y": y})
    assert whole.shape[1:3] == (2, 3)
    for i, j in np.ndindex(2, 3):
        rows, columns = (slice(half * k, half * k + side) for k in (i, j))
        more = [slice(one.start, one.stop + 1) for one in (rows, columns)]
        part = {"x": x[:, more[0], columns], "y": y[:, rows, more[1]]}
        torch.testing.assert_close(
            network.encode(part)[0, 0, 0], whole[0, i, j], rtol=1e-4, atol=1e-6
        )


def test_uniform_media_and_other_units_change_nothing(network):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, SIDE + 1, SIDE, generator=generator)
    y = torch.randn(1, SIDE, SIDE + 1, generator=generator)
    assert network.encode({"x": 0 * x + 1, "y": 0 * y + 1}).abs().max() < 1e-5
    more = network.encode({"x": x + 3, "y": y + 3})
    torch.testing.assert_close(more, network.encode({"x": x, "y": y}), rtol=1e-3, atol=1e-4)
    a = medium()
    tenfold = Conductances(tuple(10 * k for k in a.along), a.reaction)
    (g, f), (other_g, other_f) = (network.operators(one) for one in (a, tenfold))
    torch.testing.assert_close(other_g, g, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(10 * other_f, f, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("c", [0.0, 0.1])
def test_constants_solve_their_equation_whatever_the_weights(network, c):
    a = medium(c=c)
    points = torch.cartesian_prod(torch.arange(1, CELLS), torch.arange(1, CELLS))
    cut = slice(RATIO * SEEN - MARGIN, MARGIN - RATIO * SEEN)
    f = restricted(a.reaction[cut, cut])[1:-1, 1:-1].reshape(1, -1)  # c times 1
    u = network(torch.ones(1, AROUND), points, a, torch.from_numpy(f))
    np.testing.assert_allclose(u.detach(), 1.0, atol=1e-10)


def test_it_is_linear_in_data_and_sources(network):
    a, points = medium(c=0.1), torch.tensor([[4, 4], [1, 7], [3, 2]])
    generator = torch.Generator().manual_seed(1)
    g = torch.randn(2, 1, AROUND, generator=generator, dtype=torch.float64)
    f = torch.randn(2, 1, INSIDE, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        one, other = (network(g[i], points, a, f[i]) for i in (0, 1))
        both = network(2 * g[0] - g[1], points, a, 2 * f[0] - f[1])
    torch.testing.assert_close(both, 2 * one - other, atol=1e-10, rtol=1e-10)
    assert place(points).tolist() == [24, 6, 15]


@pytest.mark.parametrize("factor", [2.0, 10.0])
def test_the_roughness_is_the_step_between_neighbours(factor):
    y, x = np.indices((SIDE + 1, SIDE + 1))
    logarithm = torch.from_numpy(np.log(factor) * ((y + x) % 2)).float()[None]
    found = roughness(logarithm[:, :, :-1], logarithm[:, :-1])
    assert found.shape == (1, 1, 1)
    np.testing.assert_allclose(found, np.log(factor), rtol=1e-4)  # a mean of 1000 in float32
