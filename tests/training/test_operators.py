"""Networks of operators: what they are trained on, its symmetries, and that they learn."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import mosaicdd as m
from mosaicdd.cli.train import train
from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.loading import find_network
from mosaicdd.local_solvers.networks.operator import MOMENTS
from mosaicdd.local_solvers.subdomain_graphs import AROUND
from mosaicdd.problems.discretisation.discrete import MediumSystem
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.fields.random_media import draw
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.training.operator_samples import samples_of, solve_squares, turned_field
from mosaicdd.training.settings import MediaSettings, TrainingSettings


@pytest.fixture(scope="module")
def media(tmp_path_factory):
    path = tmp_path_factory.mktemp("media") / "media.h5"
    m.generate(path, MediaSettings(samples=48, validation=0.25))
    return path


@pytest.fixture(scope="module")
def drawn():
    """Return logarithms and reactions of three media."""
    rng = np.random.default_rng(0)
    logarithm = np.stack([draw(rng, 49)[1] for _ in range(3)])
    reaction = rng.random((3, 49, 49)) * np.array([0.0, 0.1, 1.0])[:, None, None]
    return torch.from_numpy(logarithm).float(), torch.from_numpy(reaction).float()


def test_squares_are_solved_as_by_a_sparse_factorisation():
    rng, m = np.random.default_rng(0), 12
    a, c = np.exp(rng.standard_normal((m + 1, m + 1))), rng.random((m + 1, m + 1))
    medium = Medium({"a": Field("a", a), "c": Field("c", c)})
    system = MediumSystem(medium, Grid((m, m), 1.0))
    u, f = rng.standard_normal((2, m + 1, m + 1))
    u[1:-1, 1:-1] = 0
    expected = system.solve(system.right_hand_side(u, f)).reshape(m - 1, m - 1)
    nodes = slice(0, m + 1)
    k = medium.conductances(Grid((m, m), 1.0), (nodes, nodes))
    parts = (torch.from_numpy(one)[None] for one in (*k.along[::-1], k.reaction))
    edge, source = (torch.from_numpy(one)[..., None] for one in (u, f))
    found = solve_squares(*parts, edge, source)[0, 1:-1, 1:-1, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_what_is_to_be_learned_is_what_solutions_are(drawn):
    """With it, the lifting gives solutions that it was not made of: errors of the fit are 1e-5."""
    samples = samples_of(*drawn)
    data, sources = samples.errors()
    assert data.min() > 1e-6  # averages alone are off by 1e-3 at least
    nothing, none = samples.errors(samples.lacking)
    assert max(float(nothing.max()), float(none.max())) == 0.0
    # Constants are no part of what operators see.
    assert samples.lacking[..., :AROUND].sum(dim=2).abs().max() < 1e-3
    assert samples.traces.mean(dim=1).abs().max() < 1e-6
    assert sources.shape == (3, MOMENTS)


@pytest.mark.parametrize("element", range(8))
def test_images_of_media_have_the_images_of_their_operators(drawn, element):
    turned = samples_of(*(turned_field(one, element) for one in drawn))
    images = samples_of(*drawn).turned(element)
    for name in ("x", "y", "c", "loads"):
        mine, other = getattr(images, name), getattr(turned, name)
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    for one, other in zip(images.errors(), turned.errors(), strict=True):
        torch.testing.assert_close(one.sort()[0], other.sort()[0], rtol=0.02, atol=1e-6)


def test_a_network_learns_and_is_found_again(media, tmp_path):
    path = tmp_path / "model.h5"
    settings = TrainingSettings(epochs=40, batch_size=16, validations=4, clip=10.0)
    how = {"modes": 8, "filters": 4, "features": 2, "width": 16}
    best = m.train(media, path, settings, network="operator", network_settings=how).best
    assert best.error < 0.95 * best.plain
    model = find_network(str(path))
    assert model.card.validation["error"] == best.error
    with pytest.raises(ValueError, match="has no operator of its own"):
        model.as_trained()


def test_the_command_does_the_same(media, tmp_path):
    model = str(tmp_path / "model.h5")
    options = ["--network", "operator", "--epochs", "1", "--set", "modes=4", "--json"]
    trained = CliRunner().invoke(train, [str(media), "-o", model, *options])
    assert json.loads(trained.output)["model"] == model
    refused = CliRunner().invoke(
        train, [str(media), "-o", model, "--network", "operator", "--set", "modes=0"]
    )
    assert refused.exit_code == 2
    assert "modes" in refused.output
