"""Gradients of solutions of equations that are not linear, by one adjoint solve in the last linearisation."""

import numpy as np
import pytest
import torch
from products import products

import mosaicdd as m
from mosaicdd.gradients.parameters import Parameters

NY, NX = 32, 48
TIGHT = m.SolveSettings(rtol=1e-12)
STEP = 1e-4


def drawn(shape, seed=0):
    return np.array(np.random.default_rng((seed, *shape)).uniform(0.5, 2.0, shape))


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


def problem_of(name):
    cells = BOX if "box" in name else (NY, NX)
    return m.Problem(m.Domain(cells, 0.1), name.split()[0], CASES[name], SIDES)


def functional(problem):
    field = m.solve(problem, "exact", settings=TIGHT).field
    return float((drawn(field.shape, 5) * field**2).sum())


# Which have a part of what others have.
_REST = (
    "allen-cahn", "quasilinear-diffusion", "quasilinear-diffusion per cell", "reaction-diffusion per cell",
    "poisson-boltzmann per cell", "p-laplace in a box, per cell",
)  # fmt: skip
NAMES = [pytest.param(name, marks=[pytest.mark.nightly] * (name in _REST)) for name in CASES]


@pytest.mark.parametrize("name", NAMES)
def test_they_are_central_differences(name):
    problem = problem_of(name)
    with m.Solver(problem, "exact", settings=TIGHT) as solver:
        solution = solver()
        field = solution.field
        by = m.adjoint(solution, 2 * drawn(field.shape, 5) * field, solver=solver)
    known = Parameters(problem)
    values = known.values()
    assert by.keys() == values.keys() >= {*CASES[name]} | set(problem.equation.numbers)
    along = {n: drawn(held.shape, 7) for n, held in values.items()}
    ahead, back = (
        functional(known.with_values({n: v + s * STEP * along[n] for n, v in values.items()}))
        for s in (1, -1)
    )
    parts = [float((by[n] * along[n]).sum()) for n in values]
    assert all(parts)
    assert sum(parts) == pytest.approx((ahead - back) / (2 * STEP), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("poisson-boltzmann in a box, per cell", "a"),
        ("burgers", "nu"),
        ("p-laplace in a box, per cell", "a"),
    ],
)
def test_remainders_fall_as_they_should(name, by):
    solve = m.differentiable(problem_of(name), by, settings=TIGHT)
    at, direction = (torch.from_numpy(drawn(CASES[name][by].shape, seed)) for seed in (3, 4))
    step = 0.01 if name == "burgers" else 0.1
    rates = m.taylor_test(
        lambda a: solve(**{by: a}).square().sum(), at, direction, step=step, hessian=True
    )
    assert min(rates.first) > 1.9
    assert min(rates.second) > 2.9


def test_the_linearised_map_and_its_adjoint_have_the_same_product():
    solve = m.differentiable(problem_of("burgers"), "f", settings=TIGHT)
    forth, back = products(solve, *(drawn(NODES, seed) for seed in (3, 4, 5)))
    assert forth == pytest.approx(back, rel=1e-10)


def test_solves_find_derivatives_where_a_program_has_turned_them_off():
    problem = problem_of("poisson-boltzmann")
    with torch.no_grad():
        field = m.solve(problem, "exact").field
    np.testing.assert_array_equal(field, m.solve(problem, "exact").field)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("name", ["p-laplace", "burgers", "quasilinear-diffusion", "allen-cahn"])
def test_ranks_have_their_parts_of_the_same_gradients(comm, by_one, name):
    cells, shape = (96, 128), (97, 129)
    fields = {
        "p-laplace": {"a": drawn(shape), "eps": 0.3, "f": 1.0},
        "burgers": {"nu": drawn(shape), "f": 1.0},
        "quasilinear-diffusion": {"a": drawn(cells), "f": 1.0},
        "allen-cahn": {"eps": drawn(shape), "c": drawn(cells, 2), "f": drawn(cells, 3)},
    }
    problem = m.Problem(m.Domain(cells, 0.02), name, fields[name], SIDES)
    w = drawn(shape, 9)
    expected = by_one(lambda: m.adjoint(m.solve(problem, "exact", settings=TIGHT), w))
    with m.Solver(problem, "exact", settings=TIGHT, ranks=comm) as solver:
        solution = solver()
        by = m.adjoint(solution, w[solution.place], solver=solver)
    for of, values in expected.items():
        mine = values[solution.place] if values.ndim == 2 else values  # of cells those there are
        np.testing.assert_allclose(by[of], mine, rtol=1e-7, atol=1e-9 * abs(values).max())


AROUND = {"left": m.Periodic(), "right": m.Periodic(), "top": m.Robin(2.0, 0.5)}
NATURAL = {"left": m.Dirichlet(1.0), "right": m.Neumann(0.3), "top": m.Robin(2.0, 0.5)}


@pytest.mark.parametrize(
    ("name", "sides", "by"),
    [
        ("poisson-boltzmann", AROUND, "c"),
        ("p-laplace", NATURAL, "a"),
        ("reaction-diffusion", NATURAL, "f"),
    ],
)
def test_each_side_has_its_own_cells(name, sides, by):
    cells = 8, 24
    problem = m.Problem(m.Domain(cells, 0.25), name, {"f": 1.0, by: drawn(cells)}, sides)
    solve, e = m.differentiable(problem, by, settings=TIGHT), STEP
    at, along = (torch.from_numpy(drawn(cells, seed)) for seed in (3, 4))
    (slope,) = torch.autograd.grad(solve(**{by: at.requires_grad_()}).square().sum(), at)
    ahead, back = (solve(**{by: at.detach() + s * e * along}).square().sum() for s in (1, -1))
    assert (slope * along).sum().item() == pytest.approx(float(ahead - back) / (2 * e), rel=1e-6)


def test_fields_by_which_cells_have_flows_of_their_own_are_at_the_nodes():
    eps = drawn((NY, NX))
    with pytest.raises(m.Unsupported, match="eps of allen-cahn is per cell"):
        m.differentiable(m.Problem((NY, NX), "allen-cahn", {"eps": eps}), "f")
    solve = m.differentiable(m.Problem((NY, NX), "allen-cahn"), "eps")
    with pytest.raises(
        ValueError, match=r"eps has the shape \(32, 48\), the problem takes \(\) or \(33, 49\)"
    ):
        solve(eps=torch.from_numpy(eps))


def test_what_is_not_known_is_said():
    with pytest.raises(m.Unsupported, match="allen-cahn is not linear"):
        m.differentiable(m.Problem((16, 16), "allen-cahn"), "f", dt=0.1, steps=2)
