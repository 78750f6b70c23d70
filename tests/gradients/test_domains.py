"""Gradients on shapes, with periodic sides, on cells that are no squares and in space, against central differences."""

import numpy as np
import pytest
import torch
from central_differences import central_difference

import mosaicdd as m
from mosaicdd.gradients.parameters import Parameters

NY, NX, H = 20, 28, 1 / 16
TIGHT = m.SolveSettings(rtol=1e-13)
STEP = 1e-4  # of values about 1
CUBE = (6, 9, 8)


def drawn(shape, seed=0, low=0.5):
    return np.random.default_rng((seed, *shape)).uniform(low, 2.0, shape)


def fields(cells=(NY, NX), **more):
    nodes = tuple(count + 1 for count in cells)
    return {"a": drawn(nodes), "c": drawn(nodes, 1), "f": drawn(nodes, 2)} | more


def flowing(cells=(NY, NX), **more):
    """Return fields with velocities of both signs, at cell Peclet numbers up to 10."""
    nodes = tuple(count + 1 for count in cells)
    along, up = (200.0 * (drawn(nodes, seed) - 1.0) for seed in (3, 4))
    return fields(cells) | {"bx": along, "by": up} | more


def l_of_nodes():
    mask = np.ones((NY + 1, NX + 1), bool)
    mask[10:, 14:] = False
    return m.Domain.from_mask(mask, H)


def l_of_cells():
    mask = np.ones((NY, NX), bool)
    mask[10:, 14:] = False
    return m.Domain.from_mask(mask, H, per_cell=True)


def plate():
    outer = [[0.1, 0.1], [1.6, 0.13], [1.5, 1.1], [0.12, 1.15]]
    holes = [[[0.3, 0.4], [0.6, 0.35], [0.5, 0.7]], [[0.9, 0.5], [1.3, 0.52], [1.2, 0.9]]]
    return m.Domain.from_polygons(outer, holes, cells=(NY, NX), spacing=H)


def voxels():
    mask = np.ones(CUBE, bool)
    mask[2:4, 2:5, 3:7], mask[:1, :, :3] = False, False
    return m.Domain.from_mask(mask, H)


RECTANGLE = m.Domain((NY, NX), H)
RING = m.Domain.from_distance("abs(hypot(x - 0.9, y - 0.6) - 0.38) - 0.2", (NY, NX), H)
HOLE = m.Domain.from_distance("0.3 - hypot(x - 0.8, minimum(y, 1.25 - y))", (NY, NX), H)
AROUND = {"bottom": m.Periodic(), "top": m.Periodic()}
ACROSS = {"left": m.Periodic(), "right": m.Periodic()}
EVERY = {"left": m.Robin(2.0, 1.0), "bottom": m.Dirichlet("x"), "right": m.Neumann(0.3)}
TENSORS = {"axx": drawn((NY + 1, NX + 1)), "ayy": drawn((NY, NX)), "axy": 0.1, "c": 0.2, "f": 1.0}
IN_SPACE = {"axx": drawn((7, 10, 9)), "axy": 0.1, "axz": drawn((7, 10, 9), 1) / 20, "c": 0.2}
CELLS = fields(a=drawn((NY, NX)))
CASES = {
    "L of nodes": (l_of_nodes(), fields(), EVERY | {"outline": m.Dirichlet(0.7)}),
    "L of cells": (l_of_cells(), CELLS, EVERY | {"outline": m.Robin(1.5, 0.7)}),
    "ring": (RING, fields(c=0.5), {"outer": m.Robin(1.5, 0.7), "hole1": m.Neumann(0.4)}),
    "plate": (
        plate(),
        {"axx": drawn((NY + 1, NX + 1)), "ayy": 2.0, "c": 0.1, "f": 1.0},
        {
            "outer": m.Robin(2.0, 0.3),
            "hole1": m.Dirichlet(1.0),
            "hole2[x > 1.1]": m.Robin(0.5, 1.0),
            "hole2": m.Dirichlet(0.2),
        },
    ),
    "periodic": (
        RECTANGLE,
        CELLS,
        {"left[0.2:0.7]": m.Neumann("1 + y"), "left": m.Dirichlet("y"), "right": m.Robin(2.0, "y")}
        | AROUND,
    ),
    "periodic tensors": (
        RECTANGLE,
        TENSORS,
        {"right": m.Robin(1.0, "1 + y"), "drain": m.Held("hypot(x - 0.8, y) < 0.2", "1 + x")}
        | AROUND,
    ),
    "periodic with a hole": (
        HOLE,
        CELLS,
        {"outline": m.Neumann(0.4), "left": m.Dirichlet(1.0), "right": m.Neumann(2.0)} | AROUND,
    ),
    "flat cells": (m.Domain((NY, NX), (0.1, 0.25)), fields(), EVERY | {"top": m.Robin(0.4, "x")}),
    "flat cells, numbers": (m.Domain((NY, NX), (0.1, 0.25)), {"a": 2.0, "c": 0.3}, EVERY),
    "box": (
        m.Domain(CUBE, H),
        fields(CUBE),
        EVERY | {"front": m.Robin(0.3, "y"), "right[0.1:0.43, 0.2:]": m.Robin(2.0, "z")},
    ),
    "box of tensors": (m.Domain(CUBE, H), IN_SPACE | {"ayz": -0.05, "ayy": 1.5, "azz": 2.0}, EVERY),
    "box of voxels": (
        m.Domain(CUBE, (0.1, 0.2, 0.15)),
        fields(CUBE, a=drawn(CUBE)),
        {"left": m.Dirichlet("y + z"), "right": m.Robin(0.5, "z")} | AROUND,
    ),
    "mask of voxels": (
        voxels(),
        fields(CUBE, a=drawn(CUBE)),
        {"left": m.Robin(2.0, 1.0), "right": m.Dirichlet("y + z"), "outline": m.Robin(0.4, 1.0)},
    ),
    "flow": (RECTANGLE, flowing(), EVERY | {"top": m.Dirichlet("x")}),
    "flow on an L": (l_of_cells(), flowing(a=drawn((NY, NX))), EVERY | {"outline": m.Robin(1.5)}),
    "flow on a plate": (
        plate(),
        flowing(a=2.0),
        {"outer": m.Robin(2.0, 0.3), "hole1": m.Dirichlet(1.0), "hole2": m.Dirichlet(0.2)},
    ),
    "flow around": (m.Domain((NY, NX - 1), H), flowing((NY, NX - 1)), EVERY | ACROSS),
    "flow in a box": (m.Domain(CUBE, H), flowing(CUBE, bz=-20.0), EVERY | {"front": m.Robin(0.3)}),
    "a number flows": (
        m.Domain((32, 32), H),
        {"bx": 20.0, "by": -7.0, "c": 0.3},
        {"top": m.Dirichlet("1 + x")},
    ),
}


