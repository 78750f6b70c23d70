"""Results of one rank per machine reach the others of it."""

import pytest
import torch

from mosaicdd.parallel.node_gather import OncePerMachine
from mosaicdd.parallel.ranks import Ranks


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_one_rank_computes_and_all_have_the_result(comm):
    with Ranks.of(comm) as ranks:
        once, calls = OncePerMachine(ranks), []
        given = torch.arange(12.0, dtype=torch.float64).view(3, 4)

        def compute(values):
            calls.append(1)
            return 2 * values.T.contiguous().T

        found = once(compute if once.leads else None, given)
        assert torch.equal(found, 2 * given)
        assert sum(ranks.allgather(len(calls))) == 1
