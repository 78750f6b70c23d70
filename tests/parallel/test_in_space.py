"""The halo exchange and the movements of interfaces over a process grid of three axes, or of one.

Against slices of a global field, by the same code as in the plane.
"""

import math

import numpy as np
import pytest
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.interface import Interface, directions, interface_received, interface_sent
from mosaicdd.lattice.lattice import Lattice, Subdomain
from mosaicdd.lattice.transfer import Transfer, batches
from mosaicdd.parallel.halo import HaloExchange
from mosaicdd.parallel.partition import fitting_dims
from mosaicdd.planning.counts import Decomposition
from mosaicdd.schwarz.layouts import InterfaceMovement, block_of

SIZES = (1, 3, 4, 6)
S = 2  # cells between lattice planes
CELLS = [(7,), (4, 7, 5)]
ROUNDING = 5 * 8 * 2.3e-16  # of sums of at most 8 products of numbers below 5


def lattice_of(cells):
    return Lattice(Grid(tuple(n * S for n in cells), 0.125), Subdomain(2 * S, 0.25 * S))


def interface_of(block, field):
    interface = Interface(block, device=torch.device("cpu"), dtype=torch.float64)
    interface.take(torch.from_numpy(field[block.nodes])[None])
    return interface


def grids_of(size, lattice, make_ranks):
    """Return process grids of all shapes that fit."""
    return [make_ranks(dims) for dims in fitting_dims(size, lattice.subdomains)]


def centre_size(lattice):
    """Return the nodes on the centre planes of a subdomain, those on several as often."""
    axes, inside = len(lattice.cells), 2 * S - 1
    return axes * inside ** (axes - 1)


@pytest.mark.ranks(*SIZES)
@pytest.mark.parametrize("cells", CELLS)
def test_after_the_exchange_each_region_is_the_slice_of_the_field(cells, comm, make_ranks):
    lattice = lattice_of(cells)
    field = np.random.default_rng(0).uniform(-5, 5, lattice.grid.nodes)
    for ranks in grids_of(comm.size, lattice, make_ranks):
        for halo in (1, 2):
            if any(n // d < halo for n, d in zip(lattice.subdomains, ranks.dims, strict=True)):
                continue
            block = block_of(ranks, lattice, ranks.rank, halo)
            expected = interface_of(block, field)
            mine = expected.like_boundary()
            transfer = Transfer(block, device=torch.device("cpu"), dtype=torch.float64)
            for batch in batches(block.ring(0), 1000):
                count = math.prod(len(range(p.start, p.stop)) for p in batch)
                values = torch.empty(count, centre_size(lattice), dtype=torch.float64)
                transfer.take(expected, batch, values)
                transfer.weigh(values, batch)
                transfer.add(values, batch, mine)
            exchange = HaloExchange(
                ranks,
                mine.lines,
                lambda way, block=block: interface_sent(block, way),
                lambda way, block=block: interface_received(block, way),
            )
            exchange.add(mine.lines)
            np.testing.assert_allclose(mine.flat, expected.flat, rtol=0, atol=ROUNDING)


@pytest.mark.ranks(*SIZES)
@pytest.mark.parametrize("cells", CELLS)
def test_whole_interfaces_come_from_the_root_and_go_back(cells, comm, make_ranks):
    lattice = lattice_of(cells)
    field = np.random.default_rng(0).uniform(-5, 5, lattice.grid.nodes)
    everything = [
        np.moveaxis(field[(slice(None),) * axis + (slice(None, None, S),)], axis, 0)
        for axis in range(len(cells))
    ]
    for ranks in grids_of(comm.size, lattice, make_ranks):
        movement = InterfaceMovement(ranks, lattice, 1)
        expected = interface_of(block_of(ranks, lattice, ranks.rank), field)
        own = expected.like()
        movement.scatter(tuple(everything) if ranks.is_root else None, own)
        assert torch.equal(own.flat, expected.flat)
        if all(n // d >= 2 for n, d in zip(lattice.subdomains, ranks.dims, strict=True)):
            wide = movement.widen(own, 2)
            here = interface_of(wide.block, field)
            assert torch.equal(wide.flat, here.flat)
        for axis, whole in enumerate(everything):
            seen = np.full(whole.shape, np.nan)

            def take(lines, place, seen=seen):
                seen[place] = lines

            movement.gather(own, axis, take)
            if ranks.is_root:
                np.testing.assert_array_equal(seen, whole)


@pytest.mark.ranks(*SIZES)
@pytest.mark.parametrize("cells", CELLS)
def test_counted_words_are_those_that_are_sent(cells, comm, make_ranks):
    lattice = lattice_of(cells)
    for ranks in grids_of(comm.size, lattice, make_ranks):
        planned, block = Decomposition(lattice, ranks.dims), block_of(ranks, lattice, ranks.rank)
        for way in directions(len(cells)):
            sent = 0
            if ranks.neighbour(way) is not None:
                example = Interface(block, device=torch.device("cpu"), dtype=torch.float64)
                parts = interface_sent(block, way)
                sent = sum(example.lines[axis][0][part].numel() for axis, part in parts)
            assert planned.words(way)[ranks.coords] == sent
        assert planned.subdomains[ranks.coords] == math.prod(block.subdomains)
