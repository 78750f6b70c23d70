"""The coarse space: its nodes, the assembled operator, and what it is worth."""

import math

import numpy as np
import pytest
import torch

from mosaicdd import EllipticOperator
from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.coarse_space import assemble, hat_responses, sine_symbol
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.layouts import block_of as block_of_rank
from mosaicdd.schwarz.local_solvers.bound import BlockPlan
from mosaicdd.schwarz.local_solvers.exact import ExactSolver
from mosaicdd.schwarz.transfer import Coarsening

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)


def responses_of(block, operator, points, cpu):
    """Return the weighted responses of the exact local solver."""
    solver = ExactSolver(operator, block.lattice.subdomain)
    lines, weights = block.lattice.subdomain.centre_lines, np.tile(block.lattice.hat, 2)
    plan = BlockPlan(solver, block, lines, **cpu, weights=weights)
    hats = torch.from_numpy(block.lattice.subdomain.hats(points))
    return hat_responses(block, operator, plan.responses(hats), points)


def prolonged(coarsening, unknowns, lattice, cpu):
    """Return ``P c`` on the fine lattice, by linear interpolation along the lines."""
    coarse = Interface(Block.whole(coarsening.lattice), **cpu)
    coarsening.spread(unknowns, coarse)
    fine = Interface(Block.whole(lattice), **cpu)
    for axis, lines in enumerate(fine.lines):
        along = np.arange(lines.shape[2]) / coarsening.step
        for line, values in zip(lines[0], coarse.lines[axis][0], strict=True):
            line.copy_(torch.from_numpy(np.interp(along, np.arange(len(values)), values)))
    return fine


@pytest.mark.parametrize("points", [1, 2, 4])
@pytest.mark.parametrize(
    "operator", [EllipticOperator(), EllipticOperator(axx=5.0, axy=1.0, bx=30.0, by=-9.0, c=4.0)]
)
def test_the_assembled_operator_is_that_of_a_sweep_of_the_prolonged_values(
    operator, points, make_lattice, make_solver, cpu
):
    lattice = make_lattice((5, 6))
    block = Block.whole(lattice)
    coarsening = Coarsening(lattice, points)
    responses = responses_of(block, operator, points, cpu)
    matrix = assemble(coarsening, responses)
    solver = make_solver(
        lattice, local_solver=ExactSolver(operator, lattice.subdomain), levels=1, sweep="additive"
    )
    unknowns = torch.from_numpy(np.random.default_rng(0).standard_normal((1, coarsening.size)))
    v = prolonged(coarsening, unknowns, lattice, cpu)
    swept = v.like_boundary()
    solver.method.iterate(v, swept)
    residual = torch.empty(1, coarsening.size, dtype=torch.float64)
    coarsening.sample(v, residual, minus=swept, alone=True)  # R (v - T v)
    # Products of 8 q responses with values below 4; small ones are left out.
    np.testing.assert_allclose(matrix @ unknowns[0].numpy(), residual[0], rtol=0, atol=1e-7)


def test_sines_are_eigenvectors_of_the_assembled_operator(make_lattice, cpu):
    lattice = make_lattice((5, 7))
    block = Block.whole(lattice)
    operator = EllipticOperator(ayy=1.0, axx=3.0, c=2.0)
    responses = responses_of(block, operator, 1, cpu)
    coarsening = Coarsening(lattice, 1)
    matrix = assemble(coarsening, responses)
    ky, kx = 2, 3
    y, x = (np.arange(1, cells) / cells for cells in lattice.cells)
    mode = np.outer(np.sin(math.pi * ky * y), np.sin(math.pi * kx * x)).ravel()
    expected = sine_symbol(block, responses)(ky, kx) * mode
    np.testing.assert_allclose(matrix @ mode, expected, rtol=0, atol=1e-12)


@RANKS
@pytest.mark.parametrize("points", [1, 2, 4])
def test_what_the_ranks_touch_adds_up_to_the_whole(
    points, make_lattice, make_ranks, all_dims, random_field, interface_of
):
    lattice = make_lattice((9, 8))
    field = random_field(lattice)
    coarsening = Coarsening(lattice, points)
    whole = interface_of(Block.whole(lattice), field)
    expected = torch.empty(1, coarsening.size, dtype=torch.float64)
    coarsening.sample(whole, expected, alone=True)
    for dims in all_dims:
        ranks = make_ranks(dims)
        block = block_of_rank(ranks, lattice, ranks.rank)
        numbers = coarsening.touched(block)
        mine = torch.empty(1, len(numbers), dtype=torch.float64)
        coarsening.sample(interface_of(block, field), mine, alone=False)
        found = np.zeros(coarsening.size)
        found[numbers] = mine[0]
        np.testing.assert_array_equal(ranks.sum(found), expected[0])
        part = Interface(coarsening.block(block), device=torch.device("cpu"), dtype=torch.float64)
        coarsening.spread(expected, part)
        there = Interface(
            Block.whole(coarsening.lattice), device=part.flat.device, dtype=part.flat.dtype
        )
        coarsening.spread(expected, there)
        again = there.part(coarsening.block(block))
        np.testing.assert_array_equal(part.flat, again.flat)


@pytest.mark.parametrize("points", [3, 5, 0])
def test_points_that_do_not_divide_a_lattice_cell_are_refused(points, make_lattice):
    with pytest.raises(ValueError, match="must divide its 4 cells"):
        Coarsening(make_lattice((4, 4)), points)


@pytest.mark.parametrize("points", [1, 2, 4])
def test_more_coarse_nodes_take_fewer_iterations_to_the_same_field(
    points, make_lattice, make_solver, problem
):
    lattice = make_lattice((12, 13), m=32)
    boundary, truth = problem(lattice)
    solution = make_solver(lattice, coarse_points=points, accelerate="none", rtol=1e-9).solve(
        boundary
    )
    assert solution.iterations <= {1: 16, 2: 10, 4: 7}[points]
    np.testing.assert_allclose(solution.field, truth, rtol=0, atol=1e-8)
