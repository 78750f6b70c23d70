"""What a redistribution refuses, on all ranks: arrays, layouts and types that do not fit."""

import numpy as np
import pytest

from mosaicdd.parallel.layouts.layout import Layout, Shard
from mosaicdd.parallel.layouts.redistribution import Redistribution

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)


def test_an_array_that_does_not_fit_is_refused(ranks):
    layout = Layout((6, 4), (ranks.size,), (Shard(0),))
    wrong = np.zeros(np.add(layout.local_shape(ranks.rank), (1, 0)))
    move = Redistribution(layout, layout, ranks, float)
    with pytest.raises(ValueError, match="source layout needs an array of shape"):
        move(wrong)
    with pytest.raises(ValueError, match=r"float64 on this rank, got .* float32"):
        move(np.zeros(layout.local_shape(ranks.rank), "f4"))


def test_layouts_that_do_not_fit_are_refused_with_both_numbers(ranks):
    here = Layout((6, 4), (ranks.size,), (Shard(0),))
    with pytest.raises(ValueError, match=r"shape \(6, 4\), the target \(6, 5\)"):
        Redistribution(here, Layout((6, 5), (ranks.size,), (Shard(0),)), ranks, float)
    more = Layout((6, 4), (ranks.size + 1,), (Shard(0),))
    with pytest.raises(ValueError, match=f"needs {ranks.size + 1} ranks, there are {ranks.size}"):
        Redistribution(here, more, ranks, float)
