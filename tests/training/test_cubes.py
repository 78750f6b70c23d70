"""Data of cubes, and a network that learns from them without labels, on any number of ranks."""

import copy
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from drawn_data import generate_dataset

import mosaicdd as m
from mosaicdd import ExecutionSettings, GenerationSettings, TrainingSettings, train
from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.grid.grid import Grid
from mosaicdd.networks.registry import build_network
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.loading import find_network
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.training.equation_lesson import EquationLesson
from mosaicdd.training.losses import GridResidual, UnitOperator, pde_residual
from mosaicdd.training.trainer import Trainer

CUBE = Subdomain(4, 0.25, axes=3)
SETTINGS = TrainingSettings(
    labels=False, epochs=60, batch_size=17, precision="float64", validations=4, lr=0.01
)


def generate(samples=40, **changes):
    return generate_dataset(
        GenerationSettings(subdomain=CUBE, samples=samples, windows=350, **changes)
    )


@pytest.fixture(scope="module")
def dataset():
    return generate()


@pytest.mark.parametrize("kind", ["", "window_"])
def test_solutions_solve_the_discrete_equation_with_their_boundary(dataset, kind):
    boundary, solution = (getattr(dataset, kind + name) for name in ("boundary", "solution"))
    system = DirichletSystem(LAPLACE.at(), Grid(CUBE.shape, CUBE.spacing))
    assert np.abs(system.apply(np.moveaxis(solution, 0, -1))).max() < 1e-12
    np.testing.assert_array_equal(solution[:, *CUBE.perimeter.T], boundary)
    assert boundary.std() > 0.3


def test_samples_do_not_depend_on_how_many_are_drawn(dataset):
    more = generate(samples=60)
    np.testing.assert_array_equal(more.boundary[:40], dataset.boundary)
    np.testing.assert_array_equal(more.solution[:40], dataset.solution)


def test_neighbouring_nodes_differ_by_what_the_length_scale_says():
    """The mean of their squared difference is that of the squared exponential kernel, over 400 samples."""
    for length in (0.1, 0.3):
        g = generate(samples=400, length_scale=(length, 1.0001 * length), noise=0.0).boundary
        number = {tuple(node): i for i, node in enumerate(CUBE.perimeter.tolist())}
        a, b = number[0, 1, 1], number[0, 2, 2]
        expected = 2 - 2 * np.exp(-2 * CUBE.spacing**2 / (2 * length**2))
        assert np.mean((g[:, a] - g[:, b]) ** 2) == pytest.approx(expected, rel=0.25)
        assert np.mean(g[:, a] ** 2) == pytest.approx(1.0, rel=0.25)


def test_the_file_says_that_they_are_cubes(dataset, tmp_path):
    dataset.write(tmp_path / "data.h5")
    read = Dataset.read(tmp_path / "data.h5")
    assert read.subdomain == CUBE
    assert read.content_hash == dataset.content_hash


@pytest.mark.parametrize("multilevel", [False, True])
def test_the_discrete_solution_has_no_residual(multilevel):
    operator = torch.as_tensor(ExactSolver(LAPLACE.at(), CUBE).matrix)
    g = torch.as_tensor(np.random.default_rng(0).standard_normal((3, len(CUBE.perimeter))))

    def exact(g, points):
        return g @ operator[tuple(((points + 1) * 2).round().long().T)].T

    like = torch.zeros(1, dtype=torch.float64)
    rule = GridResidual(LAPLACE.at(), CUBE, 8, multilevel, like)
    corner = rule.draw(torch.Generator().manual_seed(1))
    assert rule.residual(exact, g, corner).shape == ((3, 3, 3, 3) if multilevel else (3, 2, 2, 2))
    assert rule.loss(exact, g, corner) < 1e-24
    assert rule.loss(lambda *arguments: 1.01 * exact(*arguments), g, corner) > 1e-8


def test_the_residual_of_a_parabola_is_its_second_derivatives(faces_network):
    def parabola(g, points):
        return (points[..., 0] ** 2 + 2 * points[..., 1] ** 2 + 3 * points[..., 2]).expand(
            len(g), -1
        )

    operator, g = UnitOperator.of(LAPLACE.at(), CUBE), torch.zeros(2, 98, dtype=torch.float64)
    points = torch.rand(5, 3, dtype=torch.float64)
    residual = pde_residual(parabola, operator, g, points, "autograd")
    torch.testing.assert_close(residual, torch.full((2, 5), 6.0, dtype=torch.float64))
    assert pde_residual(faces_network(CUBE), operator, g, points).shape == (2, 5)


SDNET = {"width": 8, "channels": 2, "kernel": 3}
WIDER = SDNET | {"width": 16, "channels": 4, "features": 8}
LEARNED = {"labels": True, "pde_weight": 1e-4, "collocation": 5, "residual": "continuous"}


def trainer_of(dataset, group, network="faces", changes=None, execution=None):
    settings = replace(SETTINGS, **(changes or {}))
    torch.manual_seed(0)
    values = {"width": 8} if network == "faces" else SDNET
    built = build_network(network, values, dataset.subdomain)
    lesson = EquationLesson(built, dataset, settings, group)
    return Trainer(lesson, settings, time.perf_counter(), group, execution)


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_ranks_add_up_to_the_gradient_of_one(gradients, dataset, ranks):
    together, alone = (gradients(trainer_of(dataset, group)) for group in (ranks, None))
    assert together[0]["pde_loss"] == pytest.approx(alone[0]["pde_loss"], rel=1e-12)
    for ours, theirs in zip(together[1], alone[1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-14)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("changes", [LEARNED | {"points": 1}, {}], ids=["labels", "no labels"])
def test_ranks_add_up_to_the_gradient_of_one_by_convolutions(gradients, dataset, ranks, changes):
    together, alone = (
        gradients(trainer_of(dataset, group, "sdnet", changes)) for group in (ranks, None)
    )
    for term in ("data_loss", "pde_loss"):
        assert together[0][term] == pytest.approx(alone[0][term], rel=1e-12)
    for ours, theirs in zip(together[1], alone[1], strict=True):
        largest = theirs.abs().max()  # sums of 17 samples in another order
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12 * largest + 1e-15)


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("sharding", ["zero1", "fsdp"])
def test_shards_of_convolutions_learn_what_whole_ones_do(dataset, ranks, sharding):
    learned = []
    for execution in (None, ExecutionSettings(sharding=sharding)):
        trainer = trainer_of(dataset, ranks, "sdnet", LEARNED | {"optimizer": "adamw"}, execution)
        for step in range(5):
            trainer.take_step(step / trainer.steps)
        learned.append(copy.deepcopy(trainer.parallel.weights_state()))
    for name, values in learned[0].items():
        torch.testing.assert_close(learned[1][name], values, rtol=0, atol=1e-9)


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
