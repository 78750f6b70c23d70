"""The discrete solution stands still under every iteration, on every process grid."""

import itertools

import numpy as np
import pytest
import torch

from mosaicdd import SolveSettings
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.method import SharedMethod
from mosaicdd.schwarz.residuals import NodeResidual
from mosaicdd.schwarz.sweep import SweepContext

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
# Values up to 4. The field is known to a few eps; a sweep multiplies by positive operators whose
# rows add up to 1, with P = 32 products each: 32 eps * 4 = 3e-14. Three times that.
ROUNDING = 1e-13


TWO_LEVEL = {"levels": 2}
METHODS = {
    "additive": {"levels": 1, "sweep": "additive"},
    "phases in step": {"levels": 1, "sweep": "phases", "sync": "phase"},
    "phases relaxed": {"levels": 1, "sweep": "phases", "sync": "iteration"},
    "two levels": TWO_LEVEL,
}


@pytest.fixture
def plan_on(block_of):
    """Return a function that plans a method with the exact local solver on a process grid."""

    def make(lattice, ranks, **settings):
        exact = ExactSolver(LAPLACE.at(), lattice.subdomain)
        task = SweepContext(ranks, block_of(ranks, lattice), SolveSettings(**settings))
        return SharedMethod(task, exact)

    return make


@pytest.fixture
def plan(lattice, plan_on):
    """Return such a function for one lattice."""

    def make(ranks, **settings):
        return plan_on(lattice, ranks, **settings)

    return make


@pytest.fixture
def lattice(make_lattice):
    return make_lattice((8, 9))


@RANKS
@pytest.mark.parametrize("name", METHODS)
def test_the_discrete_solution_is_a_fixed_point(
    name, lattice, problem, all_dims, make_ranks, plan, interface_of
):
    _, field = problem(lattice)
    for ranks in map(make_ranks, all_dims):
        method = plan(ranks, batch_subdomains=5, **METHODS[name])
        v = interface_of(method.task.block, field)
        out = v.like(torch.full_like(v.flat, torch.nan))
        out.copy_boundary(v)
        residual = method.iterate(v, out)
        # The coarse operator's least eigenvalue is about 0.05 * 2 (pi / K)**2 = 0.01: its inverse
        # makes up to 100 times rounding of the residual.
        atol = 100 * ROUNDING if METHODS[name] is TWO_LEVEL else ROUNDING
        np.testing.assert_allclose(out.flat, v.flat, rtol=0, atol=atol)
        assert residual.shape == (1, *method.task.block.subdomains)
        np.testing.assert_allclose(residual, 0.0, atol=ROUNDING)


@RANKS
@pytest.mark.parametrize("batch", [8, 100, 10_000])
def test_filling_the_solution_s_interface_gives_the_solution(
    batch, lattice, problem, all_dims, make_ranks, plan, interface_of
):
    _, field = problem(lattice)
    for ranks in map(make_ranks, all_dims):
        method = plan(ranks, batch_subdomains=batch)
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
        place = method.task.block.owned_nodes()[1]
        np.testing.assert_allclose(filled[place], field[place], rtol=0, atol=ROUNDING)


@RANKS
@pytest.mark.parametrize("cells", [(8, 9), (7, 8), (9, 9)])
def test_a_tile_is_filled_from_its_own_perimeter(
    cells, make_lattice, all_dims, make_ranks, plan_on, interface_of, random_field
):
    lattice = make_lattice(cells)
    field = random_field(lattice)
    expected = filled_tile_by_tile(field, lattice)
    for ranks in map(make_ranks, all_dims):
        fill = plan_on(lattice, ranks).plan_fill()
        place = fill.block.owned_nodes()[1]
        filled = np.full(field.shape, np.nan)
        for strip in fill.strips(interface_of(fill.block, field)):
            filled[strip.place] = strip.owned[0]
        np.testing.assert_allclose(filled[place], expected[place], rtol=0, atol=ROUNDING)
        region = torch.full((1, *(n + 1 for n in fill.block.cells)), torch.nan, dtype=torch.float64)
        kept = list(fill.strips(interface_of(fill.block, field), region))
        assert all(np.array_equal(strip.owned[0], filled[strip.place]) for strip in kept)


def filled_tile_by_tile(field, lattice):
    """Keep a field's even lattice lines and solve inside of every tile; the last may be halved."""
    subdomain, s = lattice.subdomain, lattice.spacing
    plan = ExactSolver(LAPLACE.at(), subdomain).plan(
        subdomain.interior, device=torch.device("cpu"), dtype=torch.float64
    )
    corners = [
        [(first, 0) for first in range(0, k - 1, 2)] + [(k - 2, s)] * (k % 2) for k in lattice.cells
    ]
    filled = field.copy()
    for (row, skip_y), (column, skip_x) in itertools.product(*corners):
        y, x = subdomain.perimeter.T
        perimeter = torch.from_numpy(field[row * s + y, column * s + x])
        values = torch.empty(1, len(subdomain.interior), dtype=torch.float64)
        plan(perimeter[None], values)
        y, x = subdomain.interior.T
        mine = (y > skip_y) & (x > skip_x)
        filled[row * s + y[mine], column * s + x[mine]] = values[0][mine]
    return filled


@RANKS
def test_the_residual_of_the_fill_is_that_of_the_sweep_at_the_centres_of_the_tiles(
    lattice, all_dims, make_ranks, plan, interface_of, random_field
):
    for ranks in map(make_ranks, all_dims):
        method = plan(ranks, levels=1, sweep="additive")
        field = random_field(lattice)
        v = interface_of(method.task.block, field)
        residual, fill = NodeResidual(ranks, v), method.plan_fill()
        for strip in fill.strips(interface_of(fill.block, field)):
            residual.add(strip)
        start = method.task.block.start
        odd = method.iterate(v, v.like_boundary())[
            0, (start[0] + 1) % 2 :: 2, (start[1] + 1) % 2 :: 2
        ]
        squares = ranks.sum(np.array([odd.square().sum().item(), odd.numel()]))
        expected = np.sqrt(squares[0] / squares[1])
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


def test_one_iteration_removes_an_error_that_the_coarse_space_holds(lattice, make_ranks, plan, cpu):
    # The solution is 0; with v = P c the residual is -(I - T) P c, the correction -c and so the
    # next iterate T (P c - P c) = 0.
    method = plan(make_ranks(alone=True))
    c = np.zeros([n + 1 for n in lattice.cells])
    c[1:-1, 1:-1] = np.random.default_rng(0).standard_normal(lattice.subdomains)
    v = interpolated(method.task.block, c, cpu)
    out = v.like()
    method.iterate(v, out)
    np.testing.assert_allclose(out.flat, 0.0, atol=100 * ROUNDING)
