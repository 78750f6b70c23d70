"""Restriction and prolongation against slices of a field."""

import itertools

import numpy as np
import pytest
import torch

from mosaicdd.schwarz.block import Block
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.transfer import Transfer, batches

KIND = {"device": torch.device("cpu"), "dtype": torch.float64}
PHASES = [(first, 2) for first in itertools.product((0, 1), repeat=2)]
ALL = ((0, 0), 1)
BLOCKS = [((1, 1), (7, 6)), ((1, 3), (2, 6)), ((3, 1), (7, 2)), ((2, 2), (5, 5)), ((4, 4), (5, 5))]


@pytest.fixture
def lattice(make_lattice):
    return make_lattice((7, 6))


@pytest.fixture(params=BLOCKS)
def block(request, lattice):
    return Block(lattice, *request.param)


def part_of(block, first=(0, 0)):
    """Return all subdomains of a block's region, but the first ones."""
    return tuple(slice(f, n) for f, n in zip(first, block.region_subdomains, strict=True))


def members(batch):
    """List the subdomains of a batch in their order, by row and column within the block."""
    return list(
        itertools.product(*(range(part.start, part.stop, part.step or 1) for part in batch))
    )


def square(block, member, field):
    """Return the part of a whole field under one subdomain."""
    s, m = block.lattice.spacing, block.lattice.subdomain.cells
    y, x = (origin + s * number for origin, number in zip(block.origin, member, strict=True))
    return field[y : y + m + 1, x : x + m + 1]


def values_at(block, batch, field, points):
    """Return the values of a field at points of each subdomain of a batch, ``(B, Q)``."""
    squares = [square(block, member, field) for member in members(batch)]
    return np.stack([values[points[:, 0], points[:, 1]] for values in squares])


@pytest.mark.parametrize("largest", [1, 2, 3, 5, 7, 1000])
@pytest.mark.parametrize(("first", "step"), [ALL, *PHASES])
def test_batches_hold_each_subdomain_once_and_no_more_than_allowed(block, first, step, largest):
    found = [members(batch) for batch in batches(part_of(block, first), largest, step)]
    y, x = (range(f, n, step) for f, n in zip(first, block.subdomains, strict=True))
    assert sorted(itertools.chain.from_iterable(found)) == sorted(itertools.product(y, x))
    assert all(1 <= len(batch) <= largest for batch in found)


@pytest.mark.parametrize("largest", [1, 3, 7, 1000])
@pytest.mark.parametrize(("first", "step"), [ALL, *PHASES])
def test_restriction_is_slicing_at_each_perimeter(
    block, random_field, interface_of, first, step, largest
):
    field, transfer = random_field(block.lattice), Transfer(block, **KIND)
    interface, perimeter = interface_of(block, field), block.lattice.subdomain.perimeter
    for batch in batches(part_of(block, first), largest, step):
        buffer = torch.full((2 + len(members(batch)), len(perimeter)), np.nan, dtype=torch.float64)
        out = buffer[1:-1]
        transfer.restrict(interface, batch, out)
        np.testing.assert_array_equal(out, values_at(block, batch, field, perimeter))
        assert buffer[[0, -1]].isnan().all()  # what is beside is left as it was


def test_restriction_takes_interfaces_of_its_own_block_only(lattice):
    other, out = Interface(Block(lattice, (2, 2), (5, 5)), **KIND), torch.empty(1, 16, **KIND)
    with pytest.raises(ValueError, match="that of another block"):
        Transfer(Block.whole(lattice), **KIND).restrict(other, (slice(0, 1), slice(0, 1)), out)


@pytest.mark.parametrize("largest", [1, 3, 7, 1000])
def test_weighing_and_adding_centre_lines_gives_the_field_on_all_inner_lines(
    lattice, random_field, interface_of, largest
):
    block, field = Block.whole(lattice), random_field(lattice)
    transfer, result = Transfer(block, **KIND), Interface(block, **KIND)
    for batch in batches(part_of(block), largest):
        values = values_at(block, batch, field, lattice.subdomain.centre_lines)
        values = torch.from_numpy(values)
        transfer.weigh(values, batch)
        transfer.add(values, batch, result)
    # Two products and a sum of numbers below 5: three roundings.
    expected = interface_of(block, field)
    for axis in (0, 1):
        inner = block.inner(axis)
        np.testing.assert_allclose(
            result.lines[axis][0, *inner],
            expected.lines[axis][0, *inner],
            rtol=0,
            atol=5 * 3 * 2.3e-16,
        )


@pytest.mark.parametrize("largest", [1, 3, 1000])
@pytest.mark.parametrize("first", [first for first, _ in PHASES])
def test_putting_a_phase_overwrites_its_centre_lines_and_nothing_else(
    block, random_field, interface_of, first, largest
):
    old, new = random_field(block.lattice, 1), random_field(block.lattice, 2)
    points = block.lattice.subdomain.centre_lines
    expected, result = old.copy(), interface_of(block, old)
    transfer = Transfer(block, **KIND)
    for batch in batches(part_of(block, first), largest, step=2):
        transfer.put(torch.from_numpy(values_at(block, batch, new, points)), batch, result)
        for member in members(batch):
            target = square(block, member, expected)
            target[tuple(points.T)] = square(block, member, new)[tuple(points.T)]
    # In the lines across, a centre line leaves its mark at lattice nodes only, which stand in both.
    np.testing.assert_array_equal(result.flat, interface_of(block, expected).flat)


@pytest.mark.parametrize("largest", [1, 3, 7, 1000])
def test_weights_of_the_hat_and_a_correction_at_the_edges_are_the_partition_of_unity(
    block, largest
):
    transfer = Transfer(block, **KIND)
    hat = torch.from_numpy(np.tile(block.lattice.hat, 2))
    generator = torch.Generator().manual_seed(0)
    for batch in batches(part_of(block), largest):
        values = torch.randn(len(members(batch)), len(hat), generator=generator, dtype=hat.dtype)
        expected, found = values.clone(), values * hat
        transfer.weigh(expected, batch)
        transfer.weigh_at_edges(found, batch)
        # A product and a quotient of numbers below 5: two roundings.
        np.testing.assert_allclose(found, expected, rtol=0, atol=5 * 2 * 2.3e-16)
