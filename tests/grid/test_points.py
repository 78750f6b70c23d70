"""Points between nodes: every one is owned once and covered with weights that add up to 1."""

import numpy as np
import pytest
import torch

import mosaicdd as m
from mosaicdd.grid.points import as_points, on_grid
from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.point_values import covers, owned_points


def some_points(lattice, count=500):
    """Return points on the grid, some of them on nodes, lattice lines and the edge."""
    shape = np.array(lattice.grid.shape)
    points = np.random.default_rng(0).uniform(0, shape, (count, 2))
    points[:100] = np.rint(points[:100])
    points[100:150, 0] = lattice.spacing * np.rint(points[100:150, 0] / lattice.spacing)
    points[150:160], points[160:170, 1] = shape, 0.0
    return points


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


def test_every_point_is_owned_by_one_block(make_lattice):
    lattice = make_lattice((6, 7))
    points = some_points(lattice)
    blocks = [
        Block(lattice, (a, b), (c, d), 2)
        for a, c in ((1, 3), (3, 6))
        for b, d in ((1, 2), (2, 3), (3, 7))
    ]
    owners = sum(owned_points(points, block).astype(int) for block in blocks)
    np.testing.assert_array_equal(owners, 1)


def test_the_weights_add_up_to_1_and_belong_to_subdomains_that_hold_the_point(make_lattice):
    lattice = make_lattice((6, 7))
    points, index = some_points(lattice), np.arange(3, 500)
    total = np.zeros(len(points))
    for cover in covers(points, index, Block.whole(lattice)):
        total[cover.index] += cover.weights
        assert (cover.centres >= 1).all()
        assert (cover.centres < lattice.cells).all()
        assert ((cover.local >= 0) & (cover.local <= lattice.subdomain.cells)).all()
        corner = (cover.centres - 1) * lattice.spacing
        np.testing.assert_array_equal(corner + cover.local, points[cover.index])
    np.testing.assert_array_equal(total[:3], 0)
    np.testing.assert_allclose(total[3:], 1, rtol=0, atol=4 * np.finfo(float).eps)


def test_at_the_nodes_the_weights_are_the_hats_of_the_fill(make_lattice):
    lattice = make_lattice((4, 5))
    hats = [lattice.hats(axis, 1, lattice.cells[axis]) for axis in (0, 1)]
    inner = [np.arange(1, n) for n in lattice.grid.shape]
    points = np.stack(np.meshgrid(*inner, indexing="ij"), -1).reshape(-1, 2).astype(float)
    for cover in covers(points, np.arange(len(points)), Block.whole(lattice)):
        rows, columns = (cover.centres - 1).T
        y, x = cover.local.astype(int).T
        expected = hats[0][rows, y - 1] * hats[1][columns, x - 1]
        np.testing.assert_allclose(cover.weights, expected, rtol=0, atol=1e-15)
