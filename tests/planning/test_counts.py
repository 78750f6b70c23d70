"""What a plan counts, against what the ranks of a process grid really plan and own."""

import itertools
import math

import numpy as np
import pytest
from interface_exchanges import HaloExchange, interface_exchange, lattice_of, like_of
from interface_exchanges import block as block_of

from mosaicdd import Domain, Periodic, Problem, Solver, SolveSettings
from mosaicdd.discretisation.system import nodes_of_media
from mosaicdd.parallel.partition import fitting_dims
from mosaicdd.planning.counts import Decomposition, count_levels, count_subdomains, levels_on

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


def directions(axes):
    return [way for way in itertools.product((-1, 0, 1), repeat=axes) if any(way)]


def sent(ranks, block):
    """Return the words and the messages of a halo exchange."""
    exchange = interface_exchange(ranks, block)
    return exchange.words, exchange.messages


@pytest.mark.ranks(*SIZES)
@pytest.mark.parametrize("halo", [1, 2, 3])
def test_messages_and_words_are_those_that_the_halo_exchange_plans(halo, cases):
    for ranks, lattice in cases:
        block = block_of(ranks, lattice, halo)
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
        lattice = lattice_of([d + m + 1 for d, m in zip(dims, more, strict=True)], m=16)
        block, planned = block_of(ranks, lattice), Decomposition(lattice, dims)
        words = [planned.words(d)[ranks.coords] for d in directions(3)]
        assert sent(ranks, block) == (sum(words), np.count_nonzero(words))
        assert planned.interface[ranks.coords] == len(like_of(block).flat)


@pytest.mark.ranks(*SIZES)
def test_blocks_are_those_of_the_process_grid(cases):
    for ranks, lattice in cases:
        block, planned = block_of(ranks, lattice), Decomposition(lattice, ranks.dims)
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
@pytest.mark.parametrize("word", [4, 8])
def test_a_message_goes_to_every_neighbour_along_and_across(make_lattice, dims, word):
    planned = Decomposition(make_lattice((20, 20)), dims)
    counts, (y, x) = count_subdomains(planned, word), dims
    assert counts.messages == 2 * (y * (x - 1) + (y - 1) * x + 2 * (y - 1) * (x - 1))
    assert counts.most_messages == (8 if min(dims) > 2 else 2)
    assert counts.bytes == word * sum(planned.words(d).sum() for d in directions(2))
    assert counts.bytes / (x * y) < counts.most_bytes < counts.bytes


@pytest.mark.ranks(2, 4, 6)
@pytest.mark.parametrize(
    ("cells", "sides"),
    [((192, 256), {}), ((167, 150), {"left": Periodic(), "right": Periodic()}), ((48, 40, 64), {})],
    ids=["plane", "around", "space"],
)
def test_messages_and_bytes_are_those_of_an_iteration_by_multigrid(comm, monkeypatch, cells, sides):
    sent = np.zeros(2, np.int64)
    start = HaloExchange.start

    def counting(exchange, arrays):
        sent[:] += exchange.messages, exchange.words * arrays[0].element_size()
        start(exchange, arrays)

    a = np.exp(np.sin(np.arange(np.prod([n + 1 for n in cells])))).reshape([n + 1 for n in cells])
    a[..., -1] = a[..., 0]
    problem = Problem(Domain(cells), "diffusion", {"a": a, "f": 1.0}, sides)
    boxes = nodes_of_media(problem, problem.domain.grid())
    dims = fitting_dims(comm.size, boxes.counts)[0]
    made = count_levels(levels_on(boxes, dims, values_given=not sides), dims)

    def counted(iterations):
        settings = SolveSettings(rtol=1e-14, max_iterations=iterations, dims=dims)
        with Solver(problem, ranks=comm, settings=settings) as solver:
            sent[:] = 0
            assert solver(problem).iterations == iterations
        return comm.allgather(sent.copy())

    monkeypatch.setattr(HaloExchange, "start", counting)
    each = np.subtract(counted(3), counted(2))
    assert (made.messages, made.bytes) == tuple(each.sum(axis=0))
    assert (made.most_messages, made.most_bytes) == tuple(each.max(axis=0))
