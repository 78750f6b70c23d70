"""Training on ranks: the same gradients and losses as in one process, the gradient reduced once a step."""

import copy

import pytest
import torch
from drawn_data import trainer_of
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from mosaicdd import ExecutionSettings
from mosaicdd.parallel.launcher import Watch
from mosaicdd.training.objective import RankGroup
from mosaicdd.training.optimisers import TrainingDivergedError

pytestmark = pytest.mark.ranks(1, 2, 4)
ANY = pytest.mark.ranks(1, 2, 3, 4, 6)

SMALL = {
    "linear": {"width": 8, "features": 4},
    "sdnet": {"width": 8, "channels": 2},
    "deeponet": {"width": 8, "features": 4},
}
# 61 samples in a batch: no number of ranks but 1 divides it.
SETTINGS = {
    "epochs": 2,
    "batch_size": 61,
    "optimizer": "adamw",
    "pde_weight": 1e-3,
    "collocation": 6,
    "precision": "float64",
    "validations": 4,
}


def make(dataset, name="sdnet", ranks=None, execution=None, **changes):
    given = SETTINGS | changes
    return trainer_of(dataset, name, SMALL[name], ranks=ranks, execution=execution, **given)


@ANY
@pytest.mark.parametrize(
    ("name", "changes", "micro"),
    [
        ("linear", {}, 0),
        ("sdnet", {}, 0),
        ("sdnet", {"points": 5}, 7),
        ("deeponet", {"laplacian": "autograd"}, 0),
        ("sdnet", {"residual": "discrete"}, 0),
        ("deeponet", {"labels": False}, 0),
        ("sdnet", {"pde_weight": 0.0}, 4),
        ("sdnet", {"batch_size": 7}, 1),  # on 3, 4 and 6 ranks some have two samples
    ],
)
def test_the_gradient_of_a_step_is_that_of_one_process(
    gradients, small_dataset, ranks, name, changes, micro
):
    execution = ExecutionSettings(micro_batch=micro)
    expected = gradients(make(small_dataset, name, **changes))
    result = gradients(make(small_dataset, name, ranks, execution, **changes))
    for term in ("data_loss", "pde_loss"):
        assert result[0][term] == pytest.approx(expected[0][term], rel=1e-12)
    for ours, theirs in zip(result[1], expected[1], strict=True):
        if theirs is None:
            assert ours is None or not ours.any()
        else:
            # Sums of 61 samples in another order: a few eps of the largest gradient.
            torch.testing.assert_close(
                ours, theirs, rtol=0, atol=1e-12 * theirs.abs().max() + 1e-15
            )


@ANY
def test_a_step_reduces_its_gradient_exactly_once(small_dataset, ranks):
    if ranks.size == 1:
        pytest.skip("one process reduces nothing")
    trainer = make(small_dataset, ranks=ranks, execution=ExecutionSettings(micro_batch=5))
    reduced = []

    def count(state, bucket):
        reduced.append(bucket.buffer().numel())
        return allreduce_hook(None, bucket)

    trainer.parallel.module.register_comm_hook(None, count)
    weights = sum(p.numel() for p in trainer.parallel.objective.parameters())
    for _ in range(3):
        trainer.take_step(0.5)
    assert reduced == [weights] * 3


def test_a_step_communicates_its_losses_and_the_clock_beside(small_dataset, ranks, collectives):
    if ranks.size == 1:
        pytest.skip("one process reduces nothing")
    trainer = make(small_dataset, ranks=ranks)
    for _ in range(2):  # in these the order of the buckets is settled
        trainer.take_step(0.5)
    before = collectives()
    for _ in range(3):
        trainer.take_step(0.5)
    assert collectives() - before == 2 * 3


# Not SOAP: while its factors lack rank it works in a basis that rounding chooses.
@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "muon"])
def test_losses_and_errors_are_those_of_one_process(small_dataset, ranks, optimizer):
    curves = []
    for group in (None, ranks):
        reports = []
        make(small_dataset, ranks=group, optimizer=optimizer).run(reports.append)
        curves.append(reports)
    assert len(curves[0]) == len(curves[1]) > 3
    for alone, together in zip(*curves, strict=True):
        assert together.step == alone.step
        # Rounding of 1e-16, amplified by a few steps of an optimiser that divides by small numbers.
        assert together.validation_mse == pytest.approx(alone.validation_mse, rel=1e-7)
        assert together.data_loss == pytest.approx(alone.data_loss, rel=1e-7, nan_ok=True)
        assert together.pde_loss == pytest.approx(alone.pde_loss, rel=1e-7, nan_ok=True)


@ANY
def test_all_ranks_stop_after_the_step_in_which_one_was_interrupted(small_dataset, ranks):
    saved = []
    watch = Watch(lambda state, step: saved.append(step))
    trainer = make(small_dataset, ranks=ranks)

    def interrupt(report):
        if report.step and ranks.rank == ranks.size - 1:
            watch.interrupt()

    assert not trainer.run(interrupt, watch)
    steps = ranks.sum([float(trainer.step)])[0]
    assert steps == trainer.step * ranks.size
    assert 0 < trainer.step < trainer.steps
    assert saved == ([trainer.step] if ranks.is_root else [])


@ANY
def test_a_checkpoint_continues_on_another_number_of_ranks(small_dataset, ranks):
    whole = make(small_dataset, optimizer="lamb")
    whole.run(None)
    first = make(small_dataset, ranks=ranks, optimizer="lamb")
    for step in range(4):
        first.take_step(step / first.steps)
    first.keep_if_best(whole.best)
    state = copy.deepcopy(first.state())
    alone = make(small_dataset, optimizer="lamb")
    alone.load_state(state)
    assert alone.step == 4
    reference = make(small_dataset, optimizer="lamb")
    for step in range(6):
        reference.take_step(step / reference.steps)
    for step in (4, 5):
        alone.take_step(step / alone.steps)
    for ours, theirs in zip(
        alone.lesson.network.parameters(), reference.lesson.network.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)


@ANY
def test_a_loss_that_is_not_finite_on_one_rank_ends_all_at_the_same_step(small_dataset, ranks):
    trainer = make(small_dataset, ranks=ranks)
    trainer.take_step(0.1)
    mine = trainer.lesson.batches.indices(1)[ranks.share(61)]
    if ranks.rank == ranks.size - 1:
        trainer.lesson.samples.target[mine[0]] = float("nan")
    with pytest.raises(TrainingDivergedError, match="at step 2 of"):
        trainer.take_step(0.2)


def test_shares_cover_all_and_differ_by_one_at_most():
    for size in (1, 2, 3, 7):
        parts = [RankGroup(rank, size).share(61) for rank in range(size)]
        assert [i for part in parts for i in range(61)[part]] == list(range(61))
        assert max(len(range(61)[p]) for p in parts) - min(len(range(61)[p]) for p in parts) <= 1


def test_an_error_of_one_rank_is_raised_on_all(ranks):
    def fail():
        if ranks.rank == ranks.size - 1:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        ranks.agreed(fail)


def test_more_ranks_than_samples_in_a_batch_are_refused(small_dataset):
    with pytest.raises(ValueError, match=r"a batch of 3 samples .* between 4 ranks"):
        make(small_dataset, ranks=RankGroup(0, 4), batch_size=3)
