"""Gradients of equations that are not linear, where sides are natural or periodic, and in parts of rectangles and boxes."""

import numpy as np
import pytest
import torch
from products import products

import mosaicdd as m
from mosaicdd.gradients.parameters import Parameters

CELLS, H = (20, 24), 0.1
NODES = tuple(count + 1 for count in CELLS)
BOX = (8, 8, 12)
TIGHT = m.SolveSettings(rtol=1e-12)
STEP = 1e-4
AROUND = m.Periodic()


def drawn(shape, seed=0):
    return np.array(np.random.default_rng((seed, *shape)).uniform(0.5, 2.0, shape))


SIDES = {
    "flux": {
        "left": m.Dirichlet("y"),
        "right": m.Neumann("0.1*y"),
        "top": m.Neumann(0.1),
        "wire": m.Held([(0.5, 0.55), (1.2, 0.55)], 1.0),
        "outline": m.Neumann(0.05),
    },
    "robin": {
        "left": m.Robin("1 + y", "0.2*y"),
        "right[0.2:0.9]": m.Robin(0.5, "0.2*y"),
        "right": m.Neumann(0.1),
        "top": m.Neumann(0.1),
        "outline": m.Robin(0.5, 0.1),
    },
    "periodic": {
        "left": AROUND,
        "right": AROUND,
        "bottom": m.Dirichlet("x*(2.4 - x)"),
        "top": m.Neumann(0.1),
        "outline": m.Dirichlet("0.2*x"),
    },
}


def fields_of(equation, cells):
    nodes = tuple(count + 1 for count in cells)
    return {
        "p-laplace": {"a": drawn(nodes), "eps": 0.3, "f": drawn(nodes, 1)},
        "minimal-surface": {"f": 0.1 * drawn(nodes)},
        "poisson-boltzmann": {"a": drawn(nodes, 9), "c": drawn(nodes, 2), "f": drawn(nodes, 3)},
        "reaction-diffusion": {"a": drawn(cells), "c": drawn(nodes), "f": 1.0},
        "quasilinear-diffusion": {"a": drawn(nodes, 6), "c": 0.3, "f": drawn(nodes)},
        "burgers": {"nu": drawn(nodes, 7), "c": drawn(nodes, 8), "f": "x"},
        "allen-cahn": {"eps": drawn(nodes, 5), "f": 1.0},
    }[equation]


def domain_of(shape):
    if shape == "circle":
        moved = {"middle": 1.203, "radius": 0.861}
        return m.Domain.from_distance(
            "hypot(x - middle, y - 1) - radius", CELLS, H, parameters=moved
        )
    if shape == "corner":
        mask = np.ones(CELLS, bool)
        mask[10:, 12:] = False
        return m.Domain.from_mask(mask, H, per_cell=True)
    if shape == "voxels":
        mask = np.ones(BOX, bool)
        mask[4:, :4, 5:] = False
        return m.Domain.from_mask(mask, H)
    return m.Domain(BOX if shape == "box" else CELLS, H)


def problem_of(equation, kind, shape, cells=None):
    domain = domain_of(shape) if cells is None else m.Domain(cells, H)
    sides = {n: c for n, c in SIDES[kind].items() if n != "outline" or domain.shape is not None}
    if len(domain.cells) == 3:
        for name in ("right[0.2:0.9]", "wire"):
            sides.pop(name, None)
    if shape == "voxels" and kind == "flux":
        sides["outline"] = m.Dirichlet(0.3)
    return m.Problem(domain, equation, fields_of(equation, domain.cells), sides)


def functional(problem):
    field = m.solve(problem, "exact", settings=TIGHT).field
    return float(np.nansum(drawn(field.shape, 5) * field**2))


