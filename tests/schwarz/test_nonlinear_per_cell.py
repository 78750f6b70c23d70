"""Coefficients and sources per cell in equations that are not linear, beside an assembly cell by cell."""

import itertools

import numpy as np
import pytest
import torch
from by_cells import ByCells

import mosaicdd as m
from mosaicdd.problems.operators.gradient_flux import outflow

H, P, EPS = 0.25, 3.0, 0.3
TIGHT = m.SolveSettings(rtol=1e-13)


def _burgers(q, u, other, way):
    z = torch.maximum(abs(u), abs(other)) * H / (2 * q["nu"])
    fitted = torch.where(z < 1e-3, 1 + z**2 / 3, z / torch.tanh(z.clamp(min=1e-3)))
    return H * way * (other**2 - u**2) / 4 + q["nu"] * fitted * (u - other)


def _simpson(u, other):
    return 1 + (u**2 + (u + other) ** 2 + other**2) / 6


PLAIN = (lambda q, u, other, way: q["a"] * (u - other),)
EQUATIONS = {
    "poisson-boltzmann": (*PLAIN, lambda q, u: q["c"] * torch.sinh(u)),
    "reaction-diffusion": (*PLAIN, lambda q, u: q["c"] * u + u**3),
    "quasilinear-diffusion": (
        lambda q, u, other, way: q["a"] * _simpson(u, other) * (u - other),
        lambda q, u: q["c"] * u,
    ),
    "allen-cahn": (
        lambda q, u, other, way: q["eps"] ** 2 * (u - other),
        lambda q, u: (q["c"] - 1) * u + u**3,
    ),
    "burgers": (_burgers, lambda q, u: q["c"] * u),
    "p-laplace": (None, lambda q, u: torch.zeros_like(u)),
}
NAMES = dict.fromkeys(EQUATIONS, ("a", "c")) | {
    "allen-cahn": ("eps", "c"), "burgers": ("nu", "c"), "p-laplace": ("a",),
}  # fmt: skip
VALUES = dict.fromkeys(("left", "right", "bottom", "top"), ("value", 1.0))
NATURAL = {"left": ("value", 1.0), "right": ("flux", 0.3), "top": ("exchange", 2.0, 0.5), "bottom": ("flux", 0.1)}  # fmt: skip
PAIR = {"left": "around", "right": "around", "top": ("exchange", 2.0, 0.5), "bottom": ("value", 0.2)}  # fmt: skip
PLACES = {
    "values": ((16, 16), VALUES),
    "natural": ((8, 12), NATURAL),
    "around": ((8, 24), PAIR),
    "mask": ((12, 16), NATURAL),
    "box": ((8, 8, 8), VALUES | dict.fromkeys(("back", "front"), ("value", 1.0))),
    "natural box": ((4, 12, 8), {"left": ("value", 1.0), "right": ("flux", 0.3), "top": "around", "bottom": "around", "back": ("exchange", 1.0, 0.2), "front": ("flux", 0.1)}),
    "mask of voxels": ((8, 8, 4), NATURAL | {"back": ("exchange", 1.0, 0.2), "front": ("flux", 0.1)}),
}  # fmt: skip


def drawn(cells, seed):
    return np.random.default_rng((seed, *cells)).uniform(0.5, 2.0, cells)


def made(name, place, h=H):
    """Return a problem, what makes its solution, and its data."""
    cells, sides = PLACES[place]
    inside = np.ones(cells, bool)
    if "mask" in place:
        inside[(slice(2, 5),) * 2] = False
    data = {n: drawn(cells, k) for k, n in enumerate((*NAMES[name], "f"))}
    kinds = {"value": m.Dirichlet, "flux": m.Neumann, "exchange": m.Robin}
    conditions = {
        n: m.Periodic() if side == "around" else kinds[side[0]](*side[1:])
        for n, side in sides.items()
    }
    domain = m.Domain(cells, h)
    if "mask" in place:
        domain = m.Domain.from_mask(inside, h, per_cell=True)
        conditions["outline"] = m.Neumann(0.0)
    fields = {n: np.where(inside, values, np.nan) for n, values in data.items()}
    fields |= {"eps": EPS, "p": P} if name == "p-laplace" else {}
    return m.Problem(domain, name, fields, conditions), ByCells(inside, h, sides), data


def energy(q, squared):
    return q["a"] * (EPS**2 + squared) ** (P / 2) / P


DAILY = {("p-laplace", "values"), ("poisson-boltzmann", "natural"), ("burgers", "around"), ("allen-cahn", "mask"), ("quasilinear-diffusion", "natural box"), ("p-laplace", "mask of voxels"), ("reaction-diffusion", "box")}  # fmt: skip
CASES = [
    pytest.param(name, place, marks=[] if (name, place) in DAILY else pytest.mark.nightly)
    for name in EQUATIONS
    for place, (cells, _) in PLACES.items()
    if (name, place) != ("p-laplace", "mask") and not (name == "burgers" and len(cells) == 3)
]


