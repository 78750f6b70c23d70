"""Training lowers the error, repeats itself, and keeps to its time."""

import dataclasses
import time

import numpy as np
import pytest
import torch
from drawn_data import generate_dataset, generation

from mosaicdd import ExecutionSettings, TrainingSettings
from mosaicdd.training.loop import Training
from mosaicdd.training.objective import RankGroup
from mosaicdd.training.optimisers import TrainingDivergedError

SMALL = {
    "linear": {"width": 32, "features": 16},
    "sdnet": {"width": 16, "channels": 2},
    "sdnet-concat": {"width": 16, "channels": 2},
    "deeponet": {"width": 32, "features": 16},
    "mlp": {"width": 32, "features": 16},
}


@pytest.fixture(scope="module")
def dataset():
    return generate_dataset(generation(samples=1000, windows=200, method="direct"))


def train(dataset, name="linear", **changes):
    reports = []
    settings = TrainingSettings(**{"epochs": 20, "batch_size": 100, "validations": 8, **changes})
    training = Training(dataset, "unwritten", settings, ExecutionSettings(), name, SMALL[name])
    training.join(RankGroup())
    return training.train(reports.append), reports


@pytest.mark.parametrize(
    ("name", "changes", "factor"),
    [
        # A tenth or less of the gain that is usually seen.
        pytest.param("linear", {"epochs": 40}, 100, marks=pytest.mark.nightly),
        ("linear", {"optimizer": "adamw"}, 20),
        pytest.param("linear", {"pde_weight": 1e-4}, 20, marks=pytest.mark.nightly),
        pytest.param("sdnet", {"points": 16, "epochs": 40}, 4, marks=pytest.mark.nightly),
        pytest.param(
            "sdnet",
            {"pde_weight": 1e-4, "collocation": 4, "points": 16},
            1.5,
            marks=pytest.mark.nightly,
        ),
        pytest.param("sdnet-concat", {"points": 16}, 1.5, marks=pytest.mark.nightly),
        pytest.param("deeponet", {"points": 16}, 1.5, marks=pytest.mark.nightly),
        ("mlp", {"points": 16}, 2),
        pytest.param("linear", {"optimizer": "muon"}, 20, marks=pytest.mark.nightly),
        ("linear", {"optimizer": "lamb", "lr": 1e-2, "clip": 1.0}, 20),
        # Without labels: the boundary data and the equation say it all.
        ("linear", {"labels": False, "pde_weight": 1e-3, "residual": "discrete"}, 20),
        ("linear", {"labels": False, "pde_weight": 1.0, "residual": "multilevel"}, 20),
        pytest.param(
            "deeponet",
            {"labels": False, "pde_weight": 1e-4, "residual": "continuous", "epochs": 60},
            1.5,
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "sdnet",
            {"labels": False, "pde_weight": 1e-3, "residual": "discrete"},
            1.5,
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_training_lowers_both_validation_errors(dataset, name, changes, factor):
    result, reports = train(dataset, name, **changes)
    assert result.best.validation_mse < reports[0].validation_mse / factor
    assert result.best.window_mse < reports[0].window_mse / factor


def test_without_labels_a_network_with_folds_needs_the_discrete_residual(dataset):
    with pytest.raises(ValueError, match="kinks where it folds points"):
        train(dataset, labels=False, residual="continuous")


def test_the_same_seed_gives_the_same_network(dataset):
    (first, _), (second, _), (other, _) = (train(dataset, epochs=3, seed=s) for s in (4, 4, 5))
    assert first.best.validation_mse == second.best.validation_mse
    assert first.best.validation_mse != other.best.validation_mse
    for a, b in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_best_weights_are_kept(dataset):
    result, reports = train(dataset)
    sums = [report.validation_mse + report.window_mse for report in reports]
    assert result.best == reports[int(np.argmin(sums))]
    assert result.card.validation["mse"] == result.best.validation_mse


def test_training_ends_within_its_seconds_with_its_schedule_run_down(dataset, monkeypatch):
    # Of this processor: what others take of it in the last step is no time of the training's.
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    result, reports = train(dataset, epochs=10**6, max_seconds=2.0)
    assert result.seconds < 2.0
    assert reports[-1].progress == 1.0
    assert 0 < result.steps < 9 * 10**6


def test_the_card_says_what_was_done(dataset):
    card = train(dataset, epochs=2)[0].card
    assert (card.pde, card.cells, card.size, card.lifting_degree) == ("laplace", 8, 0.125, 2)
    assert card.settings["width"] == 32
    assert card.boundary_range == [dataset.boundary.min(), dataset.boundary.max()]
    assert card.hyperparameter_ranges["length_scale"][0] >= 0.03
    assert card.dataset_hash == dataset.content_hash
    assert card.training["steps"] == 18  # 900 samples in batches of 100, twice


def test_a_loss_that_is_not_finite_names_the_step(dataset):
    broken = dataset.solution.copy()
    broken[:, 4, 4] = 1e200  # finite in float64, infinite in float32
    with pytest.raises(TrainingDivergedError, match="at step 1 of 180"):
        train(dataclasses.replace(dataset, solution=broken))


def test_a_batch_larger_than_the_dataset_becomes_the_dataset(dataset):
    assert train(dataset, epochs=3, batch_size=10**6)[0].steps == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"lr": 0.0}, "learning rate"),
        ({"lr": float("nan")}, "learning rate"),
        ({"max_seconds": -1.0}, "max_seconds"),
        ({"warmup": 1.0}, "warmup"),
        ({"optimizer": "sgd"}, "known: adamw, lamb, muon, soap"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**changes)
