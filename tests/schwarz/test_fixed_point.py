"""The discrete solution stands still under every iteration, on every process grid."""

import numpy as np
import pytest
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.schwarz.coarse_space import CoarseSpace, TwoLevel
from mosaicdd.schwarz.fill import Fill
from mosaicdd.schwarz.sweep import AdditiveSweep, PhaseSweep

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
# Values up to 4. The field is known to a few eps; a sweep multiplies by positive operators whose
# rows add up to 1, with P = 32 products each: 32 eps * 4 = 3e-14. Three times that.
ROUNDING = 1e-13


def additive(grid, block, plan, cpu):
    return AdditiveSweep(grid, block, plan, batch_subdomains=5, **cpu)


def phases_in_step(grid, block, plan, cpu):
    return PhaseSweep(grid, block, plan, sync="phase", batch_subdomains=5, **cpu)


def phases_relaxed(grid, block, plan, cpu):
    return PhaseSweep(grid, block, plan, sync="iteration", batch_subdomains=5, **cpu)


def two_level(grid, block, plan, cpu):
    return TwoLevel(additive(grid, block, plan, cpu), CoarseSpace(grid, block, plan, **cpu))


@pytest.fixture
def lattice(make_lattice):
    return make_lattice((8, 9))


@RANKS
@pytest.mark.parametrize("make", [additive, phases_in_step, phases_relaxed, two_level])
def test_the_discrete_solution_is_a_fixed_point(
    make, lattice, problem, all_dims, make_grid, block_of, interface_of, cpu
):
    _, field = problem(lattice)
    for grid in map(make_grid, all_dims):
        block = block_of(grid, lattice)
        plan = ExactSolver(LAPLACE, lattice.subdomain).plan(lattice.subdomain.centre_lines, **cpu)
        v = interface_of(block, field)
        out = v.like(torch.full_like(v.flat, torch.nan))
        out.copy_boundary(v)
        residual = make(grid, block, plan, cpu)(v, out)
        # The coarse operator's least eigenvalue is about 0.05 * 2 (pi / K)**2 = 0.01: its inverse
        # makes up to 100 times rounding of the residual.
        atol = 100 * ROUNDING if make is two_level else ROUNDING
        np.testing.assert_allclose(out.flat, v.flat, rtol=0, atol=atol)
        assert residual.shape == block.subdomains
        np.testing.assert_allclose(residual, 0.0, atol=ROUNDING)


@RANKS
def test_filling_the_solution_s_interface_gives_the_solution(
    lattice, problem, all_dims, make_grid, block_of, interface_of, cpu
):
    _, field = problem(lattice)
    for grid in map(make_grid, all_dims):
        block = block_of(grid, lattice)
        plan = ExactSolver(LAPLACE, lattice.subdomain).plan(lattice.subdomain.interior, **cpu)
        fill = Fill(grid, block, plan, batch_subdomains=3, **cpu)
        v = interface_of(block, field)
        for _ in range(2):  # a second call overwrites the first
            result = fill(v)
        np.testing.assert_allclose(result, field[block.owned_nodes()[1]], rtol=0, atol=ROUNDING)


def test_on_the_lattice_lines_the_fill_is_the_sweep(
    lattice, make_grid, block_of, interface_of, cpu
):
    grid, random = make_grid(alone=True), np.random.default_rng(0)
    block, exact = block_of(grid, lattice), ExactSolver(LAPLACE, lattice.subdomain)
    v = interface_of(block, random.standard_normal(lattice.grid.nodes))
    swept = v.like()
    swept.copy_boundary(v)
    additive(grid, block, exact.plan(lattice.subdomain.centre_lines, **cpu), cpu)(v, swept)
    fill = Fill(
        grid, block, exact.plan(lattice.subdomain.interior, **cpu), batch_subdomains=7, **cpu
    )
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


def test_one_iteration_removes_an_error_that_the_coarse_space_holds(
    lattice, make_grid, block_of, cpu
):
    # The solution is 0; with v = P c the residual is -(I - T) P c, the correction -c and so the
    # next iterate T (P c - P c) = 0.
    grid = make_grid(alone=True)
    block, exact = block_of(grid, lattice), ExactSolver(LAPLACE, lattice.subdomain)
    plan = exact.plan(lattice.subdomain.centre_lines, **cpu)
    c = np.zeros([n + 1 for n in lattice.cells])
    c[1:-1, 1:-1] = np.random.default_rng(0).standard_normal(lattice.subdomains)
    v = interpolated(block, c, cpu)
    out = v.like()
    two_level(grid, block, plan, cpu)(v, out)
    np.testing.assert_allclose(out.flat, 0.0, atol=100 * ROUNDING)
