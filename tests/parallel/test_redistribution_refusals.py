"""What a redistribution refuses, on all ranks: arrays, layouts and types that do not fit."""

import numpy as np
import pytest

from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.parallel.layouts.placements import (
    PartialSum,
    Replicate,
    Shard,
)
from mosaicdd.parallel.layouts.redistribution import Redistribution, norm, redistribute

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)


@pytest.mark.parametrize("placement", [Replicate(), PartialSum()])
def test_a_norm_refuses_values_that_are_not_owned_exactly_once(ranks, placement):
    layout = Layout((5, 5), (1, ranks.size), (Shard(0), placement))
    mine = np.ones(layout.local_shape(ranks.rank))
    if ranks.size == 1:
        assert norm(mine, layout, ranks) == 5
        return
    with pytest.raises(ValueError, match=f"{type(placement).__name__}.*redistribute"):
        norm(mine, layout, ranks)


def test_an_array_that_does_not_fit_on_one_rank_is_refused_on_all(ranks):
    layout = Layout((6, 4), (ranks.size,), (Shard(0),))
    wrong = np.zeros(np.add(layout.local_shape(ranks.rank), (ranks.rank == ranks.size - 1, 0)))
    with pytest.raises(ValueError, match="source layout needs an array of shape"):
        redistribute(wrong, layout, layout, ranks)


def test_layouts_that_do_not_fit_are_refused_with_both_numbers(ranks):
    here = Layout((6, 4), (ranks.size,), (Shard(0),))
    with pytest.raises(ValueError, match=r"shape \(6, 4\), the target \(6, 5\)"):
        Redistribution(here, Layout((6, 5), (ranks.size,), (Shard(0),)), ranks, float)
    more = Layout((6, 4), (ranks.size + 1,), (Shard(0),))
    with pytest.raises(ValueError, match=f"needs {ranks.size + 1} ranks, there are {ranks.size}"):
        Redistribution(here, more, ranks, float)


@pytest.mark.ranks(2, 3)
def test_types_that_differ_between_ranks_are_refused_on_all(ranks):
    layout = Layout((6,), (ranks.size,), (Shard(0),))
    mine = np.zeros(layout.local_shape(ranks.rank), "f4" if ranks.rank == 1 else "f8")
    with pytest.raises(ValueError, match=r"float32.*float64"):
        redistribute(mine, layout, layout, ranks)
