"""The discrete residual, measured where the field lies."""

import numpy as np
import pytest
import torch

from mosaicdd import EllipticOperator, Problem
from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.window import Strip
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.local_solvers.source import Source
from mosaicdd.schwarz.residuals import DiscreteResidual

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
LAPLACE = EllipticOperator()
NINE_POINT = EllipticOperator(ayy=2.0, axx=3.0, axy=0.7, by=1.5, bx=-4.0, c=6.0)


def strips_of(block, field, rows):
    """Cut a block's nodes out of a field, so many rows at a time, with the nodes around them."""
    _, (y, x) = block.owned_nodes()
    for start in range(y.start, y.stop, rows):
        place = (slice(start, min(start + rows, y.stop)), x)
        low = [max(part.start - 1, 0) for part in place]
        inner = [slice(p.start - a, p.stop - a) for p, a in zip(place, low, strict=True)]
        part = field[low[0] : place[0].stop + 1, low[1] : x.stop + 1]
        yield Strip(torch.from_numpy(part.copy())[None], tuple(inner), place)


@RANKS
@pytest.mark.parametrize("operator", [LAPLACE, NINE_POINT])
@pytest.mark.parametrize("cells", [(7, 7), (13, 8)])
@pytest.mark.parametrize("rows", [1, 5, 1000])
def test_it_is_the_residual_of_the_assembled_system(
    rows, cells, operator, make_lattice, make_ranks, all_dims, block_of, random_field
):
    lattice = make_lattice(cells)
    field = random_field(lattice)
    system = DirichletSystem(operator, lattice.grid)
    b = system.right_hand_side(field)
    inside = field[1:-1, 1:-1].ravel()
    expected = np.linalg.norm(system.matrix @ inside - b) / np.linalg.norm(b)
    for ranks in map(make_ranks, all_dims):
        measure = DiscreteResidual(ranks, lattice.grid, operator)
        for _ in range(2):  # it begins anew
            for strip in strips_of(block_of(ranks, lattice), field, rows):
                measure.add(strip)
            (found,) = measure.relative([Boundary.of_field(field)])
            # A sum of 1e3 squares in another order: 1e3 eps = 2e-13 at most.
            assert found == pytest.approx(expected, rel=2e-13)


@pytest.mark.parametrize("operator", [LAPLACE, NINE_POINT])
def test_the_norm_of_the_right_hand_side_needs_the_edges_alone(operator):
    field = np.random.default_rng(0).standard_normal((8, 12))
    system = DirichletSystem(operator, Grid((7, 11), 0.1))
    (norm,) = system.right_hand_side_norms([Boundary.of_field(field)])
    assert norm == pytest.approx(np.linalg.norm(system.right_hand_side(field)), rel=1e-14)


@RANKS
def test_sources_are_a_part_of_the_right_hand_side(make_lattice, make_ranks, all_dims, block_of):
    lattice = make_lattice((9, 8))
    rng = np.random.default_rng(1)
    field, f = rng.standard_normal((2, *lattice.grid.nodes))
    boundary = Boundary.of_field(field)
    problem = Problem(lattice.grid.shape, "screened-poisson", {"c": 3.0, "f": 50 * f}, boundary)
    system = DirichletSystem(problem.operator, lattice.grid)
    b = system.right_hand_side(field, 50 * f)
    inside = field[1:-1, 1:-1].ravel()
    expected = np.linalg.norm(system.matrix @ inside - b) / np.linalg.norm(b)
    source = Source(problem, lattice.grid, Subdomain(8))
    for ranks in map(make_ranks, all_dims):
        measure = DiscreteResidual(ranks, lattice.grid, problem.operator, source)
        for _ in range(2):
            for strip in strips_of(block_of(ranks, lattice), field, 3):
                measure.add(strip)
            (found,) = measure.relative([boundary])
            assert found == pytest.approx(expected, rel=2e-13)
