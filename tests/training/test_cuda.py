"""Training on a GPU: the gradients of the processor, and a whole training."""

import pytest
import torch
from drawn_data import trainer_of

from mosaicdd.training.objective import rank_group

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def make(dataset, ranks, name, **changes):
    given = {"epochs": 3, "batch_size": 50, "pde_weight": 1e-3, "collocation": 6}
    return trainer_of(dataset, name, {"width": 16}, ranks=ranks, **given | changes)


@pytest.mark.parametrize("residual", ["continuous", "discrete", "multilevel"])
@pytest.mark.parametrize("name", ["linear", "sdnet", "deeponet"])
def test_a_step_has_the_gradient_of_the_processor(small_dataset, name, residual):
    gradients = []
    for device in ("cpu", "cuda"):
        with rank_group(None, device) as ranks:
            trainer = make(small_dataset, ranks, name, residual=residual, precision="float64")
            trainer.parallel.backward(trainer.lesson.draw(1, 0), [])
            gradients.append([p.grad.cpu() for p in trainer.parallel.objective.weights()])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("precision", ["float32", "bf16", "tf32"])
def test_a_training_lowers_the_error(small_dataset, precision):
    with rank_group(None, "cuda") as ranks:
        reports = []
        trainer = make(small_dataset, ranks, "linear", precision=precision, epochs=20)
        assert trainer.run(reports.append)
    assert trainer.best.validation_mse < reports[0].validation_mse / 10
