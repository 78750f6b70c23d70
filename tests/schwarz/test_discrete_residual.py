"""The discrete residual, measured where the field lies."""

import numpy as np
import pytest
import torch

from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.discrete import DirichletSystem
from mosaicdd.problems.equations import LAPLACE, Equation
from mosaicdd.schwarz.discrete_residual import DiscreteResidual

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
NINE_POINT = Equation("nine", None, ((1.0, 2.0, 3.0), (4.0, -36.0, 5.0), (6.0, 7.0, 8.0)), None)


def region_of(block, field):
    """Cut a block's region out of a field; what others own is made unusable."""
    (y, x), whole = block.owned_nodes()
    region = torch.full([n + 1 for n in block.cells], torch.nan, dtype=torch.float64)
    region[y, x] = torch.from_numpy(field[whole])
    return region


@RANKS
@pytest.mark.parametrize("equation", [LAPLACE, NINE_POINT])
@pytest.mark.parametrize("cells", [(7, 7), (13, 8)])
def test_it_is_the_residual_of_the_assembled_system(
    cells, equation, make_lattice, make_grid, all_dims, block_of, random_field
):
    lattice = make_lattice(cells)
    field = random_field(lattice)
    system = DirichletSystem(equation, lattice.grid.shape)
    b = system.right_hand_side(field)
    inside = field[1:-1, 1:-1].ravel()
    expected = np.linalg.norm(system.matrix @ inside - b) / np.linalg.norm(b)
    for grid in map(make_grid, all_dims):
        block = block_of(grid, lattice)
        region = region_of(block, field)
        measure = DiscreteResidual(grid, block, equation, region)
        # A sum of 1e3 squares in another order: 1e3 eps = 2e-13 at most.
        assert measure(region, Boundary.of_field(field)) == pytest.approx(expected, rel=2e-13)


@pytest.mark.parametrize("equation", [LAPLACE, NINE_POINT])
def test_the_norm_of_the_right_hand_side_needs_the_edges_alone(equation):
    field = np.random.default_rng(0).standard_normal((8, 12))
    system = DirichletSystem(equation, (7, 11))
    norm = system.right_hand_side_norm(Boundary.of_field(field))
    assert norm == pytest.approx(np.linalg.norm(system.right_hand_side(field)), rel=1e-14)
