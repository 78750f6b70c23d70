"""Sizes, counts and the partition of unity of the lattice."""

import re

import numpy as np
import pytest

from mosaicdd.grid.grid import Grid
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.schwarz.lattice import Lattice

SIZES = [(2, 2), (2, 5), (3, 2), (3, 3), (7, 4)]


@pytest.mark.parametrize(
    ("nx", "ny", "name", "given", "nearest"),
    [
        (2050, 2048, "nx", 2050, [2048, 2064]),
        (2048, 2040, "ny", 2040, [2032, 2048]),
        (33, 64, "nx", 33, [32, 48]),
        (64, 31, "ny", 31, [32]),
        (1, 1, "nx", 1, [32]),
    ],
)
def test_cells_that_the_lattice_does_not_divide_are_refused_with_the_nearest_sizes(
    nx, ny, name, given, nearest
):
    subdomain = Subdomain(32)
    with pytest.raises(ValueError, match=f"{name} must be a multiple of 16 .* {given}") as error:
        Lattice(Grid((ny, nx), subdomain.spacing), subdomain)
    suggested = re.search("nearest: ([0-9, ]*);", str(error.value)).group(1)
    assert [int(n) for n in suggested.split(",")] == nearest
    for n in nearest:
        Lattice(Grid((n, n), subdomain.spacing), subdomain)


def test_a_domain_smaller_than_a_subdomain_is_refused_with_both_sizes():
    with pytest.raises(ValueError, match=r"ny must be at least 32 .* got 16"):
        Lattice(Grid((16, 64), 0.5 / 32), Subdomain(32))


@pytest.mark.parametrize("spacing", [0.5 / 16, 0.5 / 32 + 1e-9])
def test_another_spacing_than_the_local_solver_s_is_refused(spacing):
    with pytest.raises(ValueError, match="spacing"):
        Lattice(Grid((64, 64), spacing), Subdomain(32))


@pytest.mark.parametrize("cells", SIZES)
def test_the_unknowns_are_the_nodes_on_lattice_lines_inside_the_domain(cells, make_lattice):
    lattice = make_lattice(cells)
    on_lines = np.zeros(lattice.grid.nodes, bool)
    on_lines[:: lattice.spacing] = on_lines[:, :: lattice.spacing] = True
    assert lattice.unknowns == on_lines[1:-1, 1:-1].sum()


@pytest.mark.parametrize("cells", SIZES)
@pytest.mark.parametrize("axis", [0, 1])
def test_the_hats_add_up_to_one_at_every_node_inside(cells, axis, make_lattice):
    lattice = make_lattice(cells)
    total = np.zeros(lattice.grid.nodes[axis])
    for number, hat in enumerate(lattice.hats(axis, 1, lattice.cells[axis])):
        first = number * lattice.spacing + 1
        total[first : first + len(hat)] += hat
    # t / s and 1 - t / s for s = 4: sums of multiples of 1/4 are exact.
    np.testing.assert_array_equal(total[1:-1], 1.0)


def test_the_hats_of_a_part_are_a_part_of_the_hats(make_lattice):
    lattice = make_lattice((7, 4))
    whole = lattice.hats(0, 1, 7)
    np.testing.assert_array_equal(lattice.hats(0, 3, 5), whole[2:4])
    np.testing.assert_array_equal(lattice.hats(0, 5, 7), whole[4:])
