"""Data of cubes, and a network that learns from them without labels, on any number of ranks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from drawn_data import generate_dataset, generation, trainer_of

import mosaicdd as m
from mosaicdd import TrainingSettings, train
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.schwarz.local_solvers.loading import find_network

CUBE = Subdomain(4, 0.25, axes=3)
GIVEN = {"labels": False, "epochs": 60, "batch_size": 17, "precision": "float64", "validations": 4, "lr": 0.01}  # fmt: skip
SETTINGS = TrainingSettings(**GIVEN)


def generate(samples=40, **changes):
    return generate_dataset(generation(4, 0.25, 3, samples=samples, windows=350, **changes))


@pytest.fixture(scope="module")
def dataset():
    return generate()


def test_neighbouring_nodes_differ_by_what_the_length_scale_says():
    """The mean of their squared difference is that of the squared exponential kernel, over 400 samples."""
    for length in (0.1, 0.3):
        g = generate(samples=400, length_scale=(length, 1.0001 * length), noise=0.0).boundary
        number = {tuple(node): i for i, node in enumerate(CUBE.perimeter.tolist())}
        a, b = number[0, 1, 1], number[0, 2, 2]
        expected = 2 - 2 * np.exp(-2 * CUBE.spacing**2 / (2 * length**2))
        assert np.mean((g[:, a] - g[:, b]) ** 2) == pytest.approx(expected, rel=0.25)
        assert np.mean(g[:, a] ** 2) == pytest.approx(1.0, rel=0.25)


SDNET = {"width": 8, "channels": 2, "kernel": 3}
WIDER = SDNET | {"width": 16, "channels": 4, "features": 8}
LEARNED = {"labels": True, "pde_weight": 1e-4, "collocation": 5, "residual": "continuous"}


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("changes", [LEARNED | {"points": 1}, {}], ids=["labels", "no labels"])
def test_ranks_add_up_to_the_gradient_of_one_by_convolutions(gradients, dataset, ranks, changes):
    together, alone = (
        gradients(trainer_of(dataset, "sdnet", SDNET, ranks=group, **GIVEN | changes))
        for group in (ranks, None)
    )
    for term in ("data_loss", "pde_loss"):
        assert together[0][term] == pytest.approx(alone[0][term], rel=1e-12)
    for ours, theirs in zip(together[1], alone[1], strict=True):
        largest = theirs.abs().max()  # sums of 17 samples in another order
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12 * largest + 1e-15)


def test_what_is_trained_without_labels_solves_a_box(dataset, tmp_path):
    path = tmp_path / "model.h5"
    result = train(dataset, path, SETTINGS, network="faces", network_settings={"width": 16})
    assert result.card.axes == find_network(str(path)).card.axes == 3
    assert result.best.figures["window_mse"] < 1e-5
    problem = m.Problem(m.Domain((8, 6, 4), 0.1), "laplace", {}, m.Dirichlet("sin(3*x)*exp(y)+z"))
    solution = m.solve(problem, str(path))
    assert solution.converged
    exact = m.solve(problem, rtol=1e-12).field
    error = np.sqrt(np.mean((solution.field - exact)[1:-1, 1:-1, 1:-1] ** 2))
    assert error <= solution.error_estimate < 0.1


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_what_convolutions_over_faces_learned_solves_a_box(
    dataset, comm, common_path, alone_and_together
):
    """From labels; the estimate sees what the network is off by, a certificate takes it away."""
    path, learned = str(common_path / "model.h5"), None
    if comm.rank == 0:
        settings = replace(SETTINGS, labels=True, validations=2)
        learned = train(dataset, path, settings, network="sdnet", network_settings=WIDER)
    error = comm.bcast(learned and learned.card.validation["relative_error"])
    assert error < 0.4  # of what the lifting leaves
    sides = m.Dirichlet("sin(3*x)*exp(y)+z")
    problem = m.Problem(m.Domain((12, 8, 8), 0.1), "laplace", {}, sides)
    known = m.solve(problem, rtol=1e-12)
    exact = known.field
    alone, solution = alone_and_together(m.solve, problem, path, rtol=1e-10)
    field = solution.gather()
    assert solution.converged
    assert solution.iterations == alone.iterations
    np.testing.assert_allclose(field, alone.field, rtol=0, atol=1e-9)
    off = np.sqrt(np.mean((field - exact)[1:-1, 1:-1, 1:-1] ** 2))
    assert 1e-6 < off <= solution.error_estimate < 0.1
    certified = m.solve(problem, path, ranks=comm, settings=m.SolveSettings(certify=1e-10))
    assert certified.report["discrete_residual"] <= 1e-10
    np.testing.assert_allclose(certified.gather(), exact, rtol=0, atol=1e-8)
    points = np.array([[0.37, 0.41, 0.52], [0.8, 0.3, 0.0], [0.0, 0.11, 0.97], [0.2, 0.5, 0.7]])
    values = solution.at(points)  # by the network, on the sides by what is given
    np.testing.assert_allclose(values, known.at(points), rtol=0, atol=0.05)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("changes", "most"),
    [
        ({}, 0.8),
        (LEARNED | {"epochs": 40}, 0.8),
        ({"residual": "continuous", "pde_weight": 3e-3, "collocation": 32}, 0.98),
    ],
    ids=["no labels", "both losses", "collocation"],
)
def test_convolutions_over_faces_learn_from_each_loss(tmp_path, changes, most):
    """Without symmetry, too, where points are as they are, in which it takes many more samples."""
    settings = replace(SETTINGS, **{"batch_size": 40} | changes)
    values = WIDER | {"symmetric": not changes, "width": 32}
    dataset = generate(samples=400)
    result = train(
        dataset, tmp_path / "model.h5", settings, network="sdnet", network_settings=values
    )
    assert result.card.validation["relative_error"] < most


@pytest.mark.parametrize(
    ("pde", "fields", "message"),
    [
        ("screened-poisson", (), "fields: the parameters of screened-poisson are drawn of squares"),
        ("anisotropic-diffusion", (("axx", 2.0),), "is not the same along all axes"),
    ],
)
def test_what_has_no_data_of_cubes_is_refused(pde, fields, message):
    with pytest.raises(ValueError, match=message):
        generate(pde=pde, fields=fields)


def test_a_network_of_squares_does_not_learn_from_cubes(dataset, tmp_path):
    with pytest.raises(ValueError, match="linear is not for cubes of 4x4x4 cells; for these take"):
        train(dataset, tmp_path / "model.h5", SETTINGS)
    assert not list(tmp_path.iterdir())
