"""What a plan counts, against what the ranks of a process grid really plan and own."""

import itertools
import math

import numpy as np
import pytest
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.sharing import directions, interface_received, interface_sent
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.parallel.halo import HaloExchange
from mosaicdd.parallel.partition import fitting_dims
from mosaicdd.planning.decomposition import Decomposition, best_bricks, bricks, row_wise, traffic
from mosaicdd.schwarz.layouts import block_of

SIZES = (1, 2, 3, 4, 6)
# Subdomains more than ranks, per axis: one per rank, uneven, large.
MORE = [(0, 0), (1, 0), (0, 1), (2, 3), (7, 5)]


@pytest.fixture
def cases(all_dims, make_ranks, make_lattice):
    """Return process grids and lattices, for all dims."""
    return [
        (make_ranks(dims), make_lattice([d + m + 1 for d, m in zip(dims, more, strict=True)]))
        for dims in all_dims
        for more in MORE
    ]


def like_of(block):
    return Interface(block, device=torch.device("cpu"), dtype=torch.float64)


def sent(ranks, block, **around):
    """Return the words and the messages of a halo exchange."""
    exchange = HaloExchange(
        ranks,
        like_of(block).lines,
        lambda direction: interface_sent(block, direction),
        lambda direction: interface_received(block, direction),
        **around,
    )
    return exchange.words, exchange.messages


@pytest.mark.ranks(*SIZES)
@pytest.mark.parametrize("halo", [1, 2, 3])
def test_messages_and_words_are_those_that_the_halo_exchange_plans(halo, cases):
    for ranks, lattice in cases:
        block = block_of(ranks, lattice, ranks.rank, halo)
        if min(block.subdomains) < halo:
            continue
        words = [
            Decomposition(lattice, ranks.dims).words(d, halo)[ranks.coords] for d in directions(2)
        ]
        assert sent(ranks, block) == (sum(words), np.count_nonzero(words))


@pytest.mark.ranks(*SIZES)
@pytest.mark.parametrize("more", [(0, 0, 0), (1, 0, 2)])
def test_what_cubes_send_and_keep_is_what_ranks_on_three_axes_do(comm, make_ranks, more):
    for dims in fitting_dims(comm.size, (6, 6, 6)):
        ranks = make_ranks(dims)
        cells = [8 * (d + m + 1) for d, m in zip(dims, more, strict=True)]
        lattice = Lattice(Grid(tuple(cells), 1.0), Subdomain(16, 16.0, 3))
        block, planned = block_of(ranks, lattice, ranks.rank), Decomposition(lattice, dims)
        words = [planned.words(d)[ranks.coords] for d in directions(3)]
        assert sent(ranks, block) == (sum(words), np.count_nonzero(words))
        assert planned.interface[ranks.coords] == len(like_of(block).flat)


@pytest.mark.ranks(*SIZES)
def test_blocks_are_those_of_the_process_grid(cases):
    for ranks, lattice in cases:
        block, planned = block_of(ranks, lattice, ranks.rank), Decomposition(lattice, ranks.dims)
        assert tuple(side[ranks.coords] for side in planned.sides) == block.subdomains
        assert planned.interface[ranks.coords] == len(like_of(block).flat)
        assert planned.subdomains.sum() == math.prod(lattice.subdomains)


@pytest.mark.parametrize("halo", [1, 2, 3, 4])
def test_what_a_rank_sends_is_what_its_neighbour_awaits_at_any_depth(make_lattice, halo):
    # By symmetry: of equal blocks, both sides of a border send the same.
    planned = Decomposition(make_lattice((25, 25)), (4, 4))
    for direction in directions(2):
        opposite = tuple(-d for d in direction)
        there = planned.words(opposite, halo)
        assert planned.words(direction, halo).sum() == there.sum()
    edge, corner = planned.words((0, 1), halo), planned.words((1, 1), halo)
    assert edge[1, 1] == halo * planned.words((0, 1))[1, 1]
    assert corner[1, 1] == halo**2 * planned.words((1, 1))[1, 1]


@pytest.mark.parametrize("dims", [(4, 6), (1, 7), (5, 3)])
@pytest.mark.parametrize("per_node", [1, 4, 7, 100])
def test_every_message_stays_on_its_node_or_leaves_it_once(make_lattice, dims, per_node):
    planned = Decomposition(make_lattice((20, 20)), dims)
    order = best_bricks(planned, per_node)
    moved = traffic(planned.words, order)
    y, x = dims
    pairs = 2 * (y * (x - 1) + (y - 1) * x + 2 * (y - 1) * (x - 1))  # along, across, diagonal
    assert (moved.messages + moved.messages_leaving).sum() == pairs
    # The same by looking at every pair of ranks.
    leaving = 0
    for here in itertools.product(range(y), range(x)):
        for d in directions(2):
            there = tuple(a + b for a, b in zip(here, d, strict=True))
            inside = all(0 <= c < n for c, n in zip(there, dims, strict=True))
            leaving += inside and order.node[here] != order.node[there]
    assert moved.messages_leaving.sum() == leaving


@pytest.mark.parametrize("dims", [(4, 6), (9, 8), (5, 3)])
def test_an_order_gives_every_node_its_number_of_ranks(dims):
    for order in (row_wise(dims, 4), bricks(dims, 4, (2, 2)), bricks(dims, 4, (4, 1))):
        filled = np.bincount(order.node.ravel())
        assert (filled[:-1] == 4).all()
        assert filled.sum() == math.prod(dims)


def test_bricks_that_fit_send_less_between_nodes_than_rows(make_lattice):
    planned = Decomposition(make_lattice((129, 129)), (16, 16))
    rows, compact = traffic(planned.words, row_wise((16, 16), 16)), None
    compact = traffic(planned.words, best_bricks(planned, 16))
    # A brick of 4x4 ranks has 16 sides on its border, a row of 16 has 32.
    assert compact.words_leaving.sum() < 0.6 * rows.words_leaving.sum()
    assert compact.words_leaving_node.max() < rows.words_leaving_node.max()
