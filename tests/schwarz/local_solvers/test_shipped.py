"""The models inside the package keep what their cards promise, on data they have never seen."""

import dataclasses

import numpy as np
import pytest
import torch
from drawn_data import generate_dataset

from mosaicdd import GenerationSettings, Problem
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import LAPLACE, tensor
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.local_solvers.loading import (
    SHIPPED,
    default_local_solver,
    find_local_solver,
    shipped_models,
)
from mosaicdd.storage.model_file import read_model, write_model
from mosaicdd.unsupported import FORMER

CPU = torch.device("cpu")
MEGABYTE = 10**6


@pytest.fixture(scope="module")
def fresh():
    """Problems of another seed than the models' (0), with windows of larger solutions, by the number of axes."""
    drawn = {"seed": 12, "validation": 0.5, "method": "direct"}
    of_cubes = {"subdomain": Subdomain(16, axes=3), "samples": 60, "windows": 60, "noise": 0.1}
    return {
        2: generate_dataset(GenerationSettings(samples=400, windows=225, **drawn)),
        3: generate_dataset(GenerationSettings(**of_cubes, **drawn)),
    }


def solve(solver, boundary):
    points = solver.subdomain.interior
    out = torch.empty(len(boundary), len(points), dtype=torch.float64)
    solver.plan(points, device=CPU, dtype=torch.float64)(torch.as_tensor(boundary), out)
    return out.numpy()


@pytest.mark.parametrize(
    ("name", "size", "greatest"),
    [
        ("laplace", 2 * MEGABYTE, 1e-8),
        ("laplace-cubes", MEGABYTE, 1e-9),
        ("laplace-sdnet", 4 * MEGABYTE, 1e-6),
    ],
)
def test_fresh_problems_are_solved_as_the_card_says(fresh, name, size, greatest):
    assert (SHIPPED / f"{name}.h5").stat().st_size <= size
    solver = find_local_solver(name).as_trained()
    axes = solver.card.axes
    for key, boundary, solution in (
        ("mse", fresh[axes].boundary, fresh[axes].solution),
        ("window_mse", fresh[axes].window_boundary, fresh[axes].window_solution),
    ):
        inner = solution[:, *[slice(1, -1)] * axes].reshape(len(boundary), -1)
        error = solve(solver, boundary) - inner
        promised = solver.card.validation[key]
        # The mean of a few hundred samples whose errors span two orders of magnitude.
        assert np.mean(error**2) < 5 * promised
        assert promised < greatest


def test_the_compiled_linear_model_is_close_to_the_exact_operator():
    solver = find_local_solver("laplace").as_trained()
    exact = ExactSolver(LAPLACE.at(), solver.subdomain).matrix[1:-1, 1:-1].reshape(961, 128)
    difference = solver.matrix(solver.subdomain.interior) - exact
    # White noise of unit size on 124 nodes: 11 times the root mean square difference of a weight.
    assert np.sqrt((difference**2).mean()) < 2.5e-5 / 11
    assert np.abs(difference).max() < 1e-4
    assert not difference[:, ::32].any()  # the corners, exactly


def test_the_shipped_models_are_the_documented_ones():
    families = ["advection-diffusion", "anisotropic-diffusion", "screened-poisson"]
    others = ["laplace", "laplace-cubes", "laplace-sdnet"]
    assert shipped_models() == sorted([*others, *families])
    for name in families:
        assert (SHIPPED / f"{name}.h5").stat().st_size < 8 * MEGABYTE


@pytest.mark.parametrize(
    ("pde", "fields", "chosen"),
    [
        ("laplace", {}, "laplace"),
        ("poisson", {"f": 1.0}, "laplace"),
        ("screened-poisson", {"c": 0.0}, "laplace"),
        ("screened-poisson", {"c": 100.0}, "screened-poisson"),
        ("screened-poisson", {"c": 200.0}, "exact"),
        ("anisotropic-diffusion", tensor(100.0, 1.0), "anisotropic-diffusion"),
        ("anisotropic-diffusion", tensor(200.0, 1.0), "exact"),
        ("advection-diffusion", {"bx": 100.0, "by": -70.0}, "advection-diffusion"),
        ("advection-diffusion", {"bx": 100.0, "by": -90.0}, "exact"),
        ("diffusion", {"a": 2.0}, "exact"),
        ("diffusion", {"a": "1 + x"}, "exact"),
    ],
)
def test_an_equation_s_own_model_is_the_default_where_it_was_trained(pde, fields, chosen):
    assert default_local_solver(Problem((64, 64), pde, fields)).name == chosen


@pytest.mark.parametrize("cells", [(100, 64), (64, 100), (16, 64)])
def test_cells_that_the_shipped_networks_do_not_take_are_the_exact_local_solver_s(cells):
    assert default_local_solver(Problem(cells, "laplace")).name == "exact"


@pytest.mark.parametrize("name", FORMER["local solver"])
def test_a_local_solver_that_has_left_says_what_to_use(name):
    with pytest.raises(ValueError, match=f"the local solver '{name}' has left: take 'exact'"):
        find_local_solver(name)


@pytest.mark.parametrize("network", FORMER["network"])
def test_a_file_of_a_network_that_has_left_is_refused_by_name(network, tmp_path):
    path = tmp_path / "old.h5"
    card, weights = read_model(SHIPPED / "laplace.h5")
    write_model(path, dataclasses.replace(card, network=network, pde="minimal-surface"), weights)
    with pytest.raises(ValueError, match=f"{path}: the network '{network}' has left: "):
        find_local_solver(str(path))
