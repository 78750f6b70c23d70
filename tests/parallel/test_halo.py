"""The halo exchange against slices of a global field.

Every rank fills what it computes from a seeded global field; after the exchange its whole region,
down to the last bit, is the slice of that field.
"""

import itertools
import math
import time

import numpy as np
import pytest
import torch
from interface_exchanges import block as block_of
from interface_exchanges import cut, interface_exchange, lattice_of

from mosaicdd.parallel import halo
from mosaicdd.parallel.partition import fitting_dims
from mosaicdd.schwarz.layouts import InterfaceMovement
from mosaicdd.schwarz.transfer import Transfer, batches

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)
# Subdomains more than ranks, per axis: one per rank, uneven, large.
DEPTHS = (1, 2, 3)
MORE = [(0, 0), (1, 0), (0, 1), (2, 3), (7, 5)]


@pytest.fixture
def cases(all_dims, make_ranks, make_lattice):
    """Return process grids with this rank's block, for all dims, several lattices and depths."""
    found = []
    for dims in all_dims:
        ranks = make_ranks(dims)
        for more, depth in itertools.product(MORE, DEPTHS):
            counts = [max(d * depth, d + m) for d, m in zip(dims, more, strict=True)]
            lattice = make_lattice([count + 1 for count in counts])
            found.append((ranks, block_of(ranks, lattice, depth)))
    return found


def share(block, interface):
    """Keep of an interface what this rank adds to a sweep, and the boundary data.

    Its subdomains contribute to their own centre lines. In a lattice cell that two blocks share,
    both contribute: here each gives the share of its hat.
    """
    result = interface.like_boundary()
    lattice, s = block.lattice, block.lattice.spacing
    for axis, lines in enumerate(result.lines):
        along = 1 - axis
        weights = torch.zeros(lines.shape[-1], dtype=lines.dtype)
        before = block.start[along] - 1 - block.first[along]
        for number, hat in enumerate(lattice.hats(along, block.start[along], block.stop[along])):
            weights[(before + number) * s + 1 :][: len(hat)] += torch.from_numpy(hat)
        rows = slice(block.start[axis] - block.first[axis], block.stop[axis] - block.first[axis])
        inside = slice(before * s + 1, (before + block.subdomains[along] + 1) * s)
        part = (0, rows, inside)
        lines[part] = interface.lines[axis][part] * weights[inside]
    return result


def whole_numbers(lattice, seed):
    """Return a field of multiples of 16: times products of hats of s = 4, all sums are exact."""
    generator = torch.Generator().manual_seed(seed)
    shape = lattice.grid.nodes
    return 16.0 * torch.randint(-(2**40), 2**40, shape, generator=generator).double().numpy()


def test_after_the_exchange_each_region_is_the_slice_of_the_global_field(cases):
    for ranks, block in cases:
        whole = cut(block, whole_numbers(block.lattice, seed=0))
        mine = share(block, whole)
        interface_exchange(ranks, block, mine).add(mine.lines)
        assert torch.equal(mine.flat, whole.flat)


def test_buffers_may_be_overwritten_as_soon_as_the_exchange_returns(cases, comm):
    delays = np.random.default_rng(comm.rank).exponential(2e-4, (200, 2))  # seconds
    for ranks, block in cases[len(MORE) * len(DEPTHS) - 1 :: len(MORE) * len(DEPTHS)]:
        mine, fields = None, []
        for number, (before, after) in enumerate(delays):
            if number < 10:
                fields.append(cut(block, whole_numbers(block.lattice, seed=number)))
            whole = fields[number % 10]
            given = share(block, whole)
            if mine is None:
                mine = given
                exchange = interface_exchange(ranks, block, mine)
            mine.flat.copy_(given.flat)
            time.sleep(before)
            exchange.add(mine.lines)
            right = torch.equal(mine.flat, whole.flat)
            mine.flat.fill_(torch.nan)
            assert right, f"round {number}"
            time.sleep(after)
        exchange.close()


def test_values_may_be_read_while_they_travel_and_are_complete_after_the_end(cases):
    for ranks, block in cases:
        whole = cut(block, whole_numbers(block.lattice, seed=0))
        mine = share(block, whole)
        before = mine.flat.clone()
        exchange = interface_exchange(ranks, block, mine)
        exchange.start(mine.lines)
        assert torch.equal(mine.flat, before)
        exchange.finish()
        assert torch.equal(mine.flat, whole.flat)
        exchange.finish()  # nothing travels any more
        assert torch.equal(mine.flat, whole.flat)


def test_what_an_exchange_that_was_given_up_still_receives_has_its_memory(cases, comm):
    ranks, block = cases[0]
    mine = share(block, cut(block, whole_numbers(block.lattice, seed=0)))
    exchange, before = interface_exchange(ranks, block, mine), len(halo._GIVEN_UP)
    if comm.rank == 0 and comm.size > 1:  # the others have not sent yet
        exchange.start(mine.lines)
        exchange.close()
        assert len(halo._GIVEN_UP) > before
    comm.Barrier()
    if comm.rank > 0:
        exchange.add(mine.lines)
        exchange.close()
        assert len(halo._GIVEN_UP) == before
    comm.Barrier()
    assert all(request.Test() for request, _ in halo._GIVEN_UP)


