"""Regression on operators: a family's network solves for parameters that it has never seen."""

import dataclasses
from functools import cache

import numpy as np
import pytest
from drawn_data import generate_dataset, generation

from mosaicdd import ExecutionSettings, Problem, TrainingSettings
from mosaicdd.grid.grid import Grid
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.parallel.launcher import Watch
from mosaicdd.problems.equations import equation
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.loading import TrainedModel, find_local_solver
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.training.loop import Training
from mosaicdd.training.objective import RankGroup

SUBDOMAIN = Subdomain(8, 0.125)
FAMILIES = ("screened-poisson", "anisotropic-diffusion", "advection-diffusion")
NETWORK = {"modes": 6, "hidden": 32, "depth": 2}


def generate(pde, operators=32, **changes):
    given = {"samples": 32 * operators, "windows": 300}
    return generate_dataset(generation(pde=pde, **given | changes))


@pytest.fixture(scope="module")
def datasets():
    return {pde: generate(pde) for pde in FAMILIES}


def train_on(ranks, dataset, settings, name="family", network=NETWORK):
    training = Training(dataset, "unwritten", settings, ExecutionSettings(), name, network)
    training.join(ranks)
    return training.train()


def train(dataset, name="family", settings=NETWORK, **changes):
    chosen = {"epochs": 600, "batch_size": 10**6, "validations": 4}
    return train_on(RankGroup(), dataset, TrainingSettings(**chosen | changes), name, settings)


@pytest.fixture(scope="module")
def trained(datasets):
    return cache(lambda pde: train(datasets[pde]))


@pytest.mark.parametrize("pde", FAMILIES)
def test_each_operator_has_its_samples_and_the_held_out_ones_are_unseen(datasets, pde):
    dataset = datasets[pde]
    runs = dataset.operators(slice(None))
    assert [run.stop - run.start for _, run in runs] == [32] * 32
    learned = len(dataset.boundary) - dataset.held_out
    seen = {operator for operator, _ in dataset.operators(slice(0, learned - 32))}
    unseen = {operator for operator, _ in dataset.operators(slice(learned, None))}
    assert seen
    assert not seen & unseen
    for operator, samples in (runs[3], runs[17]):
        rows = ExactSolver(operator, SUBDOMAIN).matrix
        expected = np.einsum("yxp,np->nyx", rows, dataset.boundary[samples])
        # Two factorisations of 49 unknowns, of values of order 3.
        np.testing.assert_allclose(dataset.solution[samples], expected, atol=1e-11)
    assert len(dataset.window_operators) == 2


def test_a_family_comes_back_from_its_file(datasets, tmp_path):
    dataset = datasets["anisotropic-diffusion"]
    dataset.write(tmp_path / "data.h5")
    back = Dataset.read(tmp_path / "data.h5")
    assert back.parameter_names == ("axx", "ayy", "axy")
    assert back.operators(slice(None)) == dataset.operators(slice(None))
    assert back.window_operators == dataset.window_operators


@pytest.mark.parametrize(
    ("pde", "greatest"),
    [
        (FAMILIES[0], 1e-8),
        *(pytest.param(pde, 1e-4, marks=pytest.mark.nightly) for pde in FAMILIES[1:]),
    ],
)
def test_a_trained_family_solves_for_held_out_parameters(trained, pde, greatest):
    result = trained(pde)
    assert result.best.validation_mse < greatest
    assert result.best.window_mse < greatest
    assert not result.far_off
    assert result.card.network == "family"


@pytest.mark.parametrize(
    ("pde", "name", "ends"),
    [
        ("screened-poisson", "c", [0.0, 100.0]),
        ("anisotropic-diffusion", "the ratio of the tensor's eigenvalues", [1.0, 100.0]),
        ("advection-diffusion", "the cell Peclet number", [0.0, 2.0]),
    ],
)
def test_the_card_says_which_parameters_the_network_serves(datasets, pde, name, ends):
    card = train(datasets[pde], epochs=1).card
    assert card.ranges[name] == ends
    if pde == "screened-poisson":
        assert card.ranges["the ratio of the tensor's eigenvalues"] == [1.0, 1.0]


