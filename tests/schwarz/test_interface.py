"""The interface against the field it is cut from."""

import numpy as np
import pytest
import torch

from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.interface import Interface

KIND = {"device": torch.device("cpu"), "dtype": torch.float64}


@pytest.fixture
def lattice(make_lattice):
    return make_lattice((6, 5))


@pytest.fixture(params=[((1, 1), (6, 5)), ((1, 1), (3, 2)), ((3, 2), (5, 3)), ((4, 1), (6, 5))])
def block(request, lattice):
    return Block(lattice, *request.param)


def test_the_lines_are_the_lattice_lines_of_the_field(lattice, block, random_field, interface_of):
    field, s = random_field(lattice), lattice.spacing
    lines = interface_of(block, field).lines
    for axis in (0, 1):
        across, along = (block.origin[a] for a in (axis, 1 - axis))
        along = slice(along, along + block.cells[1 - axis] + 1)
        oriented = field if axis == 0 else field.T
        for number, line in enumerate(lines[axis][0]):
            np.testing.assert_array_equal(line, oriented[across + number * s, along])


def test_imposing_writes_the_boundary_data_and_nothing_else(
    lattice, block, random_field, interface_of
):
    field = random_field(lattice)
    field[1:-1, 1:-1] = 0.0
    interface = Interface(block, **KIND)
    interface.impose([Boundary.of_field(field)])
    np.testing.assert_array_equal(interface.flat, interface_of(block, field).flat)


def test_copying_the_boundary_takes_its_values_alone(lattice, block, random_field, interface_of):
    field = random_field(lattice)
    edge = field.copy()
    edge[1:-1, 1:-1] = 0.0
    expected = interface_of(block, edge).flat
    interface = interface_of(block, field)
    copied = interface.like()
    copied.copy_boundary(interface)
    np.testing.assert_array_equal(copied.flat, expected)


def test_the_nodes_are_the_centres_of_the_owned_subdomains(
    lattice, block, random_field, interface_of
):
    field, s = random_field(lattice), lattice.spacing
    centres = field[::s, ::s][tuple(map(slice, block.start, block.stop))]
    np.testing.assert_array_equal(interface_of(block, field).nodes()[0], centres)
