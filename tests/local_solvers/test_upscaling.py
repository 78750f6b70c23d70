"""Media on a coarser grid: averages, the network of conductances, its symmetries and its range."""

import numpy as np
import pytest
import torch
from media import MEDIA

from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.networks.conductances import (
    ACROSS,
    ConductanceNetwork,
    ConductanceSettings,
    LearnedRule,
    roughness,
)
from mosaicdd.local_solvers.upscaling import MARGIN, CoarseMedium, averaged, restricted
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.operators.medium import Medium

SPACING = 1 / 64


def coarse(a, rule, part=None, c=0.0):
    grid = Grid(tuple(n - 1 for n in a.shape), SPACING)
    medium = CoarseMedium(Medium({"a": Field("a", a), "c": Field("c", c)}), grid, rule)
    nodes = medium.coarse_grid.nodes
    return medium.conductances(medium.coarse_grid, part or tuple(slice(0, n) for n in nodes))


@pytest.fixture(scope="module")
def network():
    """Return a network that says something: its last layers are zero at first."""
    torch.manual_seed(0)
    network = ConductanceNetwork(ConductanceSettings(filters=4, width=8))
    for part in (network.edges, network.cells):
        torch.nn.init.normal_(part.rest[-1].weight)
    return network


def random_medium(nodes=(65, 97)):
    return np.exp(np.random.default_rng(0).standard_normal(nodes))


def test_uniform_media_stay_what_they_are(network):
    for rule, share in ((averaged, 0.0), (LearnedRule(network, 1e9), ACROSS)):
        made = coarse(np.full((65, 97), 3.0), rule)
        # Logarithms are taken in float32.
        np.testing.assert_allclose(made.along[0], 3.0 * (1 - 2 * share), rtol=1e-6)
        np.testing.assert_allclose(made.along[1], 3.0 * (1 - 2 * share), rtol=1e-6)
        if share:
            np.testing.assert_allclose(made.across, 3.0 * share, rtol=1e-6)


def test_layers_are_averaged_in_series_and_in_parallel():
    layers = np.array([1.0, 1.0, 10.0, 10.0])
    per_cell = np.repeat(np.tile(layers, 16)[:, None], 64, axis=1)
    made = coarse_of_cells(per_cell)
    across, along = 4 / (1 / layers).sum(), layers.mean()
    np.testing.assert_allclose(made.along[0][:, 1:-1], across, rtol=1e-12)
    np.testing.assert_allclose(made.along[1][1:-1], along, rtol=1e-12)


def coarse_of_cells(a):
    medium = CoarseMedium(Medium({"a": Field("a", a)}), Grid(a.shape, SPACING), averaged)
    return medium.conductances(medium.coarse_grid, (slice(0, 17), slice(0, 17)))


def test_reactions_and_sources_are_shared_out_without_loss():
    values = np.zeros((4 * 5 + 1, 4 * 6 + 1))
    values[4:-4, 4:-4] = np.random.default_rng(0).standard_normal((13, 17))
    shared = restricted(np.pad(values, MARGIN))
    assert shared.shape == (6, 7)
    assert shared.sum() == pytest.approx(values.sum(), rel=1e-12)
    made = coarse(np.ones((65, 65)), averaged, c=2.0)
    np.testing.assert_allclose(made.reaction[1:-1, 1:-1], 16 * SPACING**2 * 2.0, rtol=1e-12)


@pytest.mark.parametrize("kind", MEDIA)
def test_any_network_makes_positive_conductances(network, kind):
    a = MEDIA[kind]((65, 97), np.random.default_rng(0))
    made = coarse(a, LearnedRule(network, 2.0))
    assert made.along[0].min() > 0
    assert made.along[1].min() > 0
    assert min(k.min() for k in made.across) >= 0


