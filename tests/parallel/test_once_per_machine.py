"""Results of one rank per machine reach the others of it."""

import numpy as np
import pytest

from mosaicdd.parallel.once_per_machine import OncePerMachine
from mosaicdd.parallel.ranks import Ranks


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_one_rank_computes_and_all_have_the_result(comm):
    with Ranks.of(comm) as ranks:
        once, calls = OncePerMachine(ranks), []
        given = np.arange(12.0).reshape(3, 4)

        def compute(values):
            calls.append(1)
            return 2 * values.T.reshape(4, 3).T  # not contiguous

        found = once(compute if once.leads else None, given)
        np.testing.assert_array_equal(found, 2 * given)
        assert sum(ranks.allgather(len(calls))) == 1
