"""Networks in the cubes of a box: the exact cubes' field up to what the network is off by, and an estimate that sees it."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

import mosaicdd as m
from mosaicdd import SolveSettings, Unsupported
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.schwarz.local_solvers.loading import TrainedModel
from mosaicdd.schwarz.local_solvers.source import BlockSource
from mosaicdd.solvers.references import solve_by_sine_transform
from mosaicdd.storage.model_file import ModelCard

CELLS = 8
BOUNDARY = "sin(3*x)*exp(y) + cos(5*z)*x"


@pytest.fixture(scope="module")
def model_of(faces_network):
    """Return a factory of models of cubes of 8 cells, or squares, that are off by so much."""

    def make(axes, off):
        network = faces_network(Subdomain(CELLS, 0.5, axes), off)
        settings = asdict(network.settings)
        card = ModelCard("laplace", CELLS, 0.5, "faces", settings, 2, [-1.0, 1.0], axes=axes)
        return TrainedModel("waves", network, card)

    return make


@pytest.fixture(scope="module")
def model(model_of):
    return model_of(3, 1e-3)


def box(cells, pde="laplace", **fields):
    return m.Problem(m.Domain(cells, 1 / 16), pde, fields, m.Dirichlet(BOUNDARY))


def difference(solution, problem):
    inside = (solution.field - solve_by_sine_transform(problem))[1:-1, 1:-1, 1:-1]
    return np.sqrt(np.mean(inside**2))


@pytest.mark.parametrize(("pde", "fields"), [("laplace", {}), ("poisson", {"f": "sin(4*x)*y + z"})])
@pytest.mark.parametrize("cells", [(8, 8, 8), (16, 12, 20), (24, 16, 16)])
def test_the_estimate_is_above_the_error(model, cells, pde, fields):
    problem = box(cells, pde, **fields)
    solution = m.solve(problem, model, rtol=1e-10)
    error = difference(solution, problem)
    assert solution.converged
    assert error <= solution.error_estimate <= 20 * error
    assert solution.report["iterations"] <= 15


@pytest.mark.parametrize(
    "cells", [pytest.param((16, 16, 16), marks=pytest.mark.nightly), (24, 32, 40)]
)
def test_the_shipped_one_is_as_good_as_the_page_says(cells):
    problem = box(cells, "poisson", f="sin(4*x)*y + z")
    solution = m.solve(problem, "laplace-cubes", rtol=1e-8)
    error, size = difference(solution, problem), abs(solution.field).max()
    assert solution.iterations <= 15
    assert error <= solution.error_estimate
    assert error <= 1e-6 * size


def test_values_at_points_are_interpolated(model):
    problem = box((16, 16, 24))
    solution = m.solve(problem, model)
    z, y, x = 3, 5, 7
    corners = solution.field[z : z + 2, y : y + 2, x : x + 2]
    middle = (np.array([x, y, z]) + 0.5) / 16
    assert solution.at(middle[None])[0] == pytest.approx(corners.mean(), rel=1e-12)
    bound = model.bind(problem, problem.domain.grid())
    with pytest.raises(Unsupported, match="at grid nodes only"):
        bound.plan_points(device=torch.device("cpu"), dtype=torch.float64)
    kept = m.Solver(problem, model, keep="interface")(problem)
    with pytest.raises(RuntimeError, match="left out"):
        kept.at(middle[None])


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_any_number_of_ranks_gives_the_same_field(model, comm, known_by_one):
    problem = box((12, 20, 16), "poisson", f="x*y*z")
    alone = known_by_one(m.solve, problem, model, rtol=1e-12)
    together = m.solve(problem, model, ranks=comm, rtol=1e-12)
    assert together.iterations == alone.iterations
    field = together.gather()
    np.testing.assert_allclose(field, alone.field, rtol=0, atol=1e-12 * abs(field).max())


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_what_a_source_adds_is_kept_once(model, comm, known_by_one, monkeypatch):
    """For the network and for the exact cubes that estimate its error, and it is that of each problem."""
    kept, begin = [], BlockSource.__init__

    def count(self, *data, **options):
        begin(self, *data, **options)
        kept.append(options.get("kept", False))

    first, second = (box((12, 20, 16), "poisson", f=f) for f in ("x*y*z", "1 + y"))
    alone = known_by_one(m.solve, second, model, rtol=1e-12)
    monkeypatch.setattr(BlockSource, "__init__", count)
    with m.Solver(first, model, ranks=comm, settings=SolveSettings(rtol=1e-12)) as solver:
        solver(first)
        solution = solver(second)
    assert sum(kept) == 1
    field = solution.gather()
    np.testing.assert_allclose(field, alone.field, rtol=0, atol=1e-12 * abs(field).max())


@pytest.mark.ranks(1, 2)
def test_models_of_another_number_of_axes_are_refused(model_of, comm):
    square, cube = model_of(2, 0.0), model_of(3, 0.0)
    with pytest.raises(
        Unsupported, match=r"waves is of squares, and 16x16x16 cells are a box: take 'exact', or"
    ):
        m.solve(box((16, 16, 16)), square, ranks=comm)
    flat = m.Problem((16, 24), "laplace", {}, m.Dirichlet("x*y"))
    with pytest.raises(
        Unsupported, match=r"waves is of cubes, and 24x16 cells are a rectangle: take 'exact', or"
    ):
        m.solve(flat, cube, ranks=comm)


def test_what_it_does_not_solve_is_refused(model, model_of):
    with pytest.raises(Unsupported, match="does not solve screened-poisson"):
        m.solve(box((16, 16, 16), "screened-poisson", c=3.0), model)
    with pytest.raises(ValueError, match="multiple of 4"):
        m.solve(box((16, 16, 18)), model)
    with pytest.raises(ValueError, match="states no range of boundary data"):
        m.solve(box((16, 16, 16)), model, settings=SolveSettings(out_of_range="exact"))
    with pytest.raises(ValueError, match="in its self-test"):
        m.solve(box((16, 16, 16)), model_of(3, 3.0))
