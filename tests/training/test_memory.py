"""What saves memory: the same gradients from less that is kept."""

import sys
import time
from pathlib import Path

import pytest
import torch

from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings
from mosaicdd.training.trainer import Trainer

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from step_cost import kept_bytes


def make(dataset, name="sdnet", execution=None, **changes):
    given = {"batch_size": 40, "pde_weight": 1e-3, "collocation": 8, "precision": "float64"}
    settings = TrainingSettings(**given | changes)
    torch.manual_seed(0)
    network = build_network(name, {"width": 32, "depth": 4}, dataset.subdomain)
    return Trainer(network, dataset, settings, time.perf_counter(), execution=execution)


def gradients(trainer):
    trainer.parallel.backward(
        trainer.passes.draw(0, trainer.ranks, trainer.execution.micro_batch), [0.0, 0.0, 0.0]
    )
    return [p.grad.clone() for p in trainer.parallel.objective.weights()]


def kept(trainer, number):
    part = trainer.passes.draw(0, trainer.ranks, trainer.execution.micro_batch)[number]
    return kept_bytes(lambda: trainer.parallel.objective(part, torch.zeros(5).double()))


@pytest.mark.parametrize("name", ["sdnet", "mlp", "sdnet-concat"])
def test_recomputed_layers_give_the_same_gradients_from_fewer_bytes(small_dataset, name):
    plain = make(small_dataset, name)
    saving = make(small_dataset, name, ExecutionSettings(recompute=True))
    for ours, theirs in zip(gradients(saving), gradients(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=0)
    data, pde = ((kept(saving, n), kept(plain, n)) for n in (0, 1))
    assert data[0] < data[1]
    assert pde[0] < 0.75 * pde[1]  # hidden layers keep 4 streams instead of 11; the first one all


def test_micro_batches_keep_less_and_give_the_same_gradients(small_dataset):
    plain = make(small_dataset)
    saving = make(small_dataset, execution=ExecutionSettings(micro_batch=10))
    for ours, theirs in zip(gradients(saving), gradients(plain), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-15)
    assert kept(saving, 0) < 0.5 * kept(plain, 0)  # a quarter, and the weights


def test_a_network_that_cannot_recompute_is_refused(small_dataset):
    torch.manual_seed(0)
    network = build_network("linear", {}, small_dataset.subdomain)
    execution = ExecutionSettings(recompute=True)
    with pytest.raises(ValueError, match="cannot recompute"):
        Trainer(network, small_dataset, TrainingSettings(), 0.0, execution=execution)


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.05), ("tf32", 1e-2)])
def test_fewer_digits_change_the_loss_by_their_rounding(small_dataset, precision, tolerance):
    losses = []
    for chosen in ("float32", precision):
        trainer = make(small_dataset, precision=chosen, pde_weight=0.0)
        passes = trainer.passes.draw(0, trainer.ranks, 0)
        losses.append(trainer.parallel.backward(passes, [0.0, 0.0, 0.0])["data_loss"])
    torch.set_float32_matmul_precision("highest")
    # 8 or 10 bits of mantissa, in five layers.
    assert losses[1] == pytest.approx(losses[0], rel=tolerance)
    assert (losses[1] != losses[0]) == (precision == "bf16")  # a processor has no TF32
