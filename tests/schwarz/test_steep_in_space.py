"""Equations in the gradient of the solution in boxes: their energy, formulas, Newton's method by factorisations, and ranks."""

import itertools

import numpy as np
import pytest
import sympy
import torch
from central_differences import central_difference

import mosaicdd as m
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.equations import find_any_equation
from mosaicdd.problems.operators.patch import StencilValues
from mosaicdd.solvers.newton import newton_steps as sine_step
from mosaicdd.solvers.newton import starts
from mosaicdd.solvers.references import solve_directly

NAMES = ("minimal-surface", "p-laplace")
CELLS, H = (12, 16, 20), 0.05
NODES = tuple(n + 1 for n in CELLS)
WHOLE = tuple(slice(0, n) for n in NODES)
STEEP = "4*sin(5*x*y + z) + 3*z"


def operator(name, **fields):
    grid = Grid(CELLS, H)
    given = fields or ({} if name == "minimal-surface" else {"p": 4.0, "eps": 0.5})
    return find_any_equation(name).operator(given, grid), grid


@pytest.mark.parametrize("name", NAMES)
def test_the_residual_is_the_derivative_of_the_discrete_energy(name):
    # The energy of a voxel is the mean over its corners of that of the gradient there.
    u = torch.from_numpy(np.random.default_rng(0).standard_normal(NODES)).requires_grad_()
    rises, energy = [u.diff(dim=axis) / H for axis in range(3)], 0.0
    for corner in itertools.product((slice(None, -1), slice(1, None)), repeat=3):
        squared = 0.0
        for axis, rise in enumerate(rises):
            place = list(corner)
            place[axis] = slice(None)
            squared = squared + rise[tuple(place)] ** 2
        density = (1 + squared) ** 0.5 if name == "minimal-surface" else (0.25 + squared) ** 2 / 4
        energy = energy + H**2 / 8 * density.sum()
    (expected,) = torch.autograd.grad(energy, u)
    made, grid = operator(name)
    residual = made.on(grid, WHOLE).residual(u.detach().numpy())
    np.testing.assert_allclose(residual, expected[1:-1, 1:-1, 1:-1], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_same_of_arrays_and_of_values_that_come_one_by_one(name):
    rng, (made, _) = np.random.default_rng(0), operator(name)
    u = StencilValues.of(torch.from_numpy(rng.standard_normal((6, 5, 7))), 3)
    a = StencilValues.of(torch.from_numpy(rng.uniform(1, 2, (6, 5, 7))), 3)
    fields = {"a": a} if name == "p-laplace" else {}
    alone = {field: StencilValues(*patch.values) for field, patch in fields.items()}
    found = made.at(u, fields, H), made.at(StencilValues(*u.values), alone, H)
    np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_the_error_is_of_second_order(name):
    x, y, z = places = sympy.symbols("x y z")
    u = sympy.sin(2 * x + y - z) + x * z
    slopes = [sympy.diff(u, p) for p in places]
    squared = sum(s * s for s in slopes)
    k = 1 / sympy.sqrt(1 + squared) if name == "minimal-surface" else sympy.sqrt(0.01 + squared)
    f = -sum(sympy.diff(k * s, p) for s, p in zip(slopes, places, strict=True))
    fields = {"f": str(f)} | ({} if name == "minimal-surface" else {"p": 3.0, "eps": 0.1})
    errors = []
    for n in (8, 12, 16, 24):
        problem = m.Problem(m.Domain((n, n, n), 1 / n), name, fields, m.Dirichlet(str(u)))
        solution = m.solve(problem, rtol=1e-8)
        assert solution.status == "converged_rtol"
        z, y, x = np.meshgrid(solution.z, solution.y, solution.x, indexing="ij")
        errors.append(abs(solution.field - np.sin(2 * x + y - z) - x * z).max())
    orders = np.log(np.array(errors[:-1]) / errors[1:]) / np.log([12 / 8, 16 / 12, 24 / 16])
    assert (orders > 1.8).all(), (errors, orders)


FIELDS = {
    "minimal-surface": {"f": "x"},
    "p-laplace": {
        "p": 4.0,
        "eps": 0.2,
        "a": np.random.default_rng(0).uniform(0.5, 2.0, NODES),
        "f": "10*x",
    },
}


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("by", ["sines", "multigrid"])
@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_ranks_finds_what_newtons_method_by_factorisations_does(
    comm, by_one, monkeypatch, name, by
):
    if by == "multigrid":  # as where sine transforms are slow
        monkeypatch.setattr(sine_step, "_MOST", 0)
    problem = m.Problem(m.Domain(CELLS, H), name, FIELDS[name], m.Dirichlet(STEEP))
    solution = m.solve(problem, ranks=comm, rtol=1e-11)
    assert solution.status == "converged_rtol"
    field, reference = solution.gather(), by_one(solve_directly, problem)
    assert np.ptp(reference) > 5  # over a box of a unit and less
    np.testing.assert_allclose(field, reference, rtol=0, atol=1e-9)


def test_it_begins_with_the_solution_on_a_coarser_grid(monkeypatch):
    problem = m.Problem(m.Domain((16, 24, 32), H), "minimal-surface", {}, m.Dirichlet("2*x*y + z"))
    plain = m.solve(problem)
    monkeypatch.setattr(starts, "_LEAST", 8)
    nested = m.solve(problem)
    assert plain.converged
    assert nested.converged
    assert nested.iterations < plain.iterations
    np.testing.assert_allclose(nested.field, plain.field, rtol=0, atol=1e-5)


def test_gradients_are_central_differences():
    rng, shape = np.random.default_rng(0), (9, 9, 9)
    a, change, weights = rng.uniform(0.5, 2.0, shape), *rng.standard_normal((2, *shape))
    tight, step = m.SolveSettings(rtol=1e-11), 1e-4
    problem = m.Problem(
        m.Domain((8, 8, 8), H), "p-laplace", {"a": a, "eps": 0.3}, m.Dirichlet("x*y + z")
    )
    gradients = m.adjoint(m.solve(problem, settings=tight), weights)

    def moved(s):
        return weights * m.solve(problem.with_fields(a=a + s * change), settings=tight).field

    assert (gradients["a"] * change).sum() == central_difference(moved, step, tight.rtol)
