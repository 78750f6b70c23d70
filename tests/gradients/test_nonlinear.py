"""Gradients of solutions of equations that are not linear, by one adjoint solve, on square cells and others."""

import re

import numpy as np
import pytest
import torch
from adjoint_checks import TIGHT, beside_differences, drawn, require_alike
from products import products

import mosaicdd as m

NY, NX = 32, 48


NODES = NY + 1, NX + 1
SIDES = {"left": m.Dirichlet("y"), "top": m.Dirichlet("1 + x*x"), "bottom": m.Dirichlet("x")}
CASES = {
    "p-laplace": {"a": drawn(NODES), "eps": 0.3, "f": drawn(NODES, 1)},
    "minimal-surface": {"f": "0.1*x"},
    "poisson-boltzmann": {"c": drawn(NODES, 2), "f": drawn(NODES, 3)},
    "reaction-diffusion": {"a": drawn(NODES, 4), "c": 0.5, "f": 1.0},
    "quasilinear-diffusion": {"a": drawn(NODES, 6), "c": 0.3, "f": 1.0},
    "burgers": {"nu": drawn(NODES, 7), "c": drawn(NODES, 8), "f": "x"},
    "allen-cahn": {"eps": drawn(NODES, 5), "f": 1.0},
}
BOX = 16, 8, 8
IN_BOX = tuple(count + 1 for count in BOX)
CASES |= {
    "reaction-diffusion per cell": {"a": drawn((NY, NX)), "c": drawn(NODES), "f": 1.0},
    "quasilinear-diffusion per cell": {"a": drawn((NY, NX)), "c": 0.3, "f": drawn(NODES, 6)},
    "poisson-boltzmann in a box, per cell": {"a": drawn(BOX), "c": drawn(IN_BOX), "f": 1.0},
    "quasilinear-diffusion in a box": {"a": drawn(IN_BOX), "c": 0.3, "f": 1.0},
    "p-laplace per cell": {"a": drawn((NY, NX)), "eps": 0.3, "f": drawn((NY, NX), 1)},
    "poisson-boltzmann per cell": {"c": drawn((NY, NX), 2), "f": drawn((NY, NX), 3)},
    "burgers per cell": {"nu": drawn(NODES, 7), "c": drawn((NY, NX), 8), "f": "x"},
    "allen-cahn in a box, per cell": {
        "eps": drawn(IN_BOX, 5),
        "c": drawn(BOX, 4),
        "f": drawn(BOX, 6),
    },
    "p-laplace in a box, per cell": {"a": drawn(BOX, 5), "eps": 0.3, "f": 1.0},
    "reaction-diffusion in a box, of a number": {"a": 2.0, "c": 0.3, "f": drawn(IN_BOX)},
}


# Cells that are no squares, nor cubes.
STEPS = {2: (0.25, 0.1), 3: (0.3, 0.1, 0.15)}
CASES |= {
    "p-laplace, uneven": CASES["p-laplace"],
    "minimal-surface, uneven": CASES["minimal-surface"],
    "poisson-boltzmann, uneven": CASES["poisson-boltzmann"] | {"a": drawn(NODES, 1)},
    "quasilinear-diffusion, uneven": {"a": drawn((NY, NX)), "c": 0.3, "f": 1.0},
    "burgers, uneven": CASES["burgers"],
    "allen-cahn, uneven in a box": {"eps": drawn(IN_BOX, 5), "f": 1.0},
    "p-laplace, uneven in a box": {"a": drawn(IN_BOX), "eps": 0.3, "f": drawn(IN_BOX, 1)},
    "reaction-diffusion, uneven in a box": {"a": drawn(BOX), "c": 0.5, "f": 1.0},
}


def problem_of(name):
    cells = BOX if "box" in name else (NY, NX)
    domain = m.Domain(cells, STEPS[len(cells)] if "uneven" in name else 0.1)
    return m.Problem(domain, re.split("[ ,]", name)[0], CASES[name], SIDES)


# Which have a part of what others have.
_REST = (
    "allen-cahn", "quasilinear-diffusion", "quasilinear-diffusion per cell", "reaction-diffusion per cell",
    "poisson-boltzmann per cell", "p-laplace in a box, per cell",
    "p-laplace, uneven", "minimal-surface, uneven", "quasilinear-diffusion, uneven", "allen-cahn, uneven in a box",
    "reaction-diffusion, uneven in a box",
)  # fmt: skip
NAMES = [pytest.param(name, marks=[pytest.mark.nightly] * (name in _REST)) for name in CASES]


