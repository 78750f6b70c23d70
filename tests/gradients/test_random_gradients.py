"""Gradients of random problems by all that they are given, beside differences of matrices that are put together apart.

`drawn_problems` has the draws. Of a weighted sum of values the derivative along a random direction is a central difference of
`own_equations`; data are varied there, where no solve of the package has a part.
"""

import numpy as np
import pytest
from drawn_problems import KINDS, drawn
from own_equations import OwnSolution
from varied_problems import directions, is_refused, varied

import mosaicdd as m

STEP = 1e-4  # relative; what it leaves is 1e-8 of the third derivative
# Of all the terms of the derivative: what solves to 1e-11 leave by a condition of some ten thousand, and the step.
LEFT = 1e-6
SEEDS = [
    *range(len(KINDS)),
    *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(100, 300)),
]
LARGE = [
    *range(1000, 1002),
    *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1002, 1040)),
]


def require_gradients_alike(p, rng, ranks=None):
    solution = m.solve(p.problem, "exact", ranks=ranks, rtol=1e-11, keep="unknowns")
    field, own = solution.gather(), OwnSolution(p)
    if is_refused(p):
        with pytest.raises(m.Unsupported, match="an outline exchanges"):
            m.adjoint(solution, np.zeros_like(solution.local))
        return
    w = np.where(np.isfinite(field), rng.uniform(-0.3, 1.0, field.shape), 0.0)
    by = m.adjoint(solution, w[solution.place], rtol=1e-11)
    total = solution_sum(ranks)
    for name, key, change in directions(p, rng):
        ahead, back = (
            np.nan_to_num(OwnSolution(varied(p, key, change, s)).u) for s in (STEP, -STEP)
        )
        terms = w * (ahead - back) / (2 * STEP)
        size = abs(terms).sum() + 1e-3 * (abs(w) * abs(np.nan_to_num(own.u))).sum()
        slope = by[name]
        if slope.ndim and np.shape(change):
            rows = tuple(
                slice(q.start, q.start + n)
                for q, n in zip(solution.place, slope.shape, strict=True)
            )
            derivative = total((slope * change[rows]).sum())
        elif slope.ndim and name in p.fields:
            derivative = total(slope.sum() * change)
        else:
            derivative = slope.sum() * change
        assert derivative == pytest.approx(terms.sum(), rel=0, abs=LEFT * size), (name, str(p))


def solution_sum(ranks):
    return (lambda value: value) if ranks is None else ranks.allreduce


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_are_differences_of_matrices(seed):
    require_gradients_alike(drawn(seed), np.random.default_rng(seed))


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("seed", LARGE)
def test_ranks_have_the_same_gradients(seed, comm):
    require_gradients_alike(drawn(seed, large=True), np.random.default_rng(seed), comm)


def test_a_side_exchanges_between_periodic_ones_beside_an_outline_that_does_not():
    p = drawn(11)
    assert [c.kind for c in p.sides["top"]] == ["exchange"]
    assert p.sides["left"][0].kind == "periodic"
    assert p.sides["outline"][0].kind == "value"
    require_gradients_alike(p, np.random.default_rng(11))


def test_a_flux_enters_at_the_last_node_between_periodic_sides_where_the_first_has_no_voxel():
    p = drawn(283)
    assert p.sides["front"][0].kind == "flux"
    assert p.sides["top"][0].kind == "periodic"
    assert (p.inside[-1, -1] & ~p.inside[-1, 0]).any()
    require_gradients_alike(p, np.random.default_rng(283))
