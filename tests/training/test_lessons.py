"""Networks that learn from rows of a dataset are trained as all others: each rank by its own rows."""

import copy
import time

import numpy as np
import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from mosaicdd.storage.samples import FileArray, MediaDataset
from mosaicdd.training.course import LESSONS, find_lesson
from mosaicdd.training.memory import kept_bytes, memory_plan
from mosaicdd.training.optimisers import TrainingDivergedError
from mosaicdd.training.rank_group import RankGroup
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings
from mosaicdd.training.trainer import Trainer

ANY = pytest.mark.ranks(1, 2, 3, 4, 6)
CASES = tuple(LESSONS)


@pytest.fixture
def make(lesson_data, small_networks):
    """Return a factory of trainers in float64."""

    def trainer(case, ranks=None, execution=None, **changes):
        ranks = ranks or RankGroup()
        how = {"batch_size": 13, "epochs": 3, "optimizer": "adamw", "precision": "float64"}
        settings = TrainingSettings(**how | changes)
        lesson = find_lesson(case)
        dataset = lesson.read(lesson_data(case))
        torch.manual_seed(0)
        network = lesson.build(case, small_networks[case], dataset)
        taught = lesson(network, lesson.part(dataset, ranks), settings, ranks)
        return Trainer(taught, settings, time.perf_counter(), ranks, execution)

    return trainer


def steps(trainer, first, last):
    for step in range(first, last):
        trainer.take_step(step / trainer.steps)


@ANY
@pytest.mark.parametrize("micro", [0, 3])
@pytest.mark.parametrize("case", CASES)
def test_the_gradient_of_a_step_is_that_of_one_process(gradients, make, ranks, case, micro):
    alone = make(case)
    together = make(case, ranks, ExecutionSettings(micro_batch=micro))
    (loss, expected), (other, result) = gradients(alone), gradients(together)
    eps = 1e-12  # sums of 13 samples in another order
    assert other["data_loss"] == pytest.approx(loss["data_loss"], rel=eps)
    for ours, theirs in zip(result, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=eps * theirs.abs().max() + 1e-15)
    reports = [trainer.validate(everywhere=True) for trainer in (alone, together)]
    for name, value in reports[0].figures.items():
        assert reports[1].figures[name] == pytest.approx(value, rel=1e-11)


@pytest.mark.ranks(2, 3, 6)
@pytest.mark.parametrize("case", CASES)
def test_a_step_makes_exactly_one_reduction(make, ranks, case, collectives):
    trainer, reduced = make(case, ranks, ExecutionSettings(micro_batch=2)), []

    def count(state, bucket):
        reduced.append(bucket.buffer().numel())
        return allreduce_hook(None, bucket)

    trainer.parallel.wrapper.register_comm_hook(None, count)
    weights = sum(p.numel() for p in trainer.parallel.objective.parameters())
    steps(trainer, 0, 2)  # in these the order of the buckets is settled
    before = collectives()
    steps(trainer, 2, 4)
    assert reduced == [weights] * 4
    assert collectives() - before == 2


@ANY
@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_continues_on_another_number_of_ranks(make, ranks, case):
    first, reference = make(case, ranks), make(case)
    first.keep_if_best(first.validate())
    steps(first, 0, 3)
    alone = make(case)
    alone.load_state(copy.deepcopy(first.state()))
    steps(alone, 3, 5)
    steps(reference, 0, 5)
    eps = 1e-7  # rounding, amplified by steps that divide by small numbers
    for ours, theirs in zip(
        alone.lesson.network.parameters(), reference.lesson.network.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=eps, atol=1e-9 + 1e-3 * eps)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("sharding", ["zero1", "fsdp"])
@pytest.mark.parametrize("case", CASES)
def test_steps_on_shards_give_the_weights_of_whole_ones(make, ranks, case, sharding):
    whole = make(case, ranks)
    sharded = make(case, ranks, ExecutionSettings(sharding=sharding))
    for trainer in (whole, sharded):
        steps(trainer, 0, 3)
    expected = whole.parallel.weights_state()
    for name, values in sharded.parallel.weights_state().items():
        torch.testing.assert_close(values, expected[name], rtol=0, atol=1e-6)
    best = sharded.validate()
    with sharded.parallel.whole_weights():
        card = sharded.lesson.card("x", best)
    assert card.validation


@ANY
@pytest.mark.parametrize("case", CASES)
def test_a_rank_reads_its_rows_alone(lesson_data, ranks, case, monkeypatch):
    lesson = find_lesson(case)
    dataset, read = lesson.read(lesson_data(case)), {}
    learned = len(dataset) - dataset.held_out

    def note(array, rows):
        first, last, _ = rows.indices(len(array))
        read.setdefault(array.name, []).extend(range(first, last))
        return there(array, rows)

    there = FileArray.__getitem__
    monkeypatch.setattr(FileArray, "__getitem__", note)
    lesson.part(dataset, ranks)
    mine = set(range(learned)[ranks.share(learned)])
    for rows in read.values():
        assert set(rows) & set(range(learned)) == mine
    assert "logarithm" in read


@ANY
def test_a_loss_that_is_not_finite_on_one_rank_ends_all_at_the_same_step(make, ranks):
    trainer = make("conductances", ranks)
    steps(trainer, 0, 1)
    if ranks.rank == ranks.size - 1:
        for values in trainer.lesson.tensors():
            values.fill_(float("nan"))
    with pytest.raises(TrainingDivergedError, match="at step 2 of"):
        steps(trainer, 1, 2)


@pytest.mark.parametrize("case", CASES)
def test_the_plan_of_a_dry_run_is_what_a_training_keeps(make, lesson_data, case):
    trainer = make(case)
    network, settings = trainer.lesson.network, trainer.settings
    lesson = type(trainer.lesson)
    dataset = lesson.read(lesson_data(case))
    (level,) = memory_plan(
        lesson, network, dataset, settings, trainer.execution, RankGroup(device=torch.device("cpu"))
    )
    (part,) = trainer.lesson.passes.draw(0, trainer.ranks, 0)
    silent = torch.zeros(5).double()
    kept = kept_bytes(lambda: trainer.parallel.objective(part, silent))
    assert level.activations == pytest.approx(kept, rel=0.05)
    held = sum(tensor.nbytes for tensor in trainer.lesson.tensors())
    # Of media some are too rough to be learned from, others are held out, and count besides.
    assert held < level.samples < 3 * held
    shared = memory_plan(lesson, network, dataset, settings, trainer.execution, RankGroup(0, 2))
    assert [entry.sharding for entry in shared] == ["none", "zero1", "fsdp"]
    assert shared[0].samples == pytest.approx(level.samples / 2, abs=1)


def test_rows_of_a_file_are_those_of_the_dataset(lesson_data):
    whole, there = (
        MediaDataset.read(lesson_data("conductances")),
        MediaDataset.read(lesson_data("conductances"), whole=False),
    )
    assert there.content_hash == whole.content_hash
    part, other = there.rows(slice(3, 7)), whole.rows(slice(3, 7))
    np.testing.assert_array_equal(part.source, other.source)
    assert part.kind == other.kind == whole.kind[3:7]
