"""Blocks of a shape: cut by its unknowns, which the ranks count together; empty ones solve along."""

import itertools

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.grid.partition import NodeBoxes
from mosaicdd.solution.setup import active_nodes

AN_L = "minimum(x, y) - 1.5"
CORNER = "hypot(x, y) - 1.1"
SIDE = 4.0


def a_shape(distance, cells):
    domain = m.Domain.from_distance(distance, (cells, cells), SIDE / cells)
    return m.Problem(domain, "poisson", {"f": 1.0}, m.Dirichlet("sin(x) * y"))


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("cells", [96, 101])
@pytest.mark.parametrize("periodic", [(False, False), (True, False)])
def test_every_node_inside_is_counted_once(comm, cells, periodic):
    grid = m.Domain((cells, cells), SIDE / cells).grid()
    boxes = NodeBoxes.of_size(grid, periodic, 8)
    shape = a_shape(CORNER, cells).domain.shape
    inside = shape.level(grid, (slice(0, cells + 1),) * 2) < 0
    with m.Ranks.of(comm) as ranks:
        counted = active_nodes(shape, boxes, ranks)
    rows, columns = (
        np.searchsorted(edges[1:-1], at, side="right")
        for edges, at in zip(boxes.edges, np.nonzero(inside), strict=True)
    )
    expected = np.zeros(boxes.counts, int)
    np.add.at(expected, (rows, columns), 1)
    np.testing.assert_array_equal(counted, expected)


@pytest.mark.ranks(2, 3, 4, 6)
def test_the_most_unknowns_of_a_rank_are_fewer_than_if_the_area_were_cut_evenly(comm):
    solution = m.solve(a_shape(AN_L, 384), ranks=comm)
    counts = comm.allgather(np.isfinite(solution.local).sum())
    inside = np.isfinite(solution.gather())
    with m.Ranks.of(comm) as ranks:
        boxes = NodeBoxes.of_size(m.Domain((384, 384), SIDE / 384).grid(), (False, False), 16)
        along = boxes.along(ranks.fitted(boxes.counts).dims)
        places = list(itertools.product(*along))
    assert sum(counts) == inside.sum()
    assert max(counts) < 0.9 * max(inside[place].sum() for place in places)


@pytest.mark.ranks(4, 6)
def test_a_corner_is_shared_out_to_more_ranks_than_are_beside_each_other(comm):
    problem = a_shape(CORNER, 128)
    alone = m.solve(problem, settings=m.SolveSettings(rtol=1e-9))
    tight = m.SolveSettings(rtol=1e-9, dims=(1, comm.size))
    together = m.solve(problem, ranks=comm, settings=tight)
    assert together.iterations == alone.iterations
    inside = np.isfinite(alone.field)
    np.testing.assert_array_equal(np.isfinite(together.gather()), inside)
    np.testing.assert_allclose(together.gather()[inside], alone.field[inside], atol=1e-10)
