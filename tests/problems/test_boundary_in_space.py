"""Values on the sides of a box: the same code as of a rectangle."""

import numpy as np
import pytest
import torch

import mosaicdd as m
from mosaicdd.grid.faces import perimeter_nodes
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.shapes.outline import side_names
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.lattice import Lattice

GRID = m.Domain((8, 12, 16), 0.5).grid()


@pytest.fixture
def field():
    return np.random.default_rng(0).uniform(-5, 5, GRID.nodes)


def test_sides_along_x_come_first_and_have_the_same_names_in_the_plane_and_in_space():
    assert side_names(1) == {"left": (0, 0), "right": (0, 1)}
    assert list(side_names(2).items()) == [
        ("left", (1, 0)), ("right", (1, 1)), ("bottom", (0, 0)), ("top", (0, 1))
    ]  # fmt: skip
    assert side_names(3)["back"] == (0, 0)
    assert side_names(3)["top"] == (1, 1)


def test_what_is_taken_from_a_field_is_imposed_on_all_its_sides(field):
    boundary = Boundary.of_field(field)
    assert boundary.shape == GRID.shape
    again = boundary.impose(np.zeros(GRID.nodes))
    inside = (slice(1, -1),) * 3
    assert not again[inside].any()
    expected = field.copy()
    expected[inside] = 0.0
    np.testing.assert_array_equal(again, expected)


def test_values_in_the_order_of_the_surface_are_those_on_the_sides(field):
    nodes = perimeter_nodes(GRID.shape)
    values = field[tuple(nodes.T)]
    boundary, expected = Boundary.of_perimeter(values, GRID), Boundary.of_field(field)
    for side, edge in expected.edges.items():
        np.testing.assert_array_equal(boundary.edges[side], edge)


def test_sides_that_do_not_meet_in_an_edge_are_refused(field):
    edges = dict(Boundary.of_field(field).edges)
    edges[1, 0] = edges[1, 0] + np.pad([[1.0]], [(0, 8), (3, 13)])  # where back and bottom meet
    with pytest.raises(ValueError, match="back and bottom must be equal in their common corner"):
        Boundary(edges)


def test_the_interface_takes_the_sides_of_a_box(field):
    lattice = Lattice(GRID, Subdomain(8, 4.0))
    block = Block.whole(lattice)
    interface = Interface(block, device=torch.device("cpu"), dtype=torch.float64)
    interface.impose([Boundary.of_field(field)])
    for axis, lines in enumerate(interface.lines):
        every = [slice(None)] * 3
        every[axis] = slice(None, None, lattice.spacing)
        expected = np.moveaxis(field[tuple(every)], axis, 0).copy()
        expected[block.inner(axis)] = 0.0
        np.testing.assert_array_equal(lines[0], expected)


def test_opposite_sides_of_different_sizes_are_refused(field):
    edges = dict(Boundary.of_field(field).edges)
    edges[0, 1] = edges[0, 1][:, :-1]
    with pytest.raises(ValueError, match=r"back \(17x13 nodes\) and front \(16x13\) differ"):
        Boundary(edges)
