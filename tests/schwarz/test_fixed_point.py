"""The discrete solution stands still under every iteration, on every process grid."""

import numpy as np
import pytest
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.schwarz.method import Method
from mosaicdd.schwarz.settings import SolveSettings

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
# Values up to 4. The field is known to a few eps; a sweep multiplies by positive operators whose
# rows add up to 1, with P = 32 products each: 32 eps * 4 = 3e-14. Three times that.
ROUNDING = 1e-13


TWO_LEVEL = {"levels": 2}
METHODS = {
    "additive": {"levels": 1},
    "phases in step": {"levels": 1, "sweep": "phases", "sync": "phase"},
    "phases relaxed": {"levels": 1, "sweep": "phases", "sync": "iteration"},
    "two levels": TWO_LEVEL,
}


@pytest.fixture
def plan(lattice, block_of):
    """Return a function that plans a method with the exact local solver on a process grid."""

    def make(grid, **settings):
        exact = ExactSolver(LAPLACE, lattice.subdomain)
        return Method(grid, block_of(grid, lattice), exact, SolveSettings(**settings))

    return make


@pytest.fixture
def lattice(make_lattice):
    return make_lattice((8, 9))


@RANKS
@pytest.mark.parametrize("name", METHODS)
def test_the_discrete_solution_is_a_fixed_point(
    name, lattice, problem, all_dims, make_grid, plan, interface_of
):
    _, field = problem(lattice)
    for grid in map(make_grid, all_dims):
        method = plan(grid, batch_subdomains=5, **METHODS[name])
        v = interface_of(method.block, field)
        out = v.like(torch.full_like(v.flat, torch.nan))
        out.copy_boundary(v)
        residual = method.iterate(v, out)
        # The coarse operator's least eigenvalue is about 0.05 * 2 (pi / K)**2 = 0.01: its inverse
        # makes up to 100 times rounding of the residual.
        atol = 100 * ROUNDING if METHODS[name] is TWO_LEVEL else ROUNDING
        np.testing.assert_allclose(out.flat, v.flat, rtol=0, atol=atol)
        assert residual.shape == method.block.subdomains
        np.testing.assert_allclose(residual, 0.0, atol=ROUNDING)


@RANKS
def test_filling_the_solution_s_interface_gives_the_solution(
    lattice, problem, all_dims, make_grid, plan, interface_of
):
    _, field = problem(lattice)
    for grid in map(make_grid, all_dims):
        method = plan(grid, batch_subdomains=12)
        fill, v = method.plan_fill(), interface_of(method.block, field)
        for _ in range(2):  # a second call overwrites the first
            result = fill(v)
        expected = field[method.block.owned_nodes()[1]]
        np.testing.assert_allclose(result, expected, rtol=0, atol=ROUNDING)


def test_on_the_lattice_lines_the_fill_is_the_sweep(
    lattice, make_grid, plan, interface_of, random_field
):
    method = plan(make_grid(alone=True), levels=1)
    v = interface_of(method.block, random_field(lattice))
    swept = v.like()
    swept.copy_boundary(v)
    method.iterate(v, swept)
    fill = method.plan_fill()
    fill(v)
    np.testing.assert_allclose(fill.on_lines(v).flat, swept.flat, rtol=0, atol=ROUNDING)


def interpolated(block, nodes, cpu):
    """Return an interface that is linear between the lattice nodes ``(K_y + 1, K_x + 1)``."""
    v, s = Interface(block, **cpu), block.lattice.spacing
    for axis, lines in enumerate((nodes, nodes.T)):
        count = lines.shape[1]
        along = np.arange((count - 1) * s + 1) / s
        values = np.array([np.interp(along, np.arange(count), line) for line in lines])
        v.lines[axis].copy_(torch.from_numpy(values))
    return v


def test_one_iteration_removes_an_error_that_the_coarse_space_holds(lattice, make_grid, plan, cpu):
    # The solution is 0; with v = P c the residual is -(I - T) P c, the correction -c and so the
    # next iterate T (P c - P c) = 0.
    method = plan(make_grid(alone=True))
    c = np.zeros([n + 1 for n in lattice.cells])
    c[1:-1, 1:-1] = np.random.default_rng(0).standard_normal(lattice.subdomains)
    v = interpolated(method.block, c, cpu)
    out = v.like()
    method.iterate(v, out)
    np.testing.assert_allclose(out.flat, 0.0, atol=100 * ROUNDING)