@pytest.mark.parametrize(("name", "place"), CASES)
def test_solutions_are_those_of_sums_over_cells(name, place):
    problem, by_cells, data = made(name, place)
    solution = m.solve(problem, settings=TIGHT)
    assert solution.status == "converged_rtol"
    own = {"energy": energy} if name == "p-laplace" else {}
    expected = by_cells.solution(*EQUATIONS[name], **data, **own)
    # Newton's last step leaves 1e-13 of the right-hand side, at a condition of some hundreds.
    np.testing.assert_allclose(solution.field, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "place"),
    [("allen-cahn", "natural"), ("p-laplace", "natural"), ("reaction-diffusion", "mask of voxels")],
)
def test_cells_need_be_no_squares(name, place):
    steps = (0.3, 0.4, 0.2)[-len(PLACES[place][0]) :]
    problem, by_cells, data = made(name, place, steps)
    own = {"energy": energy} if name == "p-laplace" else {}
    expected = by_cells.solution(*EQUATIONS[name], **data, **own)
    np.testing.assert_allclose(m.solve(problem, settings=TIGHT).field, expected, atol=1e-12)


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize(
    ("name", "cells"),
    [("p-laplace", (48, 64)), ("allen-cahn", (50, 60)), ("poisson-boltzmann", (16, 16, 24))],
)
def test_ranks_have_the_same_solution(comm, name, cells, known_by_one):
    data = {n: drawn(cells, k) for k, n in enumerate((*NAMES[name], "f"))}
    sides = {"left": m.Dirichlet(1.0), "right": m.Neumann(0.2), "top": m.Robin(1.0, 0.5)}
    problem = m.Problem(m.Domain(cells, 0.05), name, data, sides)
    tight = m.SolveSettings(rtol=1e-11)
    solution = m.solve(problem, ranks=comm, settings=tight)
    alone = known_by_one(m.solve, problem, settings=tight)
    np.testing.assert_allclose(solution.gather(), alone.field, atol=1e-9)


def test_constant_cells_are_numbers():
    sides = {"left": m.Dirichlet("y"), "right": m.Neumann(0.2)}
    numbers = {"nu": 0.3, "c": 0.5, "f": 2.0}
    cells = {name: np.full((20, 24), number) for name, number in numbers.items()}
    fields = [m.solve(m.Problem((20, 24), "burgers", q, sides), settings=TIGHT).field for q in (numbers, cells)]  # fmt: skip
    np.testing.assert_allclose(*fields, atol=1e-12)


LINEAR = {  # equations that are linear for these functions and numbers
    "poisson-boltzmann": {"c": 0.0},
    "quasilinear-diffusion": {"k": "1 + 0*u"},
    "reaction-diffusion": {"r": "0*u"},
}
AROUND_HOLE = {"left": m.Dirichlet(1.0), "right": m.Neumann(0.2), "top": m.Robin(1.0, 0.0), "hole1": m.Robin(3.0, 0.5)}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("kind", ["a number", "per node", "per cell"])
def test_beside_outlines_that_cut_cells_they_are_as_linear_equations(name, kind):
    cells, nodes = (20, 24), (21, 25)
    domain = m.Domain.from_distance("0.8 - hypot(x - 2.3, y - 2.1)", cells, 0.2)
    data = {"f": drawn(cells, 1)} | ({} if "c" in LINEAR[name] else {"c": drawn(cells, 2)})
    data["a"] = {"a number": 0.2, "per node": drawn(nodes, 3), "per cell": drawn(cells, 3)}[kind]
    linear = m.solve(m.Problem(domain, "diffusion", data, AROUND_HOLE), settings=TIGHT)
    problem = m.Problem(domain, name, data | LINEAR[name], AROUND_HOLE)
    np.testing.assert_allclose(m.solve(problem, settings=TIGHT).field, linear.field, atol=1e-11)


def test_what_multiplies_a_reaction_alone_is_a_mean_and_all_else_is_taken_cell_by_cell():
    ones = np.ones((16, 16))
    known = {
        name: m.Problem((16, 16), name, dict.fromkeys(NAMES[name], ones)).operator.in_cells
        for name in EQUATIONS
    }
    assert known == dict.fromkeys(EQUATIONS, ()) | {"allen-cahn": ("eps",), "burgers": ("nu",)}


SQUARE = m.NonlinearEquation(
    "square-of-a-field", "-lap u + c^2 u = f",
    lambda u, h, c: c.centre**2 * u.centre - sum(v - u.centre for v in u.neighbours) / h**2,
    {"c": 1.0},
)  # fmt: skip
ENERGETIC = m.NonlinearEquation(
    "corners-in-c", "-div(c grad u) = f",
    lambda u, h, c: (4 * u.centre - sum(u.corners)) * c.centre / (2 * h**2), {"c": 1.0},
)  # fmt: skip


