"""What the one object that knows ranks promises: shares, dims, sums, agreement, and its end."""

import itertools

import numpy as np
import pytest

from mosaicdd.parallel.partition import fitting_dims
from mosaicdd.parallel.ranks import Ranks

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


@pytest.mark.ranks(4)
@pytest.mark.parametrize("dims", [(3, 3), (1, 3), (0, 4), (-2, -2)])
def test_dims_that_do_not_multiply_to_the_ranks_are_refused_with_both_numbers(comm, dims):
    with pytest.raises(
        ValueError, match=rf"{dims[1]}x{dims[0]} need {dims[0] * dims[1]} .*, there are 4"
    ):
        Ranks.of(comm, dims)


@pytest.mark.ranks(4)
@pytest.mark.parametrize(
    ("dims", "counts", "message"),
    [
        ((1, 4), (9, 3), "dims 4x1: 4 ranks along x, .* only 3 subdomains"),
        ((4, 1), (3, 9), "dims 1x4: 4 ranks along y, .* only 3 subdomains"),
        ((2, 2), (1, 9), "dims 2x2: 2 ranks along y, .* only 1 subdomains"),
    ],
)
def test_more_ranks_than_subdomains_along_an_axis_are_refused(make_ranks, dims, counts, message):
    with pytest.raises(ValueError, match=message):
        make_ranks(dims).partition(counts)


@pytest.mark.ranks(3)
def test_the_sum_is_over_all_ranks_and_nan_anywhere_is_nan_everywhere(comm, make_ranks):
    mine = np.array([comm.rank, 1.0, np.nan if comm.rank == 1 else 0.0])
    np.testing.assert_array_equal(make_ranks().sum(mine), [3.0, 3.0, np.nan])


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


def failing_on(ranks, rank, error):
    def function():
        if ranks.rank == rank:
            raise error
        return ranks.rank

    return function


@FEW
def test_an_exception_on_any_one_rank_is_raised_on_all(ranks):
    for rank in range(ranks.size):
        error = FileNotFoundError(f"seen by rank {rank}")
        with pytest.raises(FileNotFoundError, match=f"seen by rank {rank}"):
            ranks.agree(failing_on(ranks, rank, error))


@FEW
def test_of_several_exceptions_all_ranks_raise_the_first(ranks):
    def function():
        raise ValueError(f"rank {ranks.rank}")

    with pytest.raises(ValueError, match="rank 0"):
        ranks.agree(function)


@FEW
def test_an_exception_on_the_root_is_raised_on_all(ranks):
    with pytest.raises(PermissionError, match="closed"):
        ranks.on_root(failing_on(ranks, 0, PermissionError("closed")))


@FEW
def test_the_root_s_result_is_everyone_s_and_no_other_rank_computes_it(ranks):
    calls = []
    assert ranks.on_root(lambda: calls.append(1) or "result") == "result"
    assert len(calls) == (ranks.rank == 0)


@FEW
def test_without_an_exception_each_rank_keeps_its_own_result(ranks):
    assert ranks.agree(lambda: ranks.rank) == ranks.rank
