"""Nonlinear equations on cells that are no squares, nor cubes: beside a Newton's method of its own, on all sides, in masks."""

import itertools

import numpy as np
import pytest
from cell_newton import Assembled

import mosaicdd as m
from mosaicdd.problems.equations import NONLINEAR
from mosaicdd.schwarz.local_solvers.exact import Exact
from mosaicdd.solvers.references import solve_directly

TIGHT = m.SolveSettings(rtol=1e-13)
PLANE, SPACE = (12, 16), (8, 8, 12)
STEPS = {2: (25.0, 10.0), 3: (2.0, 25.0, 10.0)}


def drawn(name, axes, around=False):
    """Return random fields of an equation."""
    nodes = tuple(n + 1 for n in (PLANE if axes == 2 else SPACE))
    rng = np.random.default_rng(0)

    def between(low, high):
        values = rng.uniform(low, high, nodes)
        if around:
            values[..., -1] = values[..., 0]
        return values

    if name == "allen-cahn":
        return {"eps": between(5, 20), "c": between(2, 4), "f": between(-3, 3)}
    if name == "burgers":
        return {"nu": between(5, 9), "c": between(0.01, 0.05), "f": between(-0.1, 0.1)}
    if name == "minimal-surface":
        return {"f": 1e-4}
    if name == "p-laplace":
        return {"a": between(1, 3), "f": 1e-3}
    return {"a": between(1, 3), "c": between(0.01, 0.03), "f": between(-0.01, 0.01)}


SIDES = {
    "values": m.Dirichlet("sin(x/90) + sin(y/60)"),
    "sides": {
        "left": m.Dirichlet("sin(y/60)"),
        "right": m.Neumann("0.005*cos(y/100)"),
        "top": m.Robin(0.03, "0.01 + x/9000"),
        "bottom": m.Neumann(-0.004),
    },
    "periods": {
        "left": m.Periodic(),
        "right": m.Periodic(),
        "bottom": m.Dirichlet(0.4),
        "top": m.Robin(0.03, 0.01),
    },
}
SIDES["mask"] = SIDES["sides"] | {"outline": m.Robin(0.03, 0.02)}
BESIDE = {"back": m.Robin(0.01, 0.02), "front": m.Neumann(0.001)}


HOLE = {2: (slice(3, 5), slice(4, 7)), 3: (slice(3, 5), slice(2, 4), slice(4, 7))}


def of_kind(name, kind, axes):
    """Return a problem, and its mask of cells if there is one."""
    cells, sides, mask = PLANE if axes == 2 else SPACE, SIDES[kind], None
    domain = m.Domain(cells, STEPS[axes])
    if kind == "mask":
        mask = np.ones(cells, bool)
        mask[HOLE[axes]] = mask[(slice(2),) * axes] = False
        domain = m.Domain.from_mask(mask, STEPS[axes], per_cell=True)
    if axes == 3 and kind != "values":
        sides = sides | BESIDE
    return m.Problem(domain, name, drawn(name, axes, kind == "periods"), sides), mask


DAILY = {
    ("allen-cahn", "mask", 2), ("burgers", "sides", 2), ("minimal-surface", "values", 2), ("p-laplace", "periods", 2),
    ("poisson-boltzmann", "values", 2), ("quasilinear-diffusion", "sides", 2), ("reaction-diffusion", "values", 3),
}  # fmt: skip
CROSSED = ("minimal-surface", "p-laplace")
CASES = [
    pytest.param(*case, marks=[] if case in DAILY else pytest.mark.nightly)
    for case in itertools.product(NONLINEAR, SIDES, (2, 3))
    if not (case[0] == "burgers" and case[2] == 3)
    and not (case[0] in CROSSED and case[1:] == ("mask", 2))
]


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize(("name", "kind", "axes"), CASES)
def test_fields_are_those_of_a_newton_method_of_its_own(name, kind, axes, comm):
    problem, mask = of_kind(name, kind, axes)
    field, left = Assembled(problem, mask).solve()
    assert left < 1e-13
    solution = m.solve(problem, Exact(8 * (axes - 1)), settings=TIGHT, ranks=comm)
    assert solution.converged
    np.testing.assert_allclose(solution.gather(), field, rtol=0, atol=1e-11 * np.nanmax(abs(field)))


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("outline", ["values", "exchange"])
@pytest.mark.parametrize("name", ["quasilinear-diffusion", "burgers"])
def test_ranks_agree_with_a_direct_solver_where_an_outline_cuts_cells(name, outline, comm):
    domain = m.Domain.from_distance("hypot(x - 80, y - 150) - 61", PLANE, STEPS[2])
    condition = m.Dirichlet("sin(x/30)") if outline == "values" else m.Robin(0.5, "x/100")
    problem = m.Problem(domain, name, drawn(name, 2), {"outline": condition})
    field = solve_directly(problem)
    solution = m.solve(problem, Exact(8), settings=TIGHT, ranks=comm)
    assert solution.converged
    np.testing.assert_allclose(solution.gather(), field, rtol=0, atol=1e-9 * np.nanmax(abs(field)))
