"""Groups of ranks and their shares."""

import pytest

from mosaicdd.parallel.ranks import Replicas

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)


@RANKS
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


@pytest.mark.ranks(4)
def test_groups_that_the_ranks_do_not_make_up_are_refused(ranks):
    with pytest.raises(ValueError, match=r"replicas=3 must divide .* there are 4"):
        Replicas(ranks, 3)
    with pytest.raises(ValueError, match="replicas=2 with dims 3x1 need 6 ranks, there are 4"):
        Replicas(ranks, 2, (1, 3))
