"""A failure of one rank is the failure of all."""

import pytest

from mosaicdd.parallel.agreement import agree, on_root

pytestmark = pytest.mark.ranks(1, 2, 3, 4)


def failing_on(comm, rank, error):
    def function():
        if comm.rank == rank:
            raise error
        return comm.rank

    return function


def test_an_exception_on_any_one_rank_is_raised_on_all(comm):
    for rank in range(comm.size):
        error = FileNotFoundError(f"seen by rank {rank}")
        with pytest.raises(FileNotFoundError, match=f"seen by rank {rank}"):
            agree(comm, failing_on(comm, rank, error))


def test_of_several_exceptions_all_ranks_raise_the_first(comm):
    def function():
        raise ValueError(f"rank {comm.rank}")

    with pytest.raises(ValueError, match="rank 0"):
        agree(comm, function)


def test_an_exception_on_the_root_is_raised_on_all(comm):
    with pytest.raises(PermissionError, match="closed"):
        on_root(comm, failing_on(comm, 0, PermissionError("closed")))


def test_the_root_s_result_is_everyone_s_and_no_other_rank_computes_it(comm):
    calls = []
    assert on_root(comm, lambda: calls.append(1) or "result") == "result"
    assert len(calls) == (comm.rank == 0)


def test_without_an_exception_each_rank_keeps_its_own_result(comm):
    assert agree(comm, lambda: comm.rank) == comm.rank
