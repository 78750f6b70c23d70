"""Gradients of random equations that are not linear, by all that they are given at once, beside central differences.

Domains, sides, coefficients and sources are those of `drawn_problems`. Of a weighted sum of values the derivative along a
random direction is a central difference of solves, with the error that its step and these leave.
"""

import numpy as np
import pytest
from central_differences import central_difference
from drawn_problems import drawn

import mosaicdd as m
from mosaicdd.gradients.parameters import Parameters

RTOL, STEP = 1e-11, 1e-4
EQUATIONS = {
    "reaction-diffusion": ("a", "c", "f"),
    "quasilinear-diffusion": ("a", "c", "f"),
    "poisson-boltzmann": ("a", "c", "f"),
    "p-laplace": ("a", "f"),
    "allen-cahn": ("f",),
}
SEEDS = [*range(4), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(100, 300))]
LARGE = [*range(1000, 1002), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1002, 1202))]  # fmt: skip


def drawn_problem(seed, *, large):
    """Draw an equation and a problem of it, with values given on one side, or a reaction, at least."""
    rng, p = np.random.default_rng([seed, 2]), drawn(seed, large=large)
    equation = str(rng.choice([*EQUATIONS]))
    fields = {name: v for name, v in p.given_fields.items() if name in EQUATIONS[equation]}
    if "c" in EQUATIONS[equation]:
        fields.setdefault("c", 0.5)
    if equation == "p-laplace":
        fields["eps"] = 0.5
    return m.Problem(p.domain, equation, fields, p.problem.sides), f"{equation} {p}"


def require_gradient_alike(seed, ranks=None, *, large=False):
    text = f"seed {seed}"
    try:
        problem, text = drawn_problem(seed, large=large)
        known = Parameters(problem)
        solution = m.solve(problem, "exact", rtol=RTOL, ranks=ranks, keep="unknowns")
    except m.Unsupported as refused:
        pytest.skip(f"{refused}: {text}")
    except ValueError as refused:
        if "no value is given on any side" not in str(
            refused
        ):  # nothing says which solution is meant
            raise
        pytest.skip(f"{refused}: {text}")
    rng = np.random.default_rng(seed)
    values = known.values()
    along = {n: rng.uniform(0.2, 1.0, v.shape) * (abs(v) + 0.1) for n, v in values.items()}
    weights = rng.uniform(-0.3, 1.0, known.grid.nodes)

    def terms(s):
        moved = known.with_values({n: v + s * along[n] for n, v in values.items()})
        solution = m.solve(moved, "exact", rtol=RTOL, ranks=ranks)
        assert solution.converged, (str(solution), text)
        return np.nan_to_num(weights * solution.gather())

    by = m.adjoint(solution, weights[solution.place], rtol=1e-10)
    derivative = 0.0
    for name in values:
        slope, change = by[name], along[name]
        if name in known.fields and slope.ndim:
            place = zip(solution.place, slope.shape, strict=True)
            mine = (slope * change[tuple(slice(q.start, q.start + n) for q, n in place)]).sum()
            derivative += mine if ranks is None else ranks.allreduce(mine)
        else:
            derivative += (slope * change).sum()
    assert derivative == central_difference(terms, STEP, rtol=1e3 * RTOL), text


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_are_central_differences(seed):
    require_gradient_alike(seed)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("seed", LARGE)
def test_ranks_have_the_same_gradients(seed, comm):
    require_gradient_alike(seed, comm, large=True)