def problem_of(case):
    domain, coefficients, sides = CASES[case]
    pde = "advection-diffusion" if "bx" in coefficients else "diffusion"
    return m.Problem(domain, pde, coefficients, sides)


def weighted(u, w):
    """Return the terms of a weighted sum of squares of the values inside, and its derivative by each."""
    inside = np.where(np.isfinite(u), u, 0.0)
    return w * inside**2, 2 * w * inside


@pytest.mark.parametrize("case", CASES)
def test_they_are_central_differences(case):
    problem = problem_of(case)
    w = np.random.default_rng(5).standard_normal([n + 1 for n in problem.domain.cells])
    w[~np.isfinite(m.solve(problem).field)] = 0.0  # beyond outlines
    solution = m.solve(problem, settings=TIGHT, keep="unknowns")
    by = m.adjoint(solution, weighted(solution.field, w)[1])
    known = Parameters(problem)
    values = known.values()
    assert by.keys() == values.keys() >= set(CASES[case][1])
    along = {name: drawn(held.shape, 7) for name, held in values.items()}

    def moved(s):
        other = known.with_values({n: held + s * along[n] for n, held in values.items()})
        return weighted(m.solve(other, settings=TIGHT, keep="unknowns").field, w)[0]

    parts = [float((by[name] * along[name]).sum()) for name in values]
    assert all(parts)
    assert sum(parts) == central_difference(moved, STEP)


def test_what_varies_along_an_outline_is_differentiated_by_its_rise():
    def solved(rise):
        sides = {"outer": m.Dirichlet(f"x * y + {rise!r}"), "hole1": m.Robin(1.0)}
        return m.solve(m.Problem(RING, "poisson", sides=sides), settings=TIGHT, keep="unknowns")

    w = np.where(np.isfinite(solved(0.0).field), drawn((NY + 1, NX + 1)), 0.0)
    solution = solved(0.0)
    by = m.adjoint(solution, weighted(solution.field, w)[1])
    assert by["outer"] == central_difference(lambda s: weighted(solved(s).field, w)[0], STEP)


def test_values_on_all_edges_are_those_of_their_sides():
    edges = m.solve(m.Problem(RECTANGLE, "laplace", sides=m.Dirichlet("x * y + 1"))).kept.boundaries
    problem = m.Problem(RECTANGLE, "diffusion", fields(), edges[0])
    named = m.Problem(RECTANGLE, "diffusion", fields(), m.Dirichlet("x * y + 1"))
    w = drawn((NY + 1, NX + 1))
    by, expected = (m.adjoint(m.solve(p, settings=TIGHT), w) for p in (problem, named))
    assert by.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(by[name], values, atol=1e-9 * abs(values).max())


