"""Fields with ghost nodes over the ranks: every rank has the right values of the whole, wherever they come from."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.grid.ghosts import GhostNodes
from mosaicdd.grid.partition import NodeBoxes, Partition

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)
# Uneven parts, an odd number of nodes, and one that repeats.
GRIDS = [((28, 44), (False, False)), ((30, 43), (False, True)), ((26, 45), (True, True))]


def partition_of(ranks, cells, periodic):
    boxes = NodeBoxes.of_size(m.Domain(cells, 0.5).grid(), periodic, 4)
    return Partition(boxes, ranks.fitted(boxes.counts))


def whole(partition):
    """Return values at all nodes, no two alike; along a periodic axis the last node has the value of the first."""
    values = np.random.default_rng(0).standard_normal(partition.grid.nodes)
    for axis, around in enumerate(partition.periodic):
        if around:
            np.moveaxis(values, axis, 0)[-1] = np.moveaxis(values, axis, 0)[0]
    return values


def cut(values, part, partition):
    """Return what a part that may go on beyond the grid has of the whole."""
    rows = [np.arange(p.start, p.stop) for p in part]
    around = zip(rows, partition.rounds, strict=True)
    return values[np.ix_(*(at if period is None else at % period for at, period in around))]


@pytest.mark.parametrize("beyond", [True, False])
@pytest.mark.parametrize(("cells", "periodic"), GRIDS)
def test_ghost_nodes_have_the_values_of_the_whole(ranks, cells, periodic, beyond):
    partition = partition_of(ranks, cells, periodic)
    ghosts, values = GhostNodes(partition, 5, beyond=beyond), whole(partition)
    held = ghosts.with_ghosts(values[ghosts.owned])
    np.testing.assert_array_equal(held, cut(values, ghosts.ghosted, partition))
    np.testing.assert_array_equal(ghosts.without_ghosts(held), values[ghosts.owned])
    ends = zip(ghosts.ghosted, values.shape, strict=True)
    inside = all(p.start >= 0 and p.stop <= n for p, n in ends)
    assert inside or beyond
    for own, wide, nodes in zip(ghosts.owned, ghosts.ghosted, values.shape, strict=True):
        assert wide.start <= max(own.start - 5, 0)
        assert wide.stop >= min(own.stop + 5, nodes)


def test_values_of_two_periodic_sides_may_differ_within_the_grid(ranks):
    """As those of a source that jumps there."""
    partition = partition_of(ranks, (30, 43), (False, True))
    ghosts = GhostNodes(partition, 5, beyond=False)
    values = np.random.default_rng(0).standard_normal(partition.grid.nodes)
    np.testing.assert_array_equal(ghosts.with_ghosts(values[ghosts.owned]), values[ghosts.ghosted])


@pytest.mark.parametrize(("cells", "periodic"), GRIDS)
def test_every_node_has_one_owner(ranks, cells, periodic):
    partition = partition_of(ranks, cells, periodic)
    owned, unknown = (np.zeros(partition.grid.nodes) for _ in range(2))
    owned[partition.owned], unknown[partition.unknowns] = 1.0, 1.0
    assert (ranks.sum(owned) == 1.0).all()
    once = tuple(slice(0, n - wraps) for n, wraps in zip(unknown.shape, periodic, strict=True))
    expected = np.zeros_like(unknown)
    expected[once] = 1.0
    np.testing.assert_array_equal(ranks.sum(unknown), expected)


@pytest.mark.parametrize(("cells", "periodic"), GRIDS)
def test_a_region_is_what_is_owned_and_one_more_all_around(ranks, cells, periodic):
    partition = partition_of(ranks, cells, periodic)
    for given in (False, True):
        region = partition.region(values_given=given)
        for axis, (own, part) in enumerate(zip(partition.unknowns, region.nodes, strict=True)):
            limits = (0, cells[axis] + 1) if given and not periodic[axis] else (-9, 999)
            assert part.start == max(own.start - 1, limits[0])
            assert part.stop == min(own.stop + 1, limits[1])
            low, high = region.at_edge(axis)
            assert low == (given and not periodic[axis] and own.start == 0)
            assert high == (given and not periodic[axis] and own.stop == cells[axis] + 1)
            inner = region.inner[axis]
            assert inner.start + part.start == own.start + low
            assert inner.stop + part.start == own.stop - high
