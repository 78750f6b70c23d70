"""What saves memory: the same gradients from less that is kept."""

import pytest
import torch
from drawn_data import trainer_of

from mosaicdd import ExecutionSettings, TrainingSettings
from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.training import memory
from mosaicdd.training.equation_lesson import EquationLesson
from mosaicdd.training.losses import pass_loss, residual_of
from mosaicdd.training.memory import kept_bytes, kept_line, memory_plan, samples_per_pass
from mosaicdd.training.objective import RankGroup
from mosaicdd.training.samples import Pass


def make(dataset, name="sdnet", execution=None, **changes):
    given = {"batch_size": 40, "pde_weight": 1e-3, "collocation": 8, "precision": "float64"}
    return trainer_of(dataset, name, {"width": 32, "depth": 4}, execution=execution, **given | changes)  # fmt: skip


def kept(trainer, number):
    part = trainer.lesson.draw(0, trainer.micro_batch)[number]
    return kept_bytes(lambda: trainer.lesson.loss(part))


@pytest.mark.parametrize("name", ["sdnet", "mlp", "sdnet-concat"])
def test_recomputed_layers_give_the_same_gradients_from_fewer_bytes(gradients, small_dataset, name):
    plain = make(small_dataset, name)
    saving = make(small_dataset, name, ExecutionSettings(recompute=True))
    for ours, theirs in zip(gradients(saving, 0)[1], gradients(plain, 0)[1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=0)
    data, pde = ((kept(saving, n), kept(plain, n)) for n in (0, 1))
    assert data[0] < data[1]
    assert pde[0] < 0.75 * pde[1]  # hidden layers keep 4 streams instead of 11; the first one all


def test_micro_batches_keep_less_and_give_the_same_gradients(gradients, small_dataset):
    plain = make(small_dataset)
    saving = make(small_dataset, execution=ExecutionSettings(micro_batch=10))
    for ours, theirs in zip(gradients(saving, 0)[1], gradients(plain, 0)[1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-15)
    assert kept(saving, 0) < 0.5 * kept(plain, 0)  # a quarter, and the weights


def test_a_network_that_cannot_recompute_is_refused(small_dataset):
    torch.manual_seed(0)
    network = build_network("linear", {}, small_dataset.subdomain)
    execution = ExecutionSettings(recompute=True)
    with pytest.raises(ValueError, match="cannot recompute"):
        EquationLesson.require("linear", network, small_dataset, TrainingSettings(), execution)


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.05), ("tf32", 1e-2)])
def test_fewer_digits_change_the_loss_by_their_rounding(small_dataset, precision, tolerance):
    losses = []
    for chosen in ("float32", precision):
        trainer = make(small_dataset, precision=chosen, pde_weight=0.0)
        total, _ = trainer.parallel.backward(trainer.lesson.draw(0, 0), [])
        losses.append(total["data_loss"])
    torch.set_float32_matmul_precision("highest")
    # 8 or 10 bits of mantissa, in five layers.
    assert losses[1] == pytest.approx(losses[0], rel=tolerance)
    assert (losses[1] != losses[0]) == (precision == "bf16")  # a processor has no TF32


@pytest.mark.parametrize("name", ["linear", "sdnet"])
@pytest.mark.parametrize("optimizer", ["adamw", "soap"])
def test_the_plan_of_a_dry_run_is_what_a_training_holds(small_dataset, name, optimizer):
    trainer = make(small_dataset, name, optimizer=optimizer)
    for step in (0.1, 0.2):
        trainer.take_step(step)
    network = make(small_dataset, name).lesson.network
    alone = RankGroup()
    (level,) = memory_plan(
        EquationLesson, network, small_dataset, trainer.settings, trainer.execution, alone
    ).values()
    weights = sum(p.numel() * 8 for p in trainer.lesson.network.parameters())
    assert level["weights"] == level["gradients"] == weights
    held = [v for state in trainer.optimiser.state.values() for v in state.values()]
    flat = [t for v in held for t in (v if isinstance(v, list) else [v])]
    state = sum(t.numel() * 8 for t in flat if isinstance(t, torch.Tensor) and t.ndim)
    assert level["optimiser"] == pytest.approx(state, rel=0.01)
    largest = max(kept(trainer, number) for number in (0, 1))
    assert level["activations"] == pytest.approx(largest, rel=0.05)
    samples = (
        trainer.lesson.samples,
        trainer.lesson.validation,
        trainer.lesson.windows,
    )
    parts = (t for s in samples for t in (s.remainder, s.target, s.scale))
    assert level["samples"] == sum(t.numel() * 8 for t in parts)


def test_a_dry_run_shares_out_what_the_levels_share(small_dataset):
    network = build_network("sdnet", {}, small_dataset.subdomain)
    settings = TrainingSettings(optimizer="adamw", batch_size=64)
    asked = EquationLesson, network, small_dataset, settings, ExecutionSettings()
    levels = memory_plan(*asked, RankGroup(0, 4))
    assert list(levels) == ["none", "zero1", "fsdp"]
    none, zero1, fsdp = levels.values()
    assert zero1["optimiser"] == fsdp["optimiser"] == none["optimiser"] // 4
    assert zero1["total"] < none["total"]
    (alone,) = memory_plan(*asked, RankGroup()).values()
    assert alone["activations"] > 3 * none["activations"]


@pytest.mark.parametrize(("name", "points"), [("sdnet", 961), ("mlp", 64), ("deeponet", 64)])
def test_passes_on_a_processor_keep_the_same_memory_for_any_batch(name, points):
    subdomain = Subdomain()
    torch.manual_seed(0)
    network = build_network(name, {}, subdomain)
    settings = TrainingSettings(pde_weight=1e-3, collocation=points)
    residual = residual_of(network, LAPLACE.at(), subdomain, settings)
    loss = pass_loss(network, settings, residual)
    generator = torch.Generator().manual_seed(0)
    g, x = torch.randn(8, 128, generator=generator), torch.rand(points, 2, generator=generator)
    passes = [Pass(g, 1.0, x, torch.zeros(8, points)), Pass(g, 1.0, x)]
    samples = samples_per_pass(loss, passes)
    per_sample = max(kept_line(loss, part)[1] for part in passes)
    # One more sample would be too many.
    assert samples * per_sample <= 2**25 < (samples + 1) * per_sample
    if name == "deeponet":  # evaluated once per point and once per sample, not at each pair
        assert samples > 1000
    else:
        assert samples < 200


def test_a_step_of_few_samples_per_pass_has_the_gradients_of_one_pass(
    gradients, small_dataset, monkeypatch
):
    plain = make(small_dataset, execution=ExecutionSettings(micro_batch=40))
    monkeypatch.setattr(memory, "_PASS_BYTES", 2**20)
    few = make(small_dataset)
    assert 1 < few.micro_batch < 20
    assert len(few.lesson.draw(0, few.micro_batch)) > 4
    for ours, theirs in zip(gradients(few, 0)[1], gradients(plain, 0)[1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-15)
