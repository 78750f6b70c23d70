"""The halo exchange against slices of a global field.

Every rank fills what it computes from a seeded global field; after the exchange its whole region,
down to the last bit, is the slice of that field.
"""

import time

import numpy as np
import pytest
import torch

from mosaicdd.lattice.block import Block
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.sharing import field_received, field_sent, interface_received, interface_sent
from mosaicdd.parallel.halo import HaloExchange

SIZES = (1, 2, 3, 4, 6)
# Subdomains more than ranks, per axis: one per rank, uneven, large.
MORE = [(0, 0), (1, 0), (0, 1), (2, 3), (7, 5)]


@pytest.fixture
def cases(all_dims, make_grid, make_lattice):
    """Return process grids with this rank's block, for all dims and several lattices."""
    found = []
    for dims in all_dims:
        grid = make_grid(dims)
        for more in MORE:
            lattice = make_lattice([d + m + 1 for d, m in zip(dims, more, strict=True)])
            start, stop = grid.partition(lattice.subdomains)
            block = Block(lattice, tuple(a + 1 for a in start), tuple(b + 1 for b in stop))
            found.append((grid, block))
    return found


def interface_exchange(grid, block, like):
    return HaloExchange(
        grid,
        like.lines,
        lambda direction: interface_sent(block, direction),
        lambda direction: interface_received(block, direction),
    )


def field_exchange(grid, block, like):
    return HaloExchange(
        grid,
        [like],
        lambda direction: field_sent(block, direction),
        lambda direction: field_received(block, direction),
    )


def share(block, interface):
    """Keep of an interface what this rank adds to a sweep, and the boundary data.

    Its subdomains contribute to all lines of the region but the outermost. In a lattice cell that
    two blocks share, both contribute: here each gives the share of its hat.
    """
    result = interface.like()
    result.copy_boundary(interface)
    lattice = block.lattice
    for axis, lines in enumerate(result.lines):
        along = 1 - axis
        weights = torch.zeros(lines.shape[1], dtype=lines.dtype)
        for number, hat in enumerate(lattice.hats(along, block.start[along], block.stop[along])):
            weights[number * lattice.spacing + 1 :][: len(hat)] += torch.from_numpy(hat)
        part = (slice(1, -1), slice(1, -1))
        lines[part] = interface.lines[axis][part] * weights[1:-1]
    return result


def whole_numbers(lattice, seed):
    """Return a field of multiples of 16: times products of hats of s = 4, all sums are exact."""
    generator = torch.Generator().manual_seed(seed)
    shape = lattice.grid.nodes
    return 16.0 * torch.randint(-(2**40), 2**40, shape, generator=generator).double().numpy()


@pytest.mark.ranks(*SIZES)
def test_after_the_exchange_each_region_is_the_slice_of_the_global_field(cases, interface_of):
    for grid, block in cases:
        whole = interface_of(block, whole_numbers(block.lattice, seed=0))
        mine = share(block, whole)
        interface_exchange(grid, block, mine).add(mine.lines)
        assert torch.equal(mine.flat, whole.flat)


@pytest.mark.ranks(*SIZES)
def test_buffers_may_be_overwritten_as_soon_as_the_exchange_returns(cases, interface_of, comm):
    delays = np.random.default_rng(comm.rank).exponential(2e-4, (200, 2))  # seconds
    for grid, block in cases[len(MORE) - 1 :: len(MORE)]:
        mine, fields = None, []
        for number, (before, after) in enumerate(delays):
            if number < 10:
                fields.append(interface_of(block, whole_numbers(block.lattice, seed=number)))
            whole = fields[number % 10]
            given = share(block, whole)
            if mine is None:
                mine = given
                exchange = interface_exchange(grid, block, mine)
            mine.flat.copy_(given.flat)
            time.sleep(before)
            exchange.add(mine.lines)
            right = torch.equal(mine.flat, whole.flat)
            mine.flat.fill_(torch.nan)
            assert right, f"round {number}"
            time.sleep(after)
        exchange.free()


@pytest.mark.ranks(*SIZES)
def test_the_owned_part_of_the_filled_field_is_complete_after_its_exchange(cases):
    for grid, block in cases:
        whole = whole_numbers(block.lattice, seed=0)
        inside = torch.zeros([n + 1 for n in block.cells], dtype=torch.float64)
        s, m = block.lattice.spacing, block.lattice.subdomain.cells
        hats = [
            torch.from_numpy(block.lattice.hats(a, block.start[a], block.stop[a])) for a in (0, 1)
        ]
        for row, hat_y in enumerate(hats[0]):
            for column, hat_x in enumerate(hats[1]):
                part = inside[row * s + 1 :, column * s + 1 :][: m - 1, : m - 1]
                part += hat_y[:, None] * hat_x
        region = [slice(a, a + n + 1) for a, n in zip(block.origin, block.cells, strict=True)]
        mine = torch.from_numpy(whole[tuple(region)]) * inside
        field_exchange(grid, block, mine).add([mine])
        local, place = block.owned_nodes()
        expected = whole.copy()
        expected[[0, -1]] = expected[:, [0, -1]] = 0.0  # the fill copies the boundary data there
        assert torch.equal(mine[local], torch.from_numpy(expected[place]))


@pytest.mark.ranks(*SIZES)
def test_an_exchange_takes_at_most_8_messages_and_a_quarter_of_the_paper_s_words(cases):
    # The paper sends 16 d words per cell of a block's side and iteration (section 4.3), d = 2: 8 d
    # per cell of both sides. Here a neighbour gets one line and lines across it that add up to
    # another, together 2 words per cell of the common side, so 4 per cell of both sides; the ends
    # and the four corners take less than 12 lattice cells.
    for grid, block in cases:
        like = Interface(block, device=torch.device("cpu"), dtype=torch.float64)
        exchange = interface_exchange(grid, block, like)
        s = block.lattice.spacing
        both_sides = sum(block.subdomains) * s
        assert exchange.messages <= 8
        assert exchange.words <= 4 * both_sides + 12 * s
        assert exchange.words <= 8 * 2 * both_sides
        assert (exchange.words > 0) == (grid.size > 1)
