"""Sharded state and weights: the same training as with whole ones, in less memory per rank."""

import copy

import pytest
import torch
from drawn_data import trainer_of
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

from mosaicdd import ExecutionSettings, TrainingSettings

STEPS = 20


def make(dataset, ranks, sharding="none", replicas=1, micro_batch=0, **changes):
    given = {"epochs": 10, "batch_size": 60, "optimizer": "adamw", "pde_weight": 1e-3, "clip": 1.0}
    given |= {"collocation": 6, "precision": "float64"} | changes
    execution = ExecutionSettings(micro_batch=micro_batch, sharding=sharding, replicas=replicas)
    network = {"width": 32, "channels": 2}
    return trainer_of(dataset, "sdnet", network, ranks=ranks, execution=execution, **given)


def train(trainer, start=0, stop=STEPS):
    for step in range(start, stop):
        trainer.take_step(step / trainer.steps)
    return trainer.parallel.weights_state()


def held(tensors):
    """Return the bytes of tensors on this rank."""
    local = (t.to_local() if isinstance(t, DTensor) else t for t in tensors)
    return sum(t.numel() * t.element_size() for t in local if t.ndim)


def optimiser_bytes(trainer):
    optimiser = trainer.optimiser
    inner = optimiser.optim if isinstance(optimiser, ZeroRedundancyOptimizer) else optimiser
    values = (v for state in inner.state.values() for v in state.values())
    flat = (t for v in values for t in (v if isinstance(v, list) else [v]))
    return held(t for t in flat if isinstance(t, torch.Tensor))


def weight_bytes(trainer):
    return held(trainer.parallel.objective.weights())


CASES = [
    pytest.param("zero1", 1, "adamw", marks=pytest.mark.ranks(2)),
    pytest.param("zero1", 1, "lamb", marks=pytest.mark.ranks(2)),
    pytest.param("zero1", 1, "soap", marks=pytest.mark.ranks(2)),
    pytest.param("fsdp", 1, "adamw", marks=pytest.mark.ranks(2)),
    pytest.param("fsdp", 1, "lamb", marks=pytest.mark.ranks(2)),
    pytest.param("hybrid", 2, "adamw", marks=pytest.mark.ranks(4)),
]


@pytest.mark.parametrize(("sharding", "replicas", "optimizer"), CASES)
def test_twenty_steps_on_shards_give_the_weights_of_whole_ones(
    small_dataset, ranks, sharding, replicas, optimizer
):
    whole = make(small_dataset, ranks, optimizer=optimizer)
    expected = copy.deepcopy(train(whole))
    sharded = make(small_dataset, ranks, sharding, replicas, optimizer=optimizer)
    result = train(sharded)
    for name, values in expected.items():
        torch.testing.assert_close(result[name], values, rtol=0, atol=1e-6)
    shards = ranks.size // replicas
    # Whole weights go to the ranks of ZeRO, rows to those of FSDP; some are few or indivisible.
    share = {"soap": 0.4}.get(optimizer, 0.15)  # SOAP's factors go by the square of a side
    assert optimiser_bytes(sharded) == pytest.approx(optimiser_bytes(whole) / shards, rel=share)
    if sharding == "zero1":
        assert weight_bytes(sharded) == weight_bytes(whole)
    else:
        assert weight_bytes(sharded) == pytest.approx(weight_bytes(whole) / shards, rel=0.15)


@pytest.mark.ranks(2, 3)
def test_ranks_with_shares_of_different_size_make_the_same_number_of_passes(small_dataset, ranks):
    # Of 61 samples some ranks have one more, and that one would be a pass of its own.
    uneven = {"batch_size": 61, "micro_batch": 61 // ranks.size}
    expected = copy.deepcopy(train(make(small_dataset, ranks, **uneven), stop=2))
    result = train(make(small_dataset, ranks, "fsdp", **uneven), stop=2)
    for name, values in expected.items():
        torch.testing.assert_close(result[name], values, rtol=0, atol=1e-9)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("sharding", ["zero1", "fsdp"])
def test_a_sharded_training_continues_from_its_checkpoint(small_dataset, ranks, sharding):
    expected = copy.deepcopy(train(make(small_dataset, ranks, sharding)))
    first = make(small_dataset, ranks, sharding)
    first.keep_if_best(first.validate(everywhere=True))
    train(first, stop=12)
    # As a checkpoint does it: written by rank 0, read by all.
    state = [copy.deepcopy(first.state())]
    torch.distributed.broadcast_object_list(state, src=0)
    second = make(small_dataset, ranks, sharding)
    second.load_state(state[0])
    assert second.step == 12
    result = train(second, start=12)
    for name, values in expected.items():
        torch.testing.assert_close(result[name], values, rtol=0, atol=1e-9)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("sharding", ["zero1", "fsdp"])
def test_errors_of_validation_are_those_of_whole_weights(small_dataset, ranks, sharding):
    reports = [
        trainer.validate(everywhere=True)
        for trainer in (make(small_dataset, ranks), make(small_dataset, ranks, sharding))
    ]
    assert reports[0].validation_mse == pytest.approx(reports[1].validation_mse, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "ranks", "message"),
    [
        ({"sharding": "fsdp"}, 2, "the optimiser soap cannot work with sharding fsdp"),
        ({"sharding": "hybrid", "replicas": 2}, 2, "leaves 1 ranks for each"),
        ({"sharding": "zero1"}, 1, "there is 1; start several"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(changes, ranks, message):
    optimizer = "adamw" if changes["sharding"] == "hybrid" else "soap"
    with pytest.raises(ValueError, match=message):
        ExecutionSettings(**changes).require_ranks(
            ranks, TrainingSettings(optimizer=optimizer), 100
        )


@pytest.mark.parametrize(
    "changes", [{"sharding": "all"}, {"micro_batch": -1}, {"bucket_cap_mb": 0.0}, {"replicas": 0}]
)
def test_impossible_settings_are_refused(changes):
    with pytest.raises(
        ValueError, match=r"unknown sharding|must be (0 or more|positive|at least 1)"
    ):
        ExecutionSettings(**changes)
