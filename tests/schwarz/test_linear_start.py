"""The start of nonlinear iterations: near the linear equation's solution, alike on all ranks."""

import numpy as np
import pytest
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.nonlinear.nonlinear import SubdomainNewton
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references.references import solve_directly
from mosaicdd.problems.sides.conditions import Dirichlet
from mosaicdd.schwarz.layouts import block_of
from mosaicdd.schwarz.nonlinear import starts
from mosaicdd.schwarz.nonlinear.starts import write_linear_start


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("apart", [1, 2, 4])
def test_the_start_is_near_the_linear_equations_solution(ranks, monkeypatch, apart):
    monkeypatch.setattr(starts, "_MOST_ALONE", 96 * 160 // apart**2)
    fields = {"c": 5.0, "f": lambda x, y: 3 * np.sin(2 * x) * np.cos(y)}
    sides = Dirichlet("sin(x) * cos(y)")
    one = Problem(Domain((96, 160)), "poisson-boltzmann", fields, sides)
    linear = Problem(Domain((96, 160)), "screened-poisson", fields, sides)
    truth = solve_directly(linear)
    grid = one.domain.grid()
    bound = SubdomainNewton().bind(one, grid)
    lattice = Lattice(grid, bound.subdomain)
    block = block_of(ranks, lattice, ranks.rank)
    v = Interface(block, device=torch.device("cpu"), dtype=torch.float64)
    write_linear_start(v, bound, one.boundaries(grid)[0], 0)
    s = lattice.spacing
    region = tuple(slice(a, a + n + 1) for a, n in zip(block.origin, block.cells, strict=True))
    # Second order: the fourth derivative times the squared distance of nodes over 12, times the size.
    atol = 2 * (apart * grid.spacing) ** 2 if apart > 1 else 1e-10
    np.testing.assert_allclose(v.lines[0][0], truth[region][::s], rtol=0, atol=atol)
    np.testing.assert_allclose(v.lines[1][0], truth[region][:, ::s].T, rtol=0, atol=atol)
