"""Windows: nodes that are wanted, and the parts of blocks that own them."""

import itertools

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.grid.window import Window
from mosaicdd.schwarz.block import Block, part_in_window

GRID = m.Domain((16, 32), 0.125).grid()  # 2 by 4 in domain coordinates


@pytest.mark.parametrize(
    ("extent", "start", "stop"),
    [
        (((0.0, 2.0), (0.0, 4.0)), (0, 0), (17, 33)),
        (((0.25, 0.5), (1.0, 1.125)), (2, 8), (5, 10)),  # on nodes: as it is
        (((0.26, 0.51), (0.99, 1.0)), (2, 7), (6, 9)),  # between nodes: outwards
        (((0.3, 0.31), (3.9, 4.0)), (2, 31), (4, 33)),  # less than a cell
    ],
)
def test_a_rectangle_is_snapped_outwards(extent, start, stop):
    window = Window.of_extent(GRID, extent)
    assert (window.start, window.stop) == (start, stop)
    for (low, high), (own_low, own_high) in zip(extent, window.extent(GRID), strict=True):
        assert own_low <= low < high <= own_high


def test_a_coordinate_that_names_a_node_is_that_node_in_spite_of_rounding():
    grid = m.Domain((300, 300), 0.1).grid()
    for node in range(1, 300):
        window = Window.of_extent(grid, ((node * 0.1, 30.0), (0.0, node * 0.1)))
        assert (window.start[0], window.stop[1]) == (node, node + 1)


@pytest.mark.parametrize(
    ("extent", "message"),
    [
        (((0.0, 2.5), (0.0, 1.0)), r"y from 0 to 2.5 .* 0 to 2"),
        (((0.0, 1.0), (-1.0, 1.0)), r"x from -1 to 1 .* 0 to 4"),
        (((1.0, 1.0), (0.0, 1.0)), "y from 1 to 1 holds nothing"),
        (((0.0, 1.0), (2.0, 1.0)), "x from 2 to 1 holds nothing"),
    ],
)
def test_a_rectangle_without_nodes_of_the_domain_is_refused_with_both_numbers(extent, message):
    with pytest.raises(ValueError, match=message):
        Window.of_extent(GRID, extent)


def blocks(lattice):
    """Cut the lattice in two along each axis."""
    low = [(1, (k + 1) // 2) for k in lattice.cells]
    high = [((k + 1) // 2, k) for k in lattice.cells]
    for parts in itertools.product(*zip(low, high, strict=True)):
        yield Block(lattice, *zip(*parts, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_of_all_blocks_own_every_node_of_a_window_once(seed, make_lattice):
    lattice = make_lattice((6, 7))
    rng = np.random.default_rng(seed)
    ends = [np.sort(rng.choice(n + 1, 2, replace=False)) for n in lattice.grid.nodes]
    window = Window(*(tuple(int(pair[i]) for pair in ends) for i in (0, 1)))
    count = np.zeros(lattice.grid.nodes, int)
    for block in blocks(lattice):
        part = part_in_window(block, window)
        wanted = window.clip(block.owned_nodes()[1])
        assert (part is None) == (wanted[0].stop == 0)
        if part is not None:
            count[window.clip(part.owned_nodes()[1])] += 1
            for axis in (0, 1):
                assert block.start[axis] <= part.start[axis] < part.stop[axis] <= block.stop[axis]
                # No more than a lattice cell too much at either end; two at the domain's edge.
                nodes = part.owned_nodes()[1][axis]
                assert nodes.start > wanted[axis].start - 2 * lattice.spacing
                assert nodes.stop <= wanted[axis].stop + 2 * lattice.spacing
    expected = np.zeros_like(count)
    expected[window.place] = 1
    np.testing.assert_array_equal(count, expected)
