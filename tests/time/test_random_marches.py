"""Random marches of whatever goes together, beside matrices that are put together apart.

`drawn_marches` has the draws: domains, sides and kinds of data of `drawn_problems`, with storage, velocities, a reaction,
sources at all times, and data that move or are switched, by all methods.
"""

import numpy as np
import pytest
from drawn_marches import STEPS, DrawnMarch
from drawn_problems import KINDS
from own_marches import own_march

# Of the largest value: what is left of 1e-12 by a condition of some ten thousand.
LEFT = 1e-7
SEEDS = [
    *range(len(KINDS)),
    105,  # an exchange is switched by less than the flux on its side changes
    *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(200, 400)),
]
LARGE = [
    *range(1000, 1002),
    *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1002, 1100)),
]


def require_fields_alike(series, march):
    assert series.converged, series
    assert len(series) == STEPS + 1
    fields, own = np.stack([series.gather(n) for n in range(len(series))]), own_march(march)
    np.testing.assert_array_equal(np.isfinite(fields), np.isfinite(own), err_msg=str(march))
    size = np.nanmax(abs(own))
    np.testing.assert_allclose(fields, own, rtol=0, atol=LEFT * size, err_msg=str(march))


@pytest.mark.parametrize("seed", SEEDS)
def test_fields_are_those_of_matrices(seed):
    march = DrawnMarch(seed)
    require_fields_alike(march.march(), march)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("seed", LARGE)
def test_ranks_have_the_same(seed, comm):
    march = DrawnMarch(seed, large=True)
    require_fields_alike(march.march(ranks=comm), march)