_DAILY = {
    ("p-laplace", "periodic", "rectangle"),
    ("quasilinear-diffusion", "periodic", "rectangle"),
    ("poisson-boltzmann", "robin", "circle"),
    ("minimal-surface", "flux", "voxels"),
}
_EQUATIONS = ("p-laplace", "minimal-surface", "poisson-boltzmann", "reaction-diffusion")
_EQUATIONS += ("quasilinear-diffusion", "burgers", "allen-cahn")
_CUT = {"circle", "corner"}
CASES = [
    pytest.param(*case, marks=[] if case in _DAILY else [pytest.mark.nightly])
    for equation in _EQUATIONS
    for kind in SIDES
    for shape in ("rectangle", "corner", "circle", "box", "voxels")
    for case in [(equation, kind, shape)]
    if not (shape in _CUT and equation in ("p-laplace", "minimal-surface", "reaction-diffusion"))
    if not (shape in ("box", "voxels") and equation in ("burgers",))
    if not (kind == "periodic" and shape in ("corner", "box", "voxels"))
]


@pytest.mark.parametrize(("equation", "kind", "shape"), CASES)
def test_they_are_central_differences(equation, kind, shape):
    problem = problem_of(equation, kind, shape)
    shown = np.isfinite(m.solve(problem, "exact").field)
    with m.Solver(problem, "exact", settings=TIGHT, keep="unknowns") as solver:
        solution = solver()
        slope = np.where(shown, 2 * drawn(shown.shape, 5) * solution.field, 0.0)
        by = m.adjoint(solution, slope, solver=solver)
    known = Parameters(problem)
    values = known.values()
    along = {n: drawn(held.shape, 7) for n, held in values.items()}
    along |= {n: 0.01 * along[n] for n in known.of_shape}  # an outline passes no node
    ahead, back = (
        functional(known.with_values({n: v + s * STEP * along[n] for n, v in values.items()}))
        for s in (1, -1)
    )
    total = sum(float((by[n] * along[n]).sum()) for n in values)
    assert total == pytest.approx((ahead - back) / (2 * STEP), rel=1e-6)


@pytest.mark.parametrize(
    ("equation", "kind", "shape", "by", "step"),
    [
        pytest.param(
            "quasilinear-diffusion", "periodic", "rectangle", "a", 0.05, marks=pytest.mark.nightly
        ),
        ("poisson-boltzmann", "robin", "circle", "a", 0.02),
        pytest.param("p-laplace", "robin", "rectangle", "a", 0.05, marks=pytest.mark.nightly),
    ],
)
def test_remainders_fall_as_they_should(equation, kind, shape, by, step):
    problem = problem_of(equation, kind, shape)
    solve = m.differentiable(problem, by, settings=TIGHT)
    at, direction = (torch.from_numpy(drawn(NODES, seed)) for seed in (3, 4))
    rates = m.taylor_test(
        lambda a: solve(**{by: a}).nan_to_num().square().sum(),
        at,
        direction,
        step=step,
        hessian=True,
    )
    assert min(rates.first) > 1.9
    assert min(rates.second) > 2.9


def test_the_linearised_map_and_its_adjoint_have_the_same_product():
    solve = m.differentiable(problem_of("burgers", "robin", "rectangle"), "f", settings=TIGHT)
    forth, back = products(solve, *(drawn(NODES, seed) for seed in (3, 4, 5)))
    assert forth == pytest.approx(back, rel=1e-10)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize(
    ("equation", "kind"), [("p-laplace", "periodic"), ("quasilinear-diffusion", "robin")]
)
def test_ranks_have_their_parts_of_the_same_gradients(comm, by_one, equation, kind):
    problem = problem_of(equation, kind, "rectangle", (48, 64))
    w = drawn((49, 65), 9)
    expected = by_one(lambda: m.adjoint(m.solve(problem, "exact", settings=TIGHT), w))
    with m.Solver(problem, "exact", settings=TIGHT, ranks=comm) as solver:
        solution = solver()
        by = m.adjoint(solution, w[solution.place], solver=solver)
    for of, values in expected.items():
        mine = values[solution.place] if values.ndim == 2 else values
        np.testing.assert_allclose(by[of], mine, rtol=1e-7, atol=1e-9 * abs(values).max())
