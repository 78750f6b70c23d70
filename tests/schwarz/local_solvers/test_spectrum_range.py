"""The training range, and what is done outside of it."""

import numpy as np
import pytest
import torch

from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.fields.random_media import sample_closed_curve
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.lifting import Lifting
from mosaicdd.schwarz.local_solvers.loading import find_local_solver
from mosaicdd.schwarz.local_solvers.network_solver import GuardedSolver, SpectrumRange

KIND = {"device": torch.device("cpu"), "dtype": torch.float64}
SQUARE = Subdomain()


def perimeters(count, length, amplitude=1.0, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    rows = [
        sample_closed_curve(rng, 4 * SQUARE.cells, 2.0, length, amplitude, noise)
        for _ in range(count)
    ]
    return torch.from_numpy(np.stack(rows))


@pytest.mark.parametrize("name", ["laplace", "laplace-sdnet"])
def test_shipped_cards_state_the_range_and_training_data_are_in_it(name):
    solver = find_local_solver(name).as_trained()
    outside = solver.outside_range(**KIND)
    lengths = np.geomspace(*solver.card.hyperparameter_ranges["length_scale"], 2000)
    g = torch.cat([perimeters(1, length, noise=0.03, seed=i) for i, length in enumerate(lengths)])
    # 0.1 % of the training perimeters are above each of three limits; as many of 2000 others would
    # be 6 at most, and 20 is 5.7 standard deviations of that count away.
    assert outside(g).sum() <= 20


@pytest.mark.parametrize("name", ["laplace", "laplace-sdnet"])
def test_rougher_data_are_outside(name):
    outside = find_local_solver(name).as_trained().outside_range(**KIND)
    assert outside(perimeters(1000, 1.0, amplitude=0.0, noise=1.0)).float().mean() >= 0.3


def test_what_the_lifting_describes_is_inside_whatever_rounding_leaves():
    outside = find_local_solver("laplace").as_trained().outside_range(**KIND)
    y, x = SQUARE.perimeter.T / SQUARE.cells
    g = torch.from_numpy(np.stack([np.ones_like(x), 3 * x - y, x**2 - y**2, 0 * x]))
    assert not outside(g).any()


def test_limits_are_quantiles_of_the_training_shares():
    lifting = Lifting(LAPLACE.at(), SQUARE)
    g = perimeters(2000, 0.05)
    limits = SpectrumRange.of_remainders(lifting.split(g)[0])
    assert limits.frequencies == (8, 16, 32)
    assert limits.outside(g, lifting).sum() <= 3 * 2  # 0.1 % of 2000 above each of three


def test_a_guarded_network_is_exact_outside_and_the_network_inside():
    network, exact = (
        find_local_solver("laplace-sdnet").as_trained(),
        ExactSolver(LAPLACE.at(), SQUARE),
    )
    guarded = GuardedSolver(network)
    g = torch.cat([perimeters(20, 0.3), perimeters(20, 1.0, amplitude=0.0, noise=1.0)])
    outside = network.outside_range(**KIND)(g)
    assert 0 < outside.sum() < len(g)
    values = []
    for solver in (guarded, network, exact):
        values.append(torch.empty(len(g), 62, dtype=torch.float64))
        solver.plan(SQUARE.centre_lines, **KIND)(g, values[-1])
    mixed, by_network, by_exact = values
    np.testing.assert_array_equal(mixed[~outside], by_network[~outside])
    # The same products in batches of another size.
    np.testing.assert_allclose(mixed[outside], by_exact[outside], rtol=0, atol=1e-14)
    assert not guarded.linear


def test_a_card_without_a_range_is_said_to_be_one():
    network = find_local_solver("laplace").as_trained()
    network.training_range = None
    assert network.outside_range(**KIND) is None
    with pytest.raises(ValueError, match="states no range"):
        GuardedSolver(network)
