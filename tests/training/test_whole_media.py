"""Conductances are taught through the solve of whole media that ranks share: one rank's losses and gradients on any mesh."""

import copy
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from mosaicdd.parallel.ranks import Ranks
from mosaicdd.parallel.replicas import Replicas
from mosaicdd.schwarz.multigrid.flexible_gradients import FlexibleGradients
from mosaicdd.storage.samples import MediaDataset
from mosaicdd.training.memory import kept_bytes, memory_plan
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings
from mosaicdd.training.trainer import Trainer
from mosaicdd.training.whole_media import WholeMediaLesson

ANY = pytest.mark.ranks(1, 2, 3, 4, 6)
NETWORK = {"filters": 3, "width": 4}
DIMS = {1: (1, 1), 2: (1, 2), 3: (3, 1), 4: (2, 2), 6: (2, 3)}


@pytest.fixture
def media(lesson_data):
    return lesson_data("whole")


@pytest.fixture
def make(media):
    """Return a factory of trainers in float64, on a mesh of replicas and dims or alone."""

    def trainer(ranks=None, comm=None, **execution):
        ranks, dataset = ranks or RankGroup(), MediaDataset.read(media, whole=False)
        how = ExecutionSettings(**execution)
        if how.dims is not None:
            ranks = replace(ranks, mesh=Replicas(Ranks.of(comm), how.replicas, how.dims).ranks)
        settings = TrainingSettings(
            batch_size=2, epochs=20, optimizer="adamw", precision="float64", lr=1e-2
        )
        torch.manual_seed(0)
        network = WholeMediaLesson.build("conductances", NETWORK, dataset)
        for part in (network.edges, network.cells):
            torch.nn.init.normal_(part.rest[-1].weight, std=0.1)
        rows = WholeMediaLesson.part(dataset, ranks)
        lesson = WholeMediaLesson(network, rows, settings, ranks)
        return Trainer(lesson, settings, time.perf_counter(), ranks, how)

    return trainer


def losses(trainer, count):
    every = []
    for step in range(count):
        trainer.take_step(step / trainer.steps)
        every.append(trainer._signals["data_loss"])
    return every


@ANY
def test_the_gradient_over_ranks_is_that_of_one_rank(gradients, make, ranks, comm):
    alone, together = make(), make(ranks, comm, dims=DIMS[ranks.size])
    (loss, expected), (other, result) = gradients(alone, 1), gradients(together, 1)
    assert other["data_loss"] == pytest.approx(loss["data_loss"], rel=1e-10)
    for ours, theirs in zip(result, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9 * theirs.abs().max())
    reports = [trainer.validate(everywhere=True) for trainer in (alone, together)]
    cards = [t.lesson.card("x", r) for t, r in zip((alone, together), reports, strict=True)]
    for name, value in reports[0].figures.items():
        assert reports[1].figures[name] == pytest.approx(value, rel=1e-8)
    assert cards[0].ranges == cards[1].ranges
    assert cards[0].validation == pytest.approx(cards[1].validation, rel=1e-8)
    assert cards[1].cells == 96


def test_the_gradient_is_that_of_central_differences(make):
    trainer = make()
    (part, *_) = trainer.lesson.passes.draw(1, trainer.ranks, trainer.micro_batch)
    weights = trainer.parallel.objective.weights()
    slopes = torch.autograd.grad(trainer.lesson.loss(part), weights)
    rng, size = np.random.default_rng(0), 2e-3

    @torch.no_grad()
    def loss(flat, place, change):
        before = float(flat[place])
        flat[place] = before + change
        value = float(trainer.lesson.loss(part))
        flat[place] = before
        return value

    for number in rng.integers(len(weights), size=10):
        flat, slope = weights[number].data.view(-1), slopes[number].view(-1)
        place = int(slope.abs().argmax())
        near, far = (loss(flat, place, h) - loss(flat, place, -h) for h in (size, 2 * size))
        difference = (8 * near - far) / (12 * size)
        assert difference == pytest.approx(float(slope[place]), rel=1e-6)


MESHES = {
    1: [{"dims": (1, 1)}],
    2: [{"dims": (2, 1), "sharding": "fsdp"}, {"dims": (1, 2), "sharding": "zero1"}],
    4: [{"dims": (1, 2), "replicas": 2}, {"dims": (1, 2), "replicas": 2, "sharding": "hybrid"}],
}


@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize("number", [0, 1])
def test_losses_of_steps_are_those_of_one_rank(make, ranks, comm, number, by_one):
    if number >= len(MESHES[ranks.size]):
        pytest.skip("one mesh of one rank")
    expected = by_one(lambda: losses(make(), 3))
    together = losses(make(ranks, comm, **MESHES[ranks.size][number]), 3)
    np.testing.assert_allclose(together, expected, rtol=1e-7)


@pytest.mark.ranks(1, 2)
def test_a_step_makes_two_solves_for_each_problem(gradients, make, ranks, comm, monkeypatch):
    trainer, solves = make(ranks, comm, dims=DIMS[ranks.size]), []
    there = FlexibleGradients.__call__

    def count(gradients, *data):
        solves.append(1)
        return there(gradients, *data)

    monkeypatch.setattr(FlexibleGradients, "__call__", count)
    gradients(trainer, 1)
    media, problems = 2, 2
    assert len(solves) == 2 * problems * media


@pytest.mark.ranks(2)
def test_a_checkpoint_continues_on_another_mesh(make, ranks, comm, by_one):
    first = make(ranks, comm, dims=(1, 2))
    first.keep_if_best(first.validate())
    losses(first, 1)
    second = make(ranks)
    second.load_state(copy.deepcopy(first.state()))
    expected = by_one(lambda: losses(make(), 2))
    second.take_step(1 / second.steps)
    assert second._signals["data_loss"] == pytest.approx(expected[1], rel=1e-7)


@pytest.mark.ranks(2, 4)
def test_a_rank_reads_its_part_of_a_medium(media, ranks, comm):
    mesh = Ranks.of(comm, DIMS[comm.size])
    whole = MediaDataset.read(media, whole=False)
    rows = WholeMediaLesson.part(whole, replace(ranks, mesh=mesh))
    for axis, (count, place) in enumerate(zip(mesh.dims, mesh.coords, strict=True)):
        # Coarse nodes from the edge, of an inner rank from its first own one, and eight beside these.
        nodes = 25 if count == 1 else (11 + 1 + 8 if place == 0 else 8 + 12 + 1)
        assert rows.learned.solution.shape[2 + axis] == nodes
        assert rows.learned.logarithm.shape[1 + axis] == 4 * (nodes - 1) + 17


def test_the_plan_of_a_dry_run_is_what_a_pass_keeps(make, media):
    trainer, settings = make(), TrainingSettings(batch_size=2, precision="float64")
    dataset = MediaDataset.read(media, whole=False)
    network = trainer.lesson.network
    how = ExecutionSettings(micro_batch=1)
    (level,) = memory_plan(WholeMediaLesson, network, dataset, settings, how, RankGroup())
    (part, *_) = trainer.lesson.passes.draw(1, trainer.ranks, 1)
    assert level.activations == pytest.approx(
        kept_bytes(lambda: trainer.lesson.loss(part)), rel=0.3
    )
