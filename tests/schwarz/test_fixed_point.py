"""The discrete solution stands still under every iteration, on every process grid."""

import numpy as np
import pytest
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.local_solvers.exact import ExactSolver
from mosaicdd.problems.equations import LAPLACE
from mosaicdd.schwarz.line_residual import LineResidual
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
        assert residual.shape == (1, *method.block.subdomains)
        np.testing.assert_allclose(residual, 0.0, atol=ROUNDING)


@RANKS
@pytest.mark.parametrize("batch", [8, 100, 10_000])
def test_filling_the_solution_s_interface_gives_the_solution(
    batch, lattice, problem, all_dims, make_grid, plan, interface_of
):
    _, field = problem(lattice)
    for grid in map(make_grid, all_dims):
        method = plan(grid, batch_subdomains=batch)
        fill = method.plan_fill()
        v = interface_of(fill.block, field)
        for _ in range(2):  # a second call overwrites the first
            filled = np.full(field.shape, np.nan)
            for strip in fill.strips(v):
                assert np.isnan(filled[strip.place]).all()
                filled[strip.place] = strip.owned[0]
                around = tuple(
                    slice(p.start - i.start, p.start - i.start + n)
                    for p, i, n in zip(
                        strip.place, strip.inner, strip.values.shape[1:], strict=True
                    )
                )
                np.testing.assert_allclose(strip.values[0], field[around], rtol=0, atol=ROUNDING)
        place = method.block.owned_nodes()[1]
        np.testing.assert_allclose(filled[place], field[place], rtol=0, atol=ROUNDING)


@RANKS
def test_on_the_lattice_lines_the_fill_is_the_sweep(
    lattice, all_dims, make_grid, plan, interface_of, random_field
):
    for grid in map(make_grid, all_dims):
        method = plan(grid, levels=1)
        field = random_field(lattice)
        v = interface_of(method.block, field)
        swept = v.like_boundary()
        method.iterate(v, swept)
        residual, fill = LineResidual(grid, v), method.plan_fill()
        filled = np.zeros(field.shape)
        for strip in fill.strips(interface_of(fill.block, field)):
            filled[strip.place] = strip.owned[0]
            residual.add(strip)
        for mine, theirs in zip(
            interface_of(method.block, filled).owned_parts(), swept.owned_parts(), strict=True
        ):
            if grid.size == 1:
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=ROUNDING)
        squares = sum(
            (one - other).square().sum().item()
            for one, other in zip(swept.owned_parts(), v.owned_parts(), strict=True)
        )
        expected = np.sqrt(grid.sum(np.array([squares]))[0] / lattice.unknowns)
        assert residual.root_mean_square()[0] == pytest.approx(expected, rel=1e-12)


def interpolated(block, nodes, cpu):
    """Return an interface that is linear between the lattice nodes ``(K_y + 1, K_x + 1)``."""
    v, s = Interface(block, **cpu), block.lattice.spacing
    for axis, lines in enumerate((nodes, nodes.T)):
        count = lines.shape[1]
        along = np.arange((count - 1) * s + 1) / s
        values = np.array([np.interp(along, np.arange(count), line) for line in lines])
        v.lines[axis][0].copy_(torch.from_numpy(values))
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