@pytest.mark.parametrize("case", ["L of cells", "periodic", "flow on an L", "flow around"])
def test_what_is_given_and_the_solution_have_the_same_product(case):
    problem = problem_of(case)
    solution = m.solve(problem, settings=TIGHT, keep="unknowns")
    w = drawn(solution.field.shape, low=-1.0)
    by, values = m.adjoint(solution, w), Parameters(problem).values()
    linear = [
        name
        for name in values
        if name not in ("a", "bx", "by", "c") and not name.endswith(".alpha")
    ]
    parts = [float((by[name] * values[name]).sum()) for name in linear]
    product = np.nansum(w * solution.field)
    assert abs(sum(parts) - product) < 1e-10 * sum(map(abs, parts))


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("ring", "a"),
        ("plate", "axx"),
        ("L of cells", "a"),
        ("periodic tensors", "axx"),
        ("periodic with a hole", "a"),
        ("mask of voxels", "a"),
        ("flow on an L", "bx"),
        ("flow around", "a"),
    ],
)
def test_remainders_fall_as_they_should(case, name):
    problem, coefficients = problem_of(case), CASES[case][1]
    solve = m.differentiable(problem, name, settings=TIGHT)
    at, direction = (torch.from_numpy(drawn(coefficients[name].shape, seed)) for seed in (3, 4))
    direction = direction * (100.0 if name == "bx" else 1.0)
    inside = torch.from_numpy(np.isfinite(m.solve(problem).field))
    rates = m.taylor_test(
        lambda a: torch.where(inside, solve(**{name: a}), 0.0).square().sum(),
        at,
        direction,
        hessian=True,
    )
    assert min(rates.first) > 1.9
    assert min(rates.second) > 2.9


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("case", ["shape", "periodic", "flow", "flow in a shape"])
def test_ranks_have_their_parts_of_the_same_gradients(comm, by_one, case):
    cells, shape = (96, 128), (97, 129)
    outline = "maximum(abs(hypot(x - 1, y - 0.75) - 0.45) - 0.22, -x)"
    domain = m.Domain.from_distance(outline, cells, 1 / 64)
    sides = {"outer": m.Robin(1.5, 0.7), "hole1": m.Robin(0.4, 1.0)}
    if case in ("periodic", "flow"):
        domain, sides = m.Domain(cells, (0.1, 0.2)), {"left": m.Robin(2.0, "y")} | AROUND
    given, pde = {"a": drawn(cells), "c": 0.5, "f": drawn(shape)}, "diffusion"
    if case.startswith("flow"):
        given = {"a": drawn(shape), "f": 1.0, "bx": "40*sin(y)", "by": "30*cos(x)"}
        pde = "advection-diffusion"
    problem = m.Problem(domain, pde, given, sides)
    w = drawn(shape)

    def serial():
        return m.adjoint(m.solve(problem, settings=TIGHT, keep="unknowns"), w)

    expected = by_one(serial)
    with m.Solver(problem, settings=TIGHT, ranks=comm, keep="unknowns") as solver:
        solution = solver()
        by = m.adjoint(solution, w[solution.place], solver=solver)
    assert by.keys() == expected.keys()
    for name, values in expected.items():
        mine = values[solution.place] if values.ndim == 2 else values
        np.testing.assert_allclose(by[name], mine, rtol=1e-7, atol=1e-9 * abs(values).max())


def test_what_lacks_values_beyond_an_outline_says_how_to_keep_them():
    problem = m.Problem(RING, "poisson", sides={"outer": m.Dirichlet(), "hole1": m.Robin(1.0)})
    solution = m.solve(problem)
    with pytest.raises(ValueError, match=r"lacks the values of \d+ unknowns.*keep='unknowns'"):
        m.adjoint(solution, np.nan_to_num(solution.field))
    sides = {"outline": m.Robin(1.0), "left": m.Dirichlet()} | AROUND
    with pytest.raises(m.Unsupported, match="outline exchanges"):
        m.differentiable(m.Problem(HOLE, "poisson", sides=sides), "f")


@pytest.mark.parametrize("outline", [m.Dirichlet(), m.Neumann(0.5)])
@pytest.mark.parametrize("side", [0, -1])
def test_both_of_periodic_sides_have_values_where_cells_are_inside_at_one(side, outline):
    mask = np.ones(CUBE, bool)
    mask[2:4, side, 3:7], mask[:2, -1 - side, :3] = False, False
    sides = {"left": m.Dirichlet("y"), "outline": outline} | AROUND
    problem = m.Problem(m.Domain.from_mask(mask, H), "poisson", {"f": 1.0}, sides)
    field = m.solve(problem, "exact", rtol=1e-12).gather()
    assert np.isfinite(field[3, [0, -1], 4]).all()
    called = m.differentiable(problem, ["f"], settings=TIGHT)(f=torch.ones(field.shape))
    np.testing.assert_allclose(called.detach(), field, rtol=0, atol=1e-10)
