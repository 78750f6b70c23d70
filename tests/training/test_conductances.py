"""Networks of conductances: their media, their gradient, and that they learn."""

import json
import re

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from drawn_data import generate_dataset

import mosaicdd as m
from mosaicdd.cli.generate import generate
from mosaicdd.cli.train import train
from mosaicdd.lattice.grid import Grid
from mosaicdd.local_solvers.loading import find_network
from mosaicdd.local_solvers.networks.conductances import (
    ConductanceNetwork,
    ConductanceSettings,
    LearnedRule,
)
from mosaicdd.local_solvers.upscaling import MARGIN
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.fields.random_media import KINDS, draw
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.storage.samples import MediaDataset
from mosaicdd.training.conductances import CoarseSolve, coarse_conductances
from mosaicdd.training.settings import GenerationSettings, MediaSettings, TrainingSettings


@pytest.fixture(scope="module")
def media(tmp_path_factory):
    path = tmp_path_factory.mktemp("media") / "media.h5"
    m.generate(path, MediaSettings(samples=40, validation=0.25))
    return path


def test_media_of_all_kinds_are_finite_and_depend_on_the_seed_alone():
    for kind in KINDS.values():
        values = [kind(np.random.default_rng(seed), 49) for seed in (1, 1, 2)]
        assert np.isfinite(values).all()
        np.testing.assert_array_equal(values[0], values[1])
        assert abs(values[0] - values[2]).max() > 0
    assert {draw(np.random.default_rng(seed), 20)[0] for seed in range(300)} == set(KINDS)


def test_the_training_sees_what_the_rule_makes(media):
    network = ConductanceNetwork(ConductanceSettings(filters=4, width=8))
    for part in (network.edges, network.cells):
        torch.nn.init.normal_(part.rest[-1].weight)
    logarithm = MediaDataset.read(media).logarithm[:1]
    a = np.exp(logarithm[0, MARGIN:-MARGIN, MARGIN:-MARGIN].astype(float))
    nodes = slice(0, len(a))
    grid = Grid((len(a) - 1, len(a) - 1), 1.0)
    fine = Medium({"a": Field("a", a)}).conductances(grid, (nodes, nodes))
    made = LearnedRule(network, 1e30)(fine)
    parts, _ = coarse_conductances(network, torch.from_numpy(logarithm))
    values = torch.cat([part.flatten(1) for part in parts], dim=1)
    expected = np.concatenate([one.ravel() for one in (*made.along[::-1], np.array(made.across))])
    # Two ways through logarithms in float32.
    np.testing.assert_allclose(values[0].detach().exp().numpy(), expected, rtol=1e-4)


def test_the_gradient_of_coarse_solutions_is_that_of_differences():
    torch.manual_seed(0)
    nodes = torch.arange(16).view(4, 4)
    pairs = (nodes[:, :-1], nodes[:, 1:]), (nodes[:-1], nodes[1:]), (nodes[:-1, :-1], nodes[1:, 1:])
    ends = torch.cat([torch.stack(pair).flatten(1) for pair in pairs], dim=1)
    u, b = torch.randn(2, 2, 3, 16, dtype=torch.float64)
    k = torch.rand(2, ends.shape[1], dtype=torch.float64) + 0.5
    assert torch.autograd.gradcheck(lambda k: CoarseSolve.apply(k, ends, u, b), k.requires_grad_())


def test_a_network_learns_and_is_found_again(media, tmp_path):
    path = tmp_path / "model.h5"
    settings = TrainingSettings(epochs=20, batch_size=10, validations=4, clip=10.0)
    how = {"filters": 4, "width": 8}
    best = m.train(media, path, settings, network="conductances", network_settings=how).best
    assert best.error < 0.95 * best.plain
    model = find_network(str(path))
    assert model.card.validation["error"] == best.error
    with pytest.raises(ValueError, match="has no operator of its own"):
        model.as_trained()


def test_the_commands_do_the_same(tmp_path):
    run, data, model = CliRunner(), str(tmp_path / "m.h5"), str(tmp_path / "model.h5")
    given = ["--media", "--pde", "diffusion", "--samples", "10", "--validation", "0.2", "--json"]
    made = run.invoke(generate, [data, *given])
    assert json.loads(made.output)["media"] == 10
    options = ["--network", "conductances", "--epochs", "1", "--batch-size", "4", "--json"]
    trained = run.invoke(train, [data, "-o", model, *options])
    assert json.loads(trained.output)["model"] == model
    refused = run.invoke(generate, [str(tmp_path / "n.h5"), "--media"])
    assert refused.exit_code == 2
    assert "add --pde diffusion" in refused.output


def test_a_training_that_diverges_ends_in_one_line_with_1(media, tmp_path, mosaicdd):
    # A step of 1e20, and exp() of what the network gives is infinite or 0.
    how = ["--network", "conductances", "--epochs", 3, "--batch-size", 10, "--lr", "1e20"]
    ended = mosaicdd("train", media, "-o", tmp_path / "model.h5", *how, "--optimizer", "adamw")
    assert ended.code == 1
    assert re.search(r"^Error: .* at step \d+ of 9; lower lr .*no checkpoint yet\n$", ended.err)
    assert not (tmp_path / "model.h5").exists()


def test_trainings_leave_the_generators_of_the_program_as_they_are(media, tmp_path):
    before, precision = torch.random.get_rng_state(), torch.get_float32_matmul_precision()
    settings = TrainingSettings(epochs=1, batch_size=10, validations=1)
    m.train(media, tmp_path / "a.h5", settings, network="conductances")
    data = generate_dataset(GenerationSettings(samples=40, windows=1, method="direct"))
    m.train(data, tmp_path / "b.h5", m.TrainingSettings(epochs=1, batch_size=18, precision="tf32"))
    find_network(str(tmp_path / "b.h5"))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.get_float32_matmul_precision() == precision