@pytest.mark.parametrize("name", NAMES)
def test_they_are_central_differences(name):
    problem = problem_of(name)
    parts, slope = beside_differences(problem)
    assert parts.keys() >= {*CASES[name]} | set(problem.equation.numbers)
    assert all(parts.values())
    assert sum(parts.values()) == slope


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("poisson-boltzmann in a box, per cell", "a"),
        ("burgers", "nu"),
        ("p-laplace in a box, per cell", "a"),
        ("burgers, uneven", "nu"),
        ("p-laplace, uneven", "a"),
    ],
)
def test_remainders_fall_as_they_should(name, by):
    solve = m.differentiable(problem_of(name), by, settings=TIGHT)
    at, direction = (torch.from_numpy(drawn(CASES[name][by].shape, seed)) for seed in (3, 4))
    step = 0.01 if name == "burgers" or "uneven" in name else 0.1
    rates = m.taylor_test(
        lambda a: solve(**{by: a}).square().sum(), at, direction, step=step, hessian=True
    )
    assert min(rates.first) > 1.9
    assert min(rates.second) > 2.9


@pytest.mark.parametrize("name", ["burgers", "burgers, uneven", "p-laplace, uneven in a box"])
def test_the_linearised_map_and_its_adjoint_have_the_same_product(name):
    solve = m.differentiable(problem_of(name), "f", settings=TIGHT)
    nodes = IN_BOX if "box" in name else NODES
    forth, back = products(solve, *(drawn(nodes, seed) for seed in (3, 4, 5)))
    assert forth == pytest.approx(back, rel=1e-10)


def test_solves_find_derivatives_where_a_program_has_turned_them_off():
    problem = problem_of("poisson-boltzmann")
    with torch.no_grad():
        field = m.solve(problem, "exact").field
    np.testing.assert_array_equal(field, m.solve(problem, "exact").field)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize(
    ("name", "spacing"),
    [(name, 0.02) for name in ("p-laplace", "burgers", "quasilinear-diffusion", "allen-cahn")]
    + [(name, (0.05, 0.02)) for name in ("p-laplace", "burgers")],
)
def test_ranks_have_their_parts_of_the_same_gradients(comm, by_one, name, spacing):
    cells, shape = (96, 128), (97, 129)
    fields = {
        "p-laplace": {"a": drawn(shape), "eps": 0.3, "f": 1.0},
        "burgers": {"nu": drawn(shape), "f": 1.0},
        "quasilinear-diffusion": {"a": drawn(cells), "f": 1.0},
        "allen-cahn": {"eps": drawn(shape), "c": drawn(cells, 2), "f": drawn(cells, 3)},
    }
    problem = m.Problem(m.Domain(cells, spacing), name, fields[name], SIDES)
    require_alike(problem, comm, by_one)


@pytest.mark.parametrize(("name", "by"), [("p-laplace", "a"), ("poisson-boltzmann", "c")])
def test_by_values_per_cell_they_are_those_of_a_problem_that_has_them(name, by):
    sides, domain = {"left": m.Dirichlet("y"), "top": m.Neumann(0.2)}, m.Domain((8, 9), 0.1)
    slopes, cells = [], torch.from_numpy(drawn((8, 9)))
    for own in (1.0, drawn((9, 10)), cells.numpy()):
        problem = m.Problem(domain, name, {by: own, "f": 1.0}, sides)
        solve = m.differentiable(problem, by, settings=TIGHT)
        values = cells.clone().requires_grad_()
        solve(**{by: values}).square().sum().backward()
        slopes.append(values.grad)
        batch = solve(**{by: torch.stack([cells, 2 * cells])})
        torch.testing.assert_close(batch[0], solve(**{by: cells}), rtol=0, atol=0)
    assert abs(slopes[2]).max() > 0
    for slope in slopes[:2]:
        torch.testing.assert_close(slope, slopes[2], rtol=0, atol=0)
    each = m.differentiable(m.Problem((8, 9), "burgers", {"f": 1.0}), "nu")
    with pytest.raises(m.Unsupported, match="the field nu of burgers is per cell, by which each"):
        each(nu=cells)