def test_a_reaction_that_is_not_linear_in_a_field_is_summed_over_cells():
    problem, by_cells, data = made("reaction-diffusion", "natural")
    own = m.Problem(problem.domain, SQUARE, {n: data[n] for n in ("c", "f")}, problem.sides)
    expected = by_cells.solution(lambda q, u, v, way: u - v, lambda q, u: q["c"] ** 2 * u, **data)
    np.testing.assert_allclose(m.solve(own, settings=TIGHT).field, expected, atol=1e-12)


def test_of_other_equations_fields_are_at_the_nodes():
    with pytest.raises(ValueError, match=r"c is given per cell, \(16, 16\).*at the nodes, \(17, 17\)"):  # fmt: skip
        m.Problem((16, 16), ENERGETIC, {"c": np.ones((16, 16))})


@pytest.mark.parametrize("held", ["a number", "per node"])
def test_what_vanishes_where_a_field_is_one_counts_where_it_varies(held):
    def residual(u, h, c, share):
        lap = (sum(u.neighbours) - 4 * u.centre) / h**2
        return (1 - share.centre) * c.centre**2 * u.centre - lap

    own = m.NonlinearEquation("shares", "", residual, {"c": 1.0, "share": 0.0})
    problem, by_cells, data = made("reaction-diffusion", "natural")
    share = 0.5 if held == "a number" else np.full((9, 13), 0.5)
    fields = {"c": data["c"], "f": data["f"], "share": share}
    solution = m.solve(m.Problem(problem.domain, own, fields, problem.sides), settings=TIGHT)
    reaction = lambda q, u: q["c"] ** 2 / 2 * u
    expected = by_cells.solution(lambda q, u, v, way: u - v, reaction, **data)
    np.testing.assert_allclose(solution.field, expected, atol=1e-12)


def test_corners_count_that_do_not_where_a_field_is_one():
    def residual(u, h, share):
        beside = 4 * u.centre - sum(u.neighbours)
        across = (4 * u.centre - sum(u.corners)) / 2
        return (share.centre * beside + (1 - share.centre) * across) / h**2

    own = m.NonlinearEquation("nine-points", "", residual, {"share": 0.5})
    number, nodes = (
        m.solve(m.Problem((16, 16), own, {"share": share, "f": 1.0}), settings=TIGHT).field
        for share in (0.5, np.full((17, 17), 0.5))
    )
    np.testing.assert_allclose(nodes, number, atol=1e-12)
    with pytest.raises(m.Unsupported, match="couples the differences"):
        m.solve(m.Problem((16, 16), own, {"share": nodes}, {"left": m.Dirichlet(1.0), "right": m.Neumann(0.0)}))  # fmt: skip


def _with_a_reaction(u, h, c):
    cells = sum(u.cell(corner) for corner in itertools.product((-1, 1), repeat=2)) / 4
    return outflow(u, h, lambda squared: 1 + squared) + c.centre * cells * u.centre**3


@pytest.mark.parametrize(
    ("c", "values", "says"),
    [
        (1.0, 2.0 * np.ones((16, 16)), "has a reaction.*give it at the nodes"),
        (0.0, 2.0 * np.ones((17, 17)), r"give it as a number, or per cell, \(16, 16\)"),
    ],
)
def test_a_factor_of_cells_multiplies_no_reaction_and_is_per_cell(c, values, says):
    own = m.NonlinearEquation("steep", "", _with_a_reaction, {"c": 0.0}, diffusion="a")
    with pytest.raises(m.Unsupported, match=says):
        m.Problem((16, 16), own, {"a": values, "c": c})
    fields = [
        m.solve(m.Problem((16, 16), own, {"a": a, "f": 1.0}), settings=TIGHT).field
        for a in (2.0, np.full((16, 16), 2.0))
    ]
    np.testing.assert_allclose(*fields, atol=1e-12)


@pytest.mark.parametrize("name", ["allen-cahn", "p-laplace"])
def test_values_of_the_wrong_sign_are_told_by_their_cells(name):
    wrong = np.ones((16, 16))
    wrong[3, 4] = -0.1  # beside others the mean is positive
    of = NAMES[name][0]
    for field in (of, "c") if name == "allen-cahn" else (of,):
        problem = m.Problem((16, 16), name, {field: wrong})
        with pytest.raises(ValueError, match=rf"{field} must be .*-0.1 at cell \(3, 4\)"):
            m.solve(problem)


def test_a_step_in_time_has_its_cells():
    problem, by_cells, data = made("allen-cahn", "mask")
    dt, u = 0.1, np.where(by_cells.volumes > 0, 0.5, np.nan)
    series = m.march(problem, 0.5, dt=dt, steps=2, method="euler", settings=TIGHT, solver_share=0)
    u = by_cells.solution(*EQUATIONS["allen-cahn"], **_stepped(data, dt), beside=_begun(u, dt))
    u = u.ravel()
    u = by_cells.solution(*EQUATIONS["allen-cahn"], **_stepped(data, dt), beside=_begun(u, dt))
    np.testing.assert_allclose(series.field, u, atol=1e-12)


def _stepped(data, dt):
    return data | {"c": data["c"] + 1 / dt}


def _begun(u, dt):
    return np.nan_to_num(u) / dt
