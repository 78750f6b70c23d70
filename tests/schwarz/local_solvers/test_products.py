"""Products with an operator by its symmetries give what the whole operator gives, and are used where it has them."""

import numpy as np
import pytest
import torch

from mosaicdd import EllipticOperator
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.schwarz.local_solvers.bound import ChunkedPlan
from mosaicdd.schwarz.local_solvers.exact import ExactSolver, linear_plan
from mosaicdd.schwarz.local_solvers.loading import find_local_solver

CPU = torch.device("cpu")
SUBDOMAINS = [Subdomain(8), Subdomain(10), Subdomain(32), Subdomain(2, axes=3), Subdomain(6, axes=3)]  # fmt: skip
POINTS = ("centre_lines", "interior")


def operator_of(subdomain, points):
    """Return the rows of the exact operator at some points, ``(points, perimeter nodes)``."""
    return ExactSolver(EllipticOperator(c=2.0), subdomain).matrix[tuple(points.T)]


def require_product(plan, operator, counts, dtype):
    """Check a plan for batches of so many perimeters: in views, of which the rest stays as it is."""
    rng, (rows, nodes) = np.random.default_rng(0), operator.shape
    for count in counts:
        g = torch.as_tensor(rng.standard_normal((2 * count, nodes))).to(dtype)[::2]
        larger = torch.zeros(2 * count, rows + 2, dtype=dtype)
        plan(g, larger[::2, 1:-1])
        expected = g @ torch.from_numpy(operator).to(dtype).T
        # A sum of at most P products, each rounded, of sizes below 4 times the largest result.
        off = 4 * nodes * torch.finfo(dtype).eps * expected.abs().max()
        torch.testing.assert_close(larger[::2, 1:-1], expected, rtol=0, atol=float(off))
        assert not larger[1::2].any()
        assert not larger[:, [0, -1]].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("subdomain", SUBDOMAINS, ids=str)
def test_products_by_symmetries_are_those_of_the_operator(subdomain, name, weighed, dtype):
    points, half = getattr(subdomain, name), subdomain.cells / 2
    operator = operator_of(subdomain, points)
    weights = np.prod(1.5 - abs(points / half - 1), axis=1) if weighed else None
    plan = linear_plan(operator, points, subdomain, device=CPU, dtype=dtype, weights=weights)
    assert isinstance(plan, ChunkedPlan)
    expected = operator if weights is None else weights[:, None] * operator
    require_product(plan, expected, (1, 3, plan.chunk, plan.chunk + 3, 2 * plan.chunk + 1), dtype)


@pytest.mark.parametrize("name", POINTS)
def test_the_shipped_linear_network_has_the_symmetries(name):
    solver = find_local_solver("laplace").as_trained()
    points = getattr(solver.subdomain, name)
    plan = solver.plan(points, device=CPU, dtype=torch.float64)
    assert isinstance(plan, ChunkedPlan)
    require_product(plan, np.asarray(solver.matrix(points)), (5,), torch.float64)


def uneven_weights(operator, points):
    return np.linspace(1, 2, len(points))[:, None] * operator, points


def one_entry_off(operator, points):
    operator = operator.copy()
    operator[-1, 3] += 1e-9 * np.abs(operator).max()
    return operator, points


def shuffled_points(operator, points):
    order = np.random.default_rng(0).permutation(len(points))
    return operator[order], points[order]


def some_points(operator, points):
    return operator[1:], points[1:]


@pytest.mark.parametrize("change", [uneven_weights, one_entry_off, shuffled_points, some_points])
@pytest.mark.parametrize("subdomain", [Subdomain(8), Subdomain(4, axes=3)], ids=str)
def test_what_has_no_symmetry_is_planned_as_a_whole_product(subdomain, change):
    if (subdomain.axes, change) == (3, shuffled_points):
        pytest.skip("parities of a cube take points in any order")
    operator, points = change(operator_of(subdomain, subdomain.interior), subdomain.interior)
    plan = linear_plan(operator, points, subdomain, device=CPU, dtype=torch.float64)
    assert not isinstance(plan, ChunkedPlan)
    require_product(plan, operator, (3,), torch.float64)
