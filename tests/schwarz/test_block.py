"""Blocks: over any partition, everything is owned exactly once."""

import itertools

import numpy as np
import pytest
import torch

from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.interface import Interface

KIND = {"device": torch.device("cpu"), "dtype": torch.float64}


def cuts(count):
    """All ways to cut the centres 1..count into runs, as lists of (start, stop)."""
    for inner in itertools.product((False, True), repeat=count - 1):
        at = [1, *(i + 2 for i, cut in enumerate(inner) if cut), count + 1]
        yield list(itertools.pairwise(at))


def partitions(lattice):
    """All partitions of the lattice into a grid of blocks, with halos of every depth."""
    for halo in (1, 2, 3):
        for rows, columns in itertools.product(*(cuts(n) for n in lattice.subdomains)):
            yield [
                Block(lattice, (y[0], x[0]), (y[1], x[1]), halo)
                for y, x in itertools.product(rows, columns)
            ]


@pytest.mark.parametrize("cells", [(2, 2), (2, 5), (5, 4)])
def test_each_interface_node_inside_the_domain_is_owned_by_one_block(
    cells, make_lattice, interface_of
):
    lattice = make_lattice(cells)
    number = np.arange(np.prod(lattice.grid.nodes)).reshape(lattice.grid.nodes)
    on_lines = np.zeros(lattice.grid.nodes, bool)
    on_lines[:: lattice.spacing] = on_lines[:, :: lattice.spacing] = True
    expected = number[1:-1, 1:-1][on_lines[1:-1, 1:-1]]
    for blocks in partitions(lattice):
        owned = [
            interface_of(block, number).flat[Interface(block, **KIND).ownership().flat == 1]
            for block in blocks
        ]
        np.testing.assert_array_equal(np.sort(torch.cat(owned)), expected)


@pytest.mark.parametrize("cells", [(2, 2), (2, 5), (5, 4)])
def test_each_grid_node_is_owned_by_one_block(cells, make_lattice):
    lattice = make_lattice(cells)
    for blocks in partitions(lattice):
        count = np.zeros(lattice.grid.nodes, int)
        for block in blocks:
            local, whole = block.owned_nodes()
            region = np.zeros([n + 1 for n in block.cells])
            assert region[local].shape == count[whole].shape
            count[whole] += 1
        assert (count == 1).all()


def test_the_boundary_parts_are_what_is_not_inner(make_lattice):
    lattice = make_lattice((5, 4))
    for block in itertools.chain.from_iterable(partitions(lattice)):
        for axis in (0, 1):
            known = np.zeros(block.line_shape(axis), bool)
            for family, part in block.boundary_parts():
                if family == axis:
                    known[part] = True
            assert not known[block.inner(axis)].any()
            known[block.inner(axis)] = True
            assert known.all()


def test_the_region_is_that_of_the_owned_subdomains(make_lattice):
    lattice = make_lattice((7, 6))
    block = Block(lattice, (2, 4), (5, 6))
    s = lattice.spacing
    assert block.subdomains == (3, 2)
    # The subdomain centred at line 2 reaches down to line 1, that at line 4 up to line 5.
    assert block.origin == (1 * s, 3 * s)
    assert block.cells == (4 * s, 3 * s)
    assert block.at_edge(0) == (False, False)
    assert block.at_edge(1) == (False, True)


def test_a_deeper_halo_ends_at_the_edge_of_the_domain(make_lattice):
    lattice = make_lattice((7, 6))
    block = Block(lattice, (2, 4), (5, 6), halo=3)
    s = lattice.spacing
    assert block.origin == (0, 1 * s)
    assert block.cells == (7 * s, 5 * s)
    assert block.region_subdomains == (6, 4)
    assert block.subdomains == (3, 2)


def test_rings_grow_around_the_owned_subdomains_and_the_inner_ones_see_no_neighbour(make_lattice):
    lattice = make_lattice((9, 9))
    block = Block(lattice, (3, 5), (6, 9), halo=3)
    # The region begins at the lines 0 and 2; its first subdomain is centred one line above.
    assert block.ring(0) == (slice(2, 5), slice(2, 6))
    assert block.ring(1) == (slice(1, 6), slice(1, 6))
    assert block.ring(2) == (slice(0, 7), slice(0, 6))
    assert block.inner_subdomains() == (slice(3, 4), slice(3, 6))
