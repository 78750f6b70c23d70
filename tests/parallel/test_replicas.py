"""Groups of ranks and their shares."""

import pytest

from mosaicdd.parallel.replicas import Replicas

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)


@RANKS
@pytest.mark.parametrize("items", [1, 5, 64])
def test_groups_are_of_equal_size_and_share_everything_once(comm, items):
    for count in (n for n in range(1, comm.size + 1) if comm.size % n == 0):
        replicas = Replicas(comm, count)
        assert replicas.comm.size == comm.size // count
        everything = comm.allgather((replicas.index, list(replicas.share(items))))
        by_group = dict(everything)
        assert sorted(by_group) == list(range(count))
        assert [item for index in range(count) for item in by_group[index]] == list(range(items))
        lengths = [len(share) for share in by_group.values()]
        assert max(lengths) - min(lengths) <= 1


@RANKS
def test_what_one_rank_of_one_group_says_all_ranks_hear(comm):
    replicas = Replicas(comm, comm.size)
    assert replicas.any(comm.rank == comm.size - 1)
    assert not replicas.any(False)


@pytest.mark.ranks(4)
def test_groups_that_the_ranks_do_not_make_up_are_refused(comm):
    with pytest.raises(ValueError, match=r"--replicas 3 must divide .* 4 were started"):
        Replicas(comm, 3)
    with pytest.raises(ValueError, match="--replicas 2 with --dims 3x1 needs 6 ranks, 4 were"):
        Replicas(comm, 2, (1, 3))