def test_a_parameter_outside_of_the_range_is_refused_with_the_range(trained):
    result = trained("screened-poisson")
    model = TrainedModel("mine", result.network, result.card)
    grid = Grid((32, 32), SUBDOMAIN.spacing)
    assert model.bind(Problem((32, 32), "screened-poisson", {"c": 100.0}), grid).linear
    assert model.bind(Problem((32, 32), "laplace"), grid).linear  # c = 0
    model.bind(Problem((32, 32), "screened-poisson", {"c": 77.0}), grid).require_sound()
    for pde, fields, message in (
        ("screened-poisson", {"c": 101.0}, "with c from 0 to 100, here it is 101"),
        ("anisotropic-diffusion", {"axx": 2.0}, "eigenvalues from 1 to 1, here it is 2"),
    ):
        bound = model.bind(Problem((32, 32), pde, fields), grid)
        with pytest.raises(ValueError, match=message):
            bound.require_sound()
    # On a grid twice as fine a subdomain is half as large, and four times as much counts as little.
    fine = Grid((32, 32), SUBDOMAIN.spacing / 2)
    assert not model.bind(Problem((32, 32), "screened-poisson", {"c": 400.0}), fine).outside


@pytest.mark.parametrize(
    ("name", "network", "changes", "message"),
    [
        ("linear", {"width": 8}, {}, "is of 32 operators and this network learns one"),
        (
            "family",
            {"modes": 40},
            {},
            "need 41 operators .*, the dataset's 1024 samples hold 28; .* least 1459, or set modes=27",
        ),
        ("family", NETWORK, {"pde_weight": 1.0}, "learns from solutions alone"),
        ("family", NETWORK, {"labels": False}, "learns from solutions alone"),
    ],
)
def test_what_cannot_be_learned_is_refused(datasets, name, network, changes, message):
    with pytest.raises(ValueError, match=message):
        train(datasets["screened-poisson"], name, network, **changes)


def test_fixed_parameters_are_one_operator_for_any_network():
    dataset = generate("screened-poisson", operators=16, fields=(("c", 30.0),), method="direct")
    assert len(dataset.operators(slice(None))) == 1
    with pytest.raises(
        ValueError, match="is of one operator and a network for a family learns many"
    ):
        train(dataset)
    result = train(dataset, "linear", {"width": 32, "features": 16}, epochs=40, batch_size=64)
    assert result.card.parameters == {"c": 30.0}
    assert not result.far_off
    grid = Grid((32, 32), SUBDOMAIN.spacing)
    model = TrainedModel("mine", result.network, result.card)
    assert model.bind(Problem((32, 32), "screened-poisson", {"c": 30.0}), grid).linear
    with pytest.raises(ValueError, match="with c=30, it does not solve screened-poisson with c=3"):
        model.bind(Problem((32, 32), "screened-poisson", {"c": 3.0}), grid)


def test_a_network_that_folds_is_refused_where_the_equation_does_not():
    dataset = generate("advection-diffusion", operators=4, fields=(("bx", 30.0),), method="direct")
    with pytest.raises(ValueError, match="lacks the symmetries of the square"):
        train(dataset, "linear", {"width": 16})
    train(dataset, "linear", {"width": 16, "symmetric": False}, epochs=1)


def test_an_equation_without_a_family_has_no_parameters_in_its_data():
    dataset = generate("laplace", operators=2)
    assert dataset.parameter_names == ()
    assert dataset.operators(slice(None)) == [(equation("laplace").at(), slice(0, 64))]
    with pytest.raises(ValueError, match=r"must be finite and of the shape \(64, 0\)"):
        dataclasses.replace(dataset, parameters=np.zeros((64, 1)))


@pytest.mark.ranks(2, 3)
def test_a_family_is_the_same_on_any_number_of_ranks(ranks):
    dataset = generate("screened-poisson", operators=20)
    settings = TrainingSettings(epochs=20, batch_size=7, optimizer="adamw", precision="float64")
    results = [train_on(group, dataset, settings) for group in (ranks, RankGroup())]
    several, alone = (result.best.validation_mse for result in results)
    # Sums of gradients in another order, in float64, through 40 steps of Adam.
    assert several == pytest.approx(alone, rel=1e-8)


def test_a_family_s_training_is_resumed_as_if_it_had_not_been_ended(datasets, tmp_path):
    training = Training(
        datasets["screened-poisson"],
        tmp_path / "model.h5",
        TrainingSettings(epochs=30, batch_size=10),
        network="family",
        network_settings=NETWORK,
    )
    training.join(RankGroup())
    whole = training.run()
    watch = Watch(training.checkpoints.save)
    reports = []

    def stop_halfway(report):
        reports.append(report)
        if report.progress >= 0.5:
            watch.interrupt()

    assert not training.run(stop_halfway, watch).finished
    training.join(RankGroup(), resume=True)
    resumed = training.run()
    assert resumed.finished
    assert resumed.best.validation_mse == whole.best.validation_mse
    solver = find_local_solver(str(tmp_path / "model.h5"))
    assert solver.card.validation["mse"] == whole.best.validation_mse
