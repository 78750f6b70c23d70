"""The discrete residual, measured where the field lies."""

import numpy as np
import pytest
import torch

from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.discrete import DirichletSystem
from mosaicdd.problems.equations import LAPLACE, Equation
from mosaicdd.schwarz.discrete_residual import DiscreteResidual
from mosaicdd.schwarz.fill import Strip

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
NINE_POINT = Equation("nine", None, ((1.0, 2.0, 3.0), (4.0, -36.0, 5.0), (6.0, 7.0, 8.0)), None)


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
@pytest.mark.parametrize("equation", [LAPLACE, NINE_POINT])
@pytest.mark.parametrize("cells", [(7, 7), (13, 8)])
@pytest.mark.parametrize("rows", [1, 5, 1000])
def test_it_is_the_residual_of_the_assembled_system(
    rows, cells, equation, make_lattice, make_ranks, all_dims, block_of, random_field
):
    lattice = make_lattice(cells)
    field = random_field(lattice)
    system = DirichletSystem(equation, lattice.grid.shape)
    b = system.right_hand_side(field)
    inside = field[1:-1, 1:-1].ravel()
    expected = np.linalg.norm(system.matrix @ inside - b) / np.linalg.norm(b)
    for ranks in map(make_ranks, all_dims):
        measure = DiscreteResidual(ranks, lattice.grid, equation)
        for _ in range(2):  # it begins anew
            for strip in strips_of(block_of(ranks, lattice), field, rows):
                measure.add(strip)
            (found,) = measure.relative([Boundary.of_field(field)])
            # A sum of 1e3 squares in another order: 1e3 eps = 2e-13 at most.
            assert found == pytest.approx(expected, rel=2e-13)


@pytest.mark.parametrize("equation", [LAPLACE, NINE_POINT])
def test_the_norm_of_the_right_hand_side_needs_the_edges_alone(equation):
    field = np.random.default_rng(0).standard_normal((8, 12))
    system = DirichletSystem(equation, (7, 11))
    (norm,) = system.right_hand_side_norms([Boundary.of_field(field)])
    assert norm == pytest.approx(np.linalg.norm(system.right_hand_side(field)), rel=1e-14)