def test_the_network_has_the_symmetries_of_the_square(network):
    a, rule = random_medium(), LearnedRule(network, 1e9)
    made = coarse(a, rule)
    turned, flipped = coarse(a.T.copy(), rule), coarse(a[::-1].copy(), rule)
    close = {"rtol": 1e-5}  # float32, products in another order
    np.testing.assert_allclose(turned.along[1].T, made.along[0], **close)
    np.testing.assert_allclose(np.array(turned.across).swapaxes(1, 2), made.across, **close)
    np.testing.assert_allclose(flipped.along[1][::-1], made.along[1], **close)
    np.testing.assert_allclose(flipped.along[0][::-1], made.along[0], **close)
    np.testing.assert_allclose(np.array(flipped.across)[::-1, ::-1], made.across, **close)


@pytest.mark.parametrize("limit", [1e9, 0.8])
def test_a_part_is_that_of_the_whole(network, limit):
    a = random_medium((257, 97))
    part = slice(3, 60), slice(2, 22)
    whole = coarse(a, LearnedRule(network, limit)).part(*part)
    # One more node all around.
    wide = tuple(slice(p.start - 1, p.stop + 1) for p in part)
    made = coarse(a, LearnedRule(network, limit), wide)
    made = made.part(*(slice(1, p.stop - p.start + 1) for p in part))
    for values, expected in zip(
        (*made.along, made.across), (*whole.along, whole.across), strict=True
    ):
        np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_outside_of_its_range_the_network_is_the_average(network):
    a = random_medium()
    rule = LearnedRule(network, 0.01)
    made, plain = coarse(a, rule), coarse(a, averaged)
    np.testing.assert_allclose(made.along[1], plain.along[1])
    np.testing.assert_allclose(made.along[0], plain.along[0])
    assert not np.any(made.across)
    assert rule.outside == rule.asked > 0


@pytest.mark.parametrize("factor", [2.0, 10.0])
def test_the_roughness_is_the_step_between_neighbours(factor):
    """Conductances in turn differ by a factor, along both axes: that is the step, everywhere."""
    y, x = np.indices((37, 45))
    logarithm = torch.from_numpy(np.log(factor) * ((y + x) % 2)).float()[None]
    right, up = logarithm[:, :37, :44], logarithm[:, :36, :45]
    found = roughness(right, up)
    assert found.shape == (1, 7, 9)
    np.testing.assert_allclose(found, np.log(factor), rtol=1e-6)
    np.testing.assert_array_equal(roughness(0 * right, 0 * up), 0.0)


def test_a_part_of_a_medium_that_is_rough_is_averaged(network):
    a = np.ones((129, 129))
    a[:, 64:] = random_medium((129, 65))
    rule = LearnedRule(network, 0.1)
    made, plain = coarse(a, rule), coarse(a, averaged)
    assert 0 < rule.outside < rule.asked
    assert np.array(made.across)[:, :, :14].all()
    assert not np.array(made.across)[:, :, 18:].any()
    np.testing.assert_allclose(made.along[1][:, 18:], plain.along[1][:, 18:])


@pytest.mark.parametrize("axes", [1, 3])
def test_layers_of_a_line_and_of_a_box_are_averaged_in_series_and_in_parallel(axes):
    """Of cells that vary along x; a reaction is the coefficient times the larger squared spacing."""
    grid = Grid((64, 16, 16)[:axes][::-1], SPACING)  # 64 along x
    layers = np.array([1.0, 1.0, 10.0, 10.0])
    a = np.broadcast_to(np.tile(layers, 16), grid.shape)
    fields = {"a": Field("a", a.copy(), axes), "c": Field("c", 5.0, axes)}
    medium = CoarseMedium(Medium(fields), grid, averaged)
    nodes = medium.coarse_grid.nodes
    made = medium.conductances(medium.coarse_grid, tuple(slice(0, n) for n in nodes))
    inner = (slice(1, -1),) * axes
    np.testing.assert_allclose(made.along[-1][inner[1:]], 4 / (1 / layers).sum(), rtol=1e-12)
    for axis in range(axes - 1):
        np.testing.assert_allclose(made.along[axis][inner], layers.mean(), rtol=1e-12)
    np.testing.assert_allclose(made.reaction[inner], 5.0 * (4 * SPACING) ** 2, rtol=1e-12)
