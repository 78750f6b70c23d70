"""Points, windows and parts of a grid: where they lie, and what is refused."""

import itertools

import numpy as np
import pytest
import torch

import mosaicdd as m
from mosaicdd import axes
from mosaicdd.grid.window import Window, as_points, on_grid
from mosaicdd.problems.fields.evaluated import Sliced
from mosaicdd.problems.fields.fields import Field
from mosaicdd.schwarz.block import Block, part_in_window
from mosaicdd.schwarz.fill import covers

GRID = m.Domain((16, 32), 0.125).grid()  # 2 by 4 in domain coordinates
HELD = slice(30, 50), slice(8, 20)


def test_coordinates_are_cells_and_meant_nodes_are_nodes():
    grid = m.Domain((300, 400), 0.1).grid()
    nodes = np.stack(np.meshgrid(np.arange(301), np.arange(401), indexing="ij"), -1).reshape(-1, 2)
    np.testing.assert_array_equal(on_grid(nodes[:, ::-1] * 0.1, grid), nodes)
    np.testing.assert_allclose(on_grid(np.array([[1.234, 5.678]]), grid), [[56.78, 12.34]])


@pytest.mark.parametrize("point", [(-0.1, 1), (40.1, 1), (1, -0.1), (1, 30.1), (np.nan, 1)])
def test_a_point_outside_of_the_domain_is_refused(point):
    points = np.array([(1.0, 1.0), point])
    with pytest.raises(ValueError, match=r"1 of 2 points .* 0 to 40 along x .* number 2"):
        on_grid(points, m.Domain((300, 400), 0.1).grid())


def test_points_are_rows_of_two_numbers_in_any_form():
    for given in ([[1.0, 0.75]], (1.0, 0.75), torch.tensor([[1.0, 0.75]])):
        np.testing.assert_array_equal(as_points(given), [[1.0, 0.75]])
    for wrong in (np.zeros((2, 3)), 1.0, "a", [[1.0], [2.0, 3.0]]):
        with pytest.raises(ValueError, match="points must"):
            as_points(wrong)


def test_at_the_nodes_the_weights_are_the_hats_of_the_fill(make_lattice):
    lattice = make_lattice((4, 5))
    hats = [lattice.hats(axis, 1, lattice.cells[axis]) for axis in (0, 1)]
    inner = [np.arange(1, n) for n in lattice.grid.shape]
    points = np.stack(np.meshgrid(*inner, indexing="ij"), -1).reshape(-1, 2).astype(float)
    for _, centres, local, weights in covers(points, np.arange(len(points)), Block.whole(lattice)):
        rows, columns = (centres - 1).T
        y, x = local.astype(int).T
        expected = hats[0][rows, y - 1] * hats[1][columns, x - 1]
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-15)


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


def test_a_part_lies_where_it_was_cut_from_the_whole():
    whole = np.arange(60 * 30).reshape(60, 30)
    part = slice(35, 50), slice(8, 9)
    np.testing.assert_array_equal(whole[HELD][axes.within(part, HELD)], whole[part])


@pytest.mark.parametrize(
    "part",
    [
        (slice(10, 15), slice(8, 20)),  # numpy would count from the end, and find rows 30 to 35
        (slice(45, 55), slice(8, 20)),  # numpy would cut it short
        (slice(30, 50), slice(0, 12)),
        (slice(50, 51), slice(8, 20)),
    ],
)
def test_nodes_that_a_rank_does_not_hold_are_refused(part):
    values = np.arange(20.0 * 12).reshape(20, 12)
    field = Field("f", Sliced.on_part((64, 64), values, HELD))
    with pytest.raises(IndexError, match="is not held here, only"):
        field.sample(m.Domain((63, 63), 1.0).grid(), part)
