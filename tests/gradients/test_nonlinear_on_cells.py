"""Gradients of solutions of equations that are not linear, on cells that are no squares, nor cubes."""

import pytest
import torch
from adjoint_checks import TIGHT, beside_differences, drawn, require_alike
from products import products

import mosaicdd as m

PLANE, BOX = (24, 32), (16, 8, 8)
STEPS = {2: (0.25, 0.1), 3: (0.3, 0.1, 0.15)}
SIDES = {"left": m.Dirichlet("y"), "top": m.Dirichlet("1 + x*x"), "bottom": m.Dirichlet("x")}


NODES, IN_BOX = (25, 33), (17, 9, 9)
CASES = {
    "p-laplace": {"a": drawn(NODES), "eps": 0.3, "f": drawn(NODES, 1)},
    "minimal-surface": {"f": "0.1*x"},
    "poisson-boltzmann": {"a": drawn(NODES, 1), "c": drawn(NODES, 2), "f": drawn(NODES, 3)},
    "quasilinear-diffusion": {"a": drawn(PLANE), "c": 0.3, "f": 1.0},
    "burgers": {"nu": drawn(NODES, 7), "c": drawn(NODES, 8), "f": "x"},
    "allen-cahn in a box": {"eps": drawn(IN_BOX, 5), "f": 1.0},
    "p-laplace in a box": {"a": drawn(IN_BOX), "eps": 0.3, "f": drawn(IN_BOX, 1)},
    "reaction-diffusion in a box": {"a": drawn(BOX), "c": 0.5, "f": 1.0},
}
DAILY = "poisson-boltzmann", "burgers", "p-laplace in a box"


def problem_of(name):
    cells = BOX if "box" in name else PLANE
    return m.Problem(m.Domain(cells, STEPS[len(cells)]), name.split()[0], CASES[name], SIDES)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.nightly] * (n not in DAILY)) for n in CASES]
)
def test_they_are_central_differences(name):
    parts, slope = beside_differences(problem_of(name))
    assert all(parts.values())
    assert sum(parts.values()) == slope


@pytest.mark.parametrize(("name", "by"), [("burgers", "nu"), ("p-laplace", "a")])
def test_remainders_fall_as_they_should(name, by):
    solve = m.differentiable(problem_of(name), by, settings=TIGHT)
    at, direction = (torch.from_numpy(drawn(CASES[name][by].shape, seed)) for seed in (3, 4))
    rates = m.taylor_test(
        lambda a: solve(**{by: a}).square().sum(), at, direction, step=0.01, hessian=True
    )
    assert min(rates.first) > 1.9
    assert min(rates.second) > 2.9


@pytest.mark.parametrize("name", ["burgers", "p-laplace in a box"])
def test_the_linearised_map_and_its_adjoint_have_the_same_product(name):
    solve = m.differentiable(problem_of(name), "f", settings=TIGHT)
    nodes = NODES if name == "burgers" else IN_BOX
    forth, back = products(solve, *(drawn(nodes, seed) for seed in (3, 4, 5)))
    assert forth == pytest.approx(back, rel=1e-10)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("name", ["p-laplace", "burgers"])
def test_ranks_have_their_parts_of_the_same_gradients(comm, by_one, name):
    cells, shape = (96, 128), (97, 129)
    fields = {"a": drawn(shape), "eps": 0.3} if name == "p-laplace" else {"nu": drawn(shape)}
    problem = m.Problem(m.Domain(cells, (0.05, 0.02)), name, fields | {"f": 1.0}, SIDES)
    require_alike(problem, comm, by_one)
