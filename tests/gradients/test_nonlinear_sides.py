"""Gradients of equations that are not linear, where sides are natural or periodic, and in parts of rectangles and boxes."""

import numpy as np
import pytest
import torch
from adjoint_checks import TIGHT, beside_differences, drawn, require_alike
from products import products

import mosaicdd as m

CELLS, H = (20, 24), 0.1
NODES = tuple(count + 1 for count in CELLS)
BOX = (8, 8, 12)
AROUND = m.Periodic()


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
    parts, slope = beside_differences(problem_of(equation, kind, shape))
    assert sum(parts.values()) == slope


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
    require_alike(problem, comm, by_one)
