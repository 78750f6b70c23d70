"""Blocks of a shape: cut by its unknowns, which the ranks count together; empty ones solve along."""

import numpy as np
import pytest

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.conditions import Dirichlet
from mosaicdd.schwarz.layouts import block_of
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.setup import active_nodes
from mosaicdd.schwarz.solver import solve

AN_L = "minimum(x, y) - 1.5"
CORNER = "hypot(x, y) - 1.1"
SIDE = 4.0


def a_shape(distance, cells):
    domain = Domain.from_distance(distance, (cells, cells), SIDE / cells)
    return Problem(domain, "poisson", {"f": 1.0}, Dirichlet("sin(x) * y"))


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("cells", [96, 101])
@pytest.mark.parametrize("periodic", [(False, False), (True, False)])
def test_every_node_inside_is_counted_once(comm, cells, periodic):
    grid = Grid((cells, cells), SIDE / cells)
    lattice = Lattice.around(grid, Subdomain(32, 32 * grid.spacing), periodic)
    shape = a_shape(CORNER, cells).domain.shape
    inside = shape.level(grid, (slice(0, cells + 1),) * 2) < 0
    with Ranks.of(comm) as ranks:
        counted = active_nodes(shape, lattice, ranks)
    expected = np.zeros(lattice.subdomains, int)
    np.add.at(
        expected,
        tuple(
            nearest[at] for nearest, at in zip(closest(lattice), np.nonzero(inside), strict=True)
        ),
        1,
    )
    np.testing.assert_array_equal(counted, expected)


def closest(lattice):
    """Return the subdomain along each axis whose centre is nearest to each node, the upper of two."""
    nodes = np.arange(lattice.grid.nodes[0])
    for axis in (0, 1):
        centres = np.arange(lattice.first_centre[axis], lattice.cells[axis]) * lattice.spacing
        distances = abs(nodes[:, None] + 0.25 - centres - lattice.first_node[axis])
        yield distances.argmin(axis=1)


@pytest.mark.ranks(2, 3, 4, 6)
def test_the_most_unknowns_of_a_rank_are_fewer_than_if_the_area_were_cut_evenly(comm):
    solution = solve(a_shape(AN_L, 384), ranks=comm)
    counts = comm.allgather(np.isfinite(solution.local).sum())
    inside = np.isfinite(solution.gather())
    with Ranks.of(comm) as ranks:
        lattice = Lattice.around(Grid((384, 384), SIDE / 384), Subdomain(32, 32 * SIDE / 384))
        even = ranks.fitted(lattice.subdomains)
        places = [block_of(even, lattice, rank).owned_nodes()[1] for rank in range(ranks.size)]
    assert sum(counts) == inside.sum()
    assert max(counts) < 0.9 * max(inside[place].sum() for place in places)


@pytest.mark.ranks(4, 6)
def test_a_rank_without_any_unknowns_takes_part(comm):
    """The corner has fewer columns of subdomains than there are ranks."""
    problem = a_shape(CORNER, 128)
    alone = solve(problem, settings=SolveSettings(rtol=1e-9))
    tight = SolveSettings(rtol=1e-9, dims=(1, comm.size))
    together = solve(problem, ranks=comm, settings=tight)
    assert min(comm.allgather(np.isfinite(together.local).sum())) == 0
    assert together.iterations == alone.iterations
    inside = np.isfinite(alone.field)
    np.testing.assert_array_equal(np.isfinite(together.gather()), inside)
    np.testing.assert_allclose(together.gather()[inside], alone.field[inside], atol=1e-10)
