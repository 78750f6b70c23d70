"""Gradients of random marches by all that does not change in time, beside differences of matrices that are put together apart.

Marches are those of `drawn_marches`, without coefficients and outlines that change, `own_marches` has their fields.
"""

import copy

import numpy as np
import pytest
import torch
from drawn_marches import DT, STEPS, DrawnMarch, InTime
from own_marches import own_march
from varied_problems import directions, is_refused, varied

import mosaicdd as m

STEP = 1e-4  # relative; what it leaves is 1e-8 of the third derivative
# Of all the terms of the derivative: what solves to 1e-12 leave by a condition of some ten thousand, and the step.
LEFT = 1e-6
SEEDS = [*range(4), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(100, 300))]
LARGE = [*range(1000, 1001), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1001, 1201))]  # fmt: skip


def drawn_march(seed, *, large):
    """Draw a march whose gradients are known."""
    march = DrawnMarch(seed, large=large)
    if march.pde == "reaction-diffusion":
        march.pde = "heat"
    for key, datum in march.moving.items():
        if isinstance(key, str) and key != "f":  # coefficients stand still
            datum.now, datum.way = InTime(), "text"
    march.moving = {
        key: d for key, d in march.moving.items() if key[0] != "outline" and key[-1] != "alpha"
    }
    return march


def with_problem(march, p):
    changed = copy.copy(march)
    changed.p = p
    return changed


def require_gradients_alike(seed, ranks=None, *, large=False):
    march = drawn_march(seed, large=large)
    rng, p = np.random.default_rng(seed), march.p
    if is_refused(p):
        pytest.skip("an outline exchanges between periodic sides")
    ways = [
        (name, key, change)
        for name, key, change in directions(p, rng)
        if key not in march.moving and key[:2] not in march.moving and not (key == "f" and march.times is not None)
        and (isinstance(key, str) or p.sides[key[0]][key[1]].g1 == 0)
    ]  # fmt: skip
    names = [name for name, *_ in ways]
    values = {}
    for name, key, _ in ways:
        given = p.fields[key] if isinstance(key, str) else getattr(p.sides[key[0]][key[1]], {"g0": "g0", "alpha": "alpha"}[key[2]])  # fmt: skip
        values[name] = np.array(given, float)
    by_initial = not isinstance(march.initial, str)
    if by_initial:
        names.append("initial")
        values["initial"] = np.array(march.initial, float)
    how = {"initial": march.initial, "dt": DT, "steps": STEPS, "method": march.method}
    settings = m.SolveSettings(rtol=1e-12)
    call = m.differentiable(march.problem, names, ranks=ranks, settings=settings, **how)
    for name, value in call._parameters.values().items():  # sides have all their nodes
        if name in values and name not in p.fields:
            values[name] = np.broadcast_to(values[name], value.shape).copy()
    tensors = {n: torch.tensor(v, requires_grad=True) for n, v in values.items()}
    fields = call(**tensors)
    own = own_march(march)
    w = np.where(np.isfinite(own), rng.uniform(-0.3, 1.0, own.shape), 0.0)
    np.testing.assert_array_equal(fields.isfinite(), np.isfinite(own))
    torch.where(fields.isfinite(), fields * torch.from_numpy(w), 0.0).sum().backward()
    if by_initial:
        change = rng.uniform(0.5, 1.0, np.shape(march.initial))
        ways.append(("initial", None, change))
    for name, key, change in ways:

        def moved(s, key=key, change=change):
            if key is None:
                changed = copy.copy(march)
                changed.initial = march.initial + s * change
                return np.nan_to_num(own_march(changed))
            return np.nan_to_num(own_march(with_problem(march, varied(p, key, change, s))))

        terms = w * (moved(STEP) - moved(-STEP)) / (2 * STEP)
        size = abs(terms).sum() + 1e-3 * (abs(w) * abs(np.nan_to_num(own))).sum()
        derivative = float((tensors[name].grad.numpy() * change).sum())
        assert derivative == pytest.approx(terms.sum(), rel=0, abs=LEFT * size), (name, str(march))


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_are_differences_of_matrices(seed):
    require_gradients_alike(seed)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("seed", LARGE)
def test_ranks_have_the_same_gradients(seed, comm):
    require_gradients_alike(seed, comm, large=True)
