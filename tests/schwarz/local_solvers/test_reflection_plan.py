"""The reflected plan is the dense one, for fewer multiplications."""

import numpy as np
import pytest
import torch

from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations import equation
from mosaicdd.schwarz.local_solvers.exact import (
    ExactSolver,
    LinearPlan,
    ReflectionPlan,
    linear_plan,
    reversed_lines,
)
from mosaicdd.schwarz.local_solvers.loading import find_local_solver

CPU = torch.device("cpu")
POINTS = ("centre_lines", "interior")
# A value is a sum of at most P = 128 products: its rounding is at most 128 eps of the sum of their
# sizes, which is below 4 times the largest value here. 1.1e-13 in double precision.
TOLERANCE = {dtype: 4 * 128 * torch.finfo(dtype).eps for dtype in (torch.float64, torch.float32)}


def exact_operator(cells, points):
    solver = ExactSolver(equation("laplace").at(), Subdomain(cells))
    return solver.matrix[points[:, 0], points[:, 1]]


def perimeters(number, cells, dtype):
    rng = np.random.default_rng(number)
    return torch.as_tensor(rng.standard_normal((number, 4 * cells))).to(dtype)


def apply(plan, g, queries):
    out = torch.full((len(g), queries), float("nan"), dtype=g.dtype)
    plan(g, out)
    return out


def assert_equal_to_rounding(found, expected):
    difference = (found - expected).abs().max()
    assert difference <= TOLERANCE[found.dtype] * expected.abs().max()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("cells", [8, 10, 32])
def test_the_exact_solver_is_reflected_and_equal_to_its_dense_product(cells, name, dtype):
    subdomain = Subdomain(cells)
    points = getattr(subdomain, name)
    plan = ExactSolver(equation("laplace").at(), subdomain).plan(points, device=CPU, dtype=dtype)
    assert isinstance(plan, ReflectionPlan)
    dense = LinearPlan(exact_operator(cells, points), device=CPU, dtype=dtype)
    for number in (1, 3, 257):
        g = perimeters(number, cells, dtype)
        assert_equal_to_rounding(apply(plan, g, len(points)), apply(dense, g, len(points)))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", POINTS)
def test_the_shipped_linear_network_is_reflected_and_equal_to_its_dense_product(name, dtype):
    solver = find_local_solver("laplace").as_trained()
    points = getattr(solver.subdomain, name)
    plan = solver.plan(points, device=CPU, dtype=dtype)
    assert isinstance(plan, ReflectionPlan)
    dense = LinearPlan(solver.matrix(points), device=CPU, dtype=dtype)
    g = perimeters(5, solver.subdomain.cells, dtype)
    assert_equal_to_rounding(apply(plan, g, len(points)), apply(dense, g, len(points)))


@pytest.mark.parametrize("name", POINTS)
def test_a_subdomain_gets_the_same_values_in_any_batch(name):
    subdomain = Subdomain(10)
    points = getattr(subdomain, name)
    solver = ExactSolver(equation("laplace").at(), subdomain)
    plan = solver.plan(points, device=CPU, dtype=torch.float64)
    g = perimeters(2 * plan.chunk + 1, 10, torch.float64)
    together = apply(plan, g, len(points))
    some = [0, plan.chunk - 1, plan.chunk, 2 * plan.chunk]
    for i in some:
        assert_equal_to_rounding(apply(plan, g[i : i + 1], len(points)), together[i : i + 1])


def test_views_of_larger_arrays_are_read_and_written_in_place():
    points = Subdomain(8).interior
    operator = exact_operator(8, points)
    plan = linear_plan(operator, points, Subdomain(8), device=CPU, dtype=torch.float64)
    g = perimeters(6, 8, torch.float64)
    larger = torch.zeros(6, len(points) + 2, dtype=torch.float64)
    plan(g[::2], larger[::2, 1:-1])
    assert_equal_to_rounding(larger[::2, 1:-1], g[::2] @ torch.from_numpy(operator).T)
    assert not larger[1::2].any()
    assert not larger[:, [0, -1]].any()


@pytest.mark.parametrize("name", POINTS)
def test_weights_scale_the_values(name):
    subdomain = Subdomain(8)
    points = getattr(subdomain, name)
    operator = exact_operator(8, points)
    weights = np.prod(1 - np.abs(points / 4 - 1), axis=1)
    options = {"device": CPU, "dtype": torch.float64}
    plan = linear_plan(operator, points, subdomain, weights=weights, **options)
    assert isinstance(plan, ReflectionPlan)
    g = perimeters(7, 8, torch.float64)
    expected = g @ torch.from_numpy(operator).T * torch.from_numpy(weights)
    assert_equal_to_rounding(apply(plan, g, len(points)), expected)


def uneven_weights(operator, points):
    return np.linspace(1, 2, len(points))[:, None] * operator, points


def one_entry_off(operator, points):
    operator = operator.copy()
    operator[5, 3] += 1e-11 * np.abs(operator).max()
    return operator, points


def shuffled_points(operator, points):
    order = np.random.default_rng(0).permutation(len(points))
    return operator[order], points[order]


@pytest.mark.parametrize("change", [uneven_weights, one_entry_off, shuffled_points])
def test_what_the_reflection_does_not_keep_is_planned_as_a_dense_product(change):
    points = Subdomain(8).interior
    operator, points = change(exact_operator(8, points), points)
    plan = linear_plan(operator, points, Subdomain(8), device=CPU, dtype=torch.float64)
    assert isinstance(plan, LinearPlan)
    g = perimeters(3, 8, torch.float64)
    assert_equal_to_rounding(apply(plan, g, len(points)), g @ torch.from_numpy(operator).T)


def test_the_lines_are_those_that_the_reflection_reverses():
    subdomain = Subdomain(10)
    assert reversed_lines(subdomain.interior, subdomain) == 1
    assert reversed_lines(subdomain.centre_lines, subdomain) == 2
    assert reversed_lines(subdomain.perimeter, subdomain) is None
