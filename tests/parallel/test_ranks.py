"""What the one object that knows ranks promises: shares, dims, sums, agreement, and its end."""

import gc
import itertools

import numpy as np
import pytest
import torch
from interface_exchanges import HaloExchange
from mpi4py import MPI

from mosaicdd.parallel.partition import fitting_dims
from mosaicdd.parallel.ranks import Ranks, Replicas

FEW = pytest.mark.ranks(1, 2, 3, 4)


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_the_partition_covers_everything_once_and_evenly(all_dims, make_ranks):
    for dims, more in itertools.product(all_dims, itertools.product((0, 1, 2, 5), repeat=2)):
        ranks = make_ranks(dims)
        counts = tuple(d + m for d, m in zip(dims, more, strict=True))
        covered = np.zeros(counts, int)
        for rank in range(ranks.size):
            start, stop = ranks.partition(counts, rank)
            covered[tuple(map(slice, start, stop))] += 1
            for n, dim, a, b in zip(counts, dims, start, stop, strict=True):
                assert b - a in (n // dim, -(-n // dim))
        assert (covered == 1).all()
        assert ranks.partition(counts) == ranks.partition(counts, ranks.rank)


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_neighbours_see_each_other_and_the_edge_has_none(all_dims, make_ranks):
    for dims in all_dims:
        ranks = make_ranks(dims)
        for direction in itertools.product((-1, 0, 1), repeat=2):
            there = [c + d for c, d in zip(ranks.coords, direction, strict=True)]
            inside = all(0 <= c < n for c, n in zip(there, dims, strict=True))
            # Rows first.
            expected = there[0] * dims[1] + there[1] if inside else None
            assert ranks.neighbour(direction) == expected


@pytest.mark.ranks(2, 3)
def test_the_sum_is_over_all_ranks_and_nan_anywhere_is_nan_everywhere(comm, make_ranks):
    mine = np.array([comm.rank, 1.0, np.nan if comm.rank == 1 else 0.0])
    numbers = sum(range(comm.size))
    np.testing.assert_array_equal(make_ranks().sum(mine), [numbers, comm.size, np.nan])
    whole = make_ranks().sum(np.array([3, 1] if comm.rank == 0 else [3.0, 1.0]))
    np.testing.assert_array_equal(whole, [3 * comm.size, comm.size])


@pytest.mark.parametrize(
    ("size", "counts", "dims"),
    [
        (1, (5, 5), (1, 1)),
        (6, (63, 127), (2, 3)),
        (6, (127, 63), (3, 2)),
        (4, (127, 127), (2, 2)),
        (4, (1, 127), (1, 4)),
        (6, (2, 3), (2, 3)),
        (7, (127, 127), None),
    ],
)
def test_the_dims_have_the_shortest_block_edges_among_those_that_fit(size, counts, dims):
    chosen = fitting_dims(size, counts)[0]
    assert chosen[0] * chosen[1] == size
    if dims:
        assert chosen == dims
    edges = [
        counts[0] / y + counts[1] / x
        for y, x in itertools.product(range(1, size + 1), repeat=2)
        if y * x == size and y <= counts[0] and x <= counts[1]
    ]
    assert counts[0] / chosen[0] + counts[1] / chosen[1] == min(edges)


@pytest.mark.parametrize(
    ("size", "counts"), [(7, (3, 3)), (2, (1, 1)), (11, (3, 10)), (100, (7, 9)), (5, (2, 4))]
)
def test_too_many_ranks_are_told_how_many_fit(size, counts):
    def fits(n):
        return any(n % y == 0 and y <= counts[0] and n // y <= counts[1] for y in range(1, n + 1))

    most = max(n for n in range(1, size) if fits(n))
    with pytest.raises(ValueError, match=rf"{size} ranks do not fit.* at most {most} ranks"):
        fitting_dims(size, counts)
    fitting_dims(most, counts)


def fail(error):
    raise error


@FEW
def test_an_exception_on_any_rank_is_raised_on_all_the_first_of_several(ranks):
    for rank in range(ranks.size):
        error = FileNotFoundError(f"seen by rank {rank}")
        with pytest.raises(FileNotFoundError, match=f"seen by rank {rank}"):
            ranks.run_on_all(lambda: fail(error) if ranks.rank == rank else 1)  # noqa: B023
    with pytest.raises(ValueError, match="rank 0"):
        ranks.run_on_all(lambda: fail(ValueError(f"rank {ranks.rank}")))
    with pytest.raises(PermissionError, match="closed"):
        ranks.on_root(lambda: fail(PermissionError("closed")))
    assert ranks.run_on_all(lambda: ranks.rank) == ranks.rank


@FEW
def test_the_root_s_result_is_everyone_s_and_no_other_rank_computes_it(ranks):
    calls = []
    assert ranks.on_root(lambda: calls.append(1) or "result") == "result"
    assert len(calls) == (ranks.rank == 0)


@pytest.mark.ranks(1, 4, 6)
def test_a_cartesian_communicator_gives_its_dims_unless_others_are_given(comm):
    dims = MPI.Compute_dims(comm.size, 2)[::-1]
    cartesian = comm.Create_cart(dims, periods=(True, False))
    with Ranks.of(cartesian) as ranks, Ranks.of(cartesian, (comm.size, 1)) as column:
        if comm.size > 1:
            assert ranks.dims == tuple(dims)
            assert ranks.fitted((10, 90)).dims == tuple(dims)
        assert column.dims == (comm.size, 1)
        # The standard numbers the ranks of a Cartesian communicator rows first, as we do.
        assert list(ranks.coords) == cartesian.Get_coords(comm.rank)
    cartesian.Free()


@pytest.mark.ranks(4, 6)
@pytest.mark.parametrize("axes", [1, 3])
def test_of_other_than_two_axes_only_the_ranks_are_taken(comm, axes):
    cartesian = comm.Create_cart((comm.size,) if axes == 1 else (1, 2, comm.size // 2))
    with Ranks.of(cartesian) as ranks:
        assert ranks.fitted((2, 90)).dims == (1, comm.size)
        assert ranks.fitted((90, 2)).dims == (comm.size, 1)
    cartesian.Free()


@pytest.mark.ranks(2, 4)
def test_messages_of_the_program_around_do_not_arrive_here(comm):
    theirs, ours, there = np.full(1, -1.0), np.full(1, float(comm.rank)), comm.rank ^ 1
    sent = comm.Isend(theirs.copy(), there, tag=7)  # the first that is on its way
    with Ranks.of(comm) as ranks:
        ranks.comm.Sendrecv_replace(ours, there, 7, there, 7)
    comm.Recv(theirs, there, tag=7)
    sent.Wait()
    assert (ours, theirs) == (there, -1)


@pytest.mark.ranks(2)
def test_hundreds_of_ranks_and_exchanges_leave_no_communicator_behind(comm):
    line = torch.zeros(1, 4, 4)

    def use_and_close():
        with Ranks.of(comm, (1, 2)) as ranks:
            row = (slice(0, 1), slice(0, 4))
            exchange = HaloExchange(ranks, [line], lambda _: [(0, row)], lambda _: [(0, row)])
            exchange.add([line])
            assert Replicas(ranks, 2).ranks.size == 1
        return exchange  # kept longer than the ranks

    # MPICH has 2048 communicators, of which each round makes two; one that is left of each is too many.
    taken = [comm.Dup() for _ in range(1700)]
    last = [use_and_close() for _ in range(400)]
    assert last[0].messages == 1
    for communicator in taken:
        communicator.Free()


@pytest.mark.ranks(2)
def test_an_exchange_that_nobody_closes_frees_its_requests_when_it_is_dropped(comm):
    line, row = torch.zeros(1, 4, 4), (slice(0, 1), slice(0, 4))
    with Ranks.of(comm, (1, 2)) as ranks:
        exchange = HaloExchange(ranks, [line], lambda _: [(0, row)], lambda _: [(0, row)])
        requests = exchange._requests
        assert len(requests) == 2
        del exchange
        gc.collect()
        assert requests == []


@pytest.mark.ranks(2)
@pytest.mark.parametrize("count", [1, 2])
def test_what_is_made_through_parts_of_the_ranks_closes_with_them(comm, count):
    line, row = torch.zeros(1, 4, 4), (slice(0, 1), slice(0, 4))
    everyone = Ranks.of(comm)
    replicas = Replicas(Ranks.of(everyone), count)
    ranks = replicas.ranks.fitted((2, 2))
    exchange = HaloExchange(ranks, [line], lambda _: [(0, row)], lambda _: [(0, row)])
    assert len(exchange._requests) == (0 if count == 2 else 2)
    everyone.close()
    assert exchange._requests == []
    for closed in (replicas.world, replicas.ranks, ranks):
        with pytest.raises(RuntimeError, match="have been closed"):
            closed.barrier()


@FEW
def test_closed_ranks_say_so(comm):
    ranks = Ranks.of(comm)
    fitted, other = ranks.fitted((9, 9)), Ranks.of(ranks)
    other.close()
    assert ranks.sum(np.ones(1)) == comm.size
    ranks.close()
    ranks.close()
    for closed in (ranks, fitted, other):
        with pytest.raises(RuntimeError, match="have been closed"):
            closed.sum(np.ones(1))


@pytest.mark.ranks(1, 2, 3)
def test_what_is_no_communicator_of_this_rank_is_refused(comm):
    with pytest.raises(TypeError, match="intracommunicator of mpi4py, Ranks or None, got int"):
        Ranks.of(4)
    with pytest.raises(ValueError, match="this rank is not in the communicator"):
        Ranks.of(MPI.COMM_NULL)


@pytest.mark.ranks(1, 2, 3)
def test_one_rank_alone_is_the_same_whatever_communicator_is_around(comm):
    for ranks in (
        Ranks.alone(),
        Ranks.of(),
        Ranks.of(MPI.COMM_SELF),
        Ranks.of(MPI.COMM_SELF.Dup()),
    ):
        assert (ranks.rank, ranks.size, ranks.dims, ranks.coords) == (0, 1, (1, 1), (0, 0))
        assert ranks.is_root
        assert ranks.share(5) == range(5)
        assert ranks.any(True)
        assert ranks.largest(2.0) == 2.0
        assert ranks.allgather("x") == ranks.gather("x") == ["x"]
        np.testing.assert_array_equal(ranks.sum(np.array([1.0, 2.0])), [1.0, 2.0])
        ranks.barrier()


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("items", [0, 1, 5, 64])
def test_the_shares_of_all_ranks_are_everything_once_and_even(ranks, items):
    shares = [ranks.share(items, rank) for rank in range(ranks.size)]
    assert [item for share in shares for item in share] == list(range(items))
    lengths = list(map(len, shares))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1
    assert ranks.share(items) == shares[ranks.rank]
    assert ranks.any(ranks.rank == ranks.size - 1)
    assert not ranks.any(False)
    assert ranks.largest(ranks.rank) == ranks.size - 1


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("items", [1, 5, 64])
def test_groups_are_of_equal_size_and_share_everything_once(ranks, items):
    for count in (n for n in range(1, ranks.size + 1) if ranks.size % n == 0):
        replicas = Replicas(ranks, count)
        assert replicas.ranks.size == ranks.size // count
        everything = ranks.allgather((replicas.index, list(replicas.share(items))))
        by_group = dict(everything)
        assert sorted(by_group) == list(range(count))
        assert [item for index in range(count) for item in by_group[index]] == list(range(items))
        lengths = [len(share) for share in by_group.values()]
        assert max(lengths) - min(lengths) <= 1