def test_single_precision_on_the_way_rounds_what_the_neighbours_contribute_and_nothing_else(cases):
    for ranks, block in cases:
        whole = cut(block, np.random.default_rng(0).standard_normal(block.lattice.grid.nodes))
        mine = share(block, whole)
        own = mine.flat.clone()
        exchange = interface_exchange(ranks, block, mine, dtype=torch.float32)
        exchange.add(mine.lines)
        # Up to three shares of numbers below 5, each rounded to 6e-8 of its size.
        np.testing.assert_allclose(mine.flat, whole.flat, rtol=0, atol=5 * 6e-8)
        alone = (own - whole.flat).abs() < 1e-14
        np.testing.assert_allclose(mine.flat[alone], whole.flat[alone], rtol=0, atol=1e-14)


def test_an_exchange_takes_at_most_8_messages_and_a_quarter_of_the_paper_s_words(cases):
    # The paper sends 16 d words per cell of a block's side and iteration (section 4.3), d = 2: 8 d
    # per cell of both sides. Here a neighbour gets one line and lines across it that add up to
    # another, together 2 words per cell of the common side, so 4 per cell of both sides; the ends
    # and the four corners take less than 12 lattice cells. A halo of k cells, exchanged in every
    # k-th iteration, takes k times as much of the sides and k^2 of the corners.
    for ranks, block in cases:
        exchange = interface_exchange(ranks, block)
        s, k = block.lattice.spacing, block.halo
        both_sides = sum(block.subdomains) * s
        assert exchange.messages <= 8
        assert exchange.words <= k * (4 * both_sides + 12 * k * s)
        if k == 1:
            assert exchange.words <= 8 * 2 * both_sides
        assert (exchange.words > 0) == (ranks.size > 1)


ROUNDING = 5 * 8 * 2.3e-16  # of sums of at most 8 products of numbers below 5


@pytest.fixture(params=[(7,), (4, 7, 5)], ids=["one axis", "three axes"])
def blocks(request, make_ranks, comm):
    """Return a lattice of one axis or three, a field, and the process grids of all shapes that fit."""
    lattice = lattice_of(request.param)
    if comm.size > math.prod(lattice.subdomains):
        pytest.skip("more ranks than subdomains")
    field = np.random.default_rng(0).uniform(-5, 5, lattice.grid.nodes)
    return lattice, field, list(map(make_ranks, fitting_dims(comm.size, lattice.subdomains)))


def deep_enough(ranks, lattice, depth):
    return all(n // d >= depth for n, d in zip(lattice.subdomains, ranks.dims, strict=True))


@pytest.mark.parametrize("depth", [1, 2])
def test_along_one_axis_and_three_each_region_is_the_slice_of_the_field(depth, blocks):
    lattice, field, grids = blocks
    axes, inside = len(lattice.cells), 2 * lattice.spacing - 1
    for ranks in (each for each in grids if deep_enough(each, lattice, depth)):
        block = block_of(ranks, lattice, depth)
        expected = cut(block, field)
        mine = expected.like_boundary()
        transfer = Transfer(block, device=torch.device("cpu"), dtype=torch.float64)
        for batch in batches(block.ring(0), 1000):
            count = math.prod(len(range(p.start, p.stop)) for p in batch)
            values = torch.empty(count, axes * inside ** (axes - 1), dtype=torch.float64)
            transfer.take(expected, batch, values)
            transfer.weigh(values, batch)
            transfer.add(values, batch, mine)
        interface_exchange(ranks, block, mine).add(mine.lines)
        np.testing.assert_allclose(mine.flat, expected.flat, rtol=0, atol=ROUNDING)


def test_whole_interfaces_come_from_the_root_and_go_back(blocks):
    lattice, field, grids = blocks
    everything = [
        np.moveaxis(field[(slice(None),) * axis + (slice(None, None, lattice.spacing),)], axis, 0)
        for axis in range(field.ndim)
    ]
    for ranks in grids:
        movement = InterfaceMovement(ranks, lattice, 1)
        expected = cut(block_of(ranks, lattice), field)
        own = expected.like()
        movement.scatter(tuple(everything) if ranks.is_root else None, own)
        assert torch.equal(own.flat, expected.flat)
        if deep_enough(ranks, lattice, 2):
            wide = movement.widen(own, 2)
            assert torch.equal(wide.flat, cut(wide.block, field).flat)
        for axis, whole in enumerate(everything):
            seen = np.full(whole.shape, np.nan)
            movement.gather(
                own, axis, lambda lines, place, seen=seen: seen.__setitem__(place, lines)
            )
            if ranks.is_root:
                np.testing.assert_array_equal(seen, whole)


CPU = torch.device("cpu")


def test_buffers_of_the_processor_always_arrive(comm):
    assert halo.buffers_arrive(comm, CPU)


@pytest.mark.ranks(2, 3)
def test_a_buffer_that_is_not_received_is_noticed(comm):
    class Deaf:
        """A communicator whose last rank receives into something else."""

        rank, size = comm.rank, comm.size

        def Sendrecv(self, sent, dest, recvbuf, source):  # noqa: N802 - MPI's name
            elsewhere = recvbuf.clone() if self.rank == self.size - 1 else recvbuf
            comm.Sendrecv(sent, dest=dest, recvbuf=elsewhere, source=source)

    assert halo.buffers_arrive(Deaf(), CPU) == (comm.rank < comm.size - 1)
