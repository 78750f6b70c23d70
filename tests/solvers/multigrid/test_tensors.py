"""Tensors that are not diagonal: an assembly of its own, second order, all sides, alike on ranks, and what is refused."""

import numpy as np
import pytest
from tensor_cells import driven_from_the_right

import mosaicdd as m
from mosaicdd.problems.equations.linear import tensor
from mosaicdd.solvers.references import solve_directly

CELLS = (67, 83)  # prime numbers
DOMAIN = m.Domain(CELLS, 1 / 83)
SIDES = {
    "left": m.Dirichlet("y"),
    "right": m.Robin(2.0, "x"),
    "top": m.Neumann(0.0),
    "bottom": m.Neumann("x"),
}
TIGHT = m.SolveSettings(rtol=1e-11)


def rough(shape, ratio, seed=0):
    """Return fields of tensors with any axes and ratios up to one, independent of each other."""
    rng = np.random.default_rng(seed)
    ratios, angles = ratio ** rng.uniform(size=shape), rng.uniform(0, np.pi, shape)
    every = [tensor(*draw) for draw in zip(ratios.flat, angles.flat, strict=True)]
    return {n: np.array([t[n] for t in every]).reshape(shape) for n in ("axx", "axy", "ayy")}


def periodic(*names):
    return dict.fromkeys(names, m.Periodic())


PROBLEMS = {
    "one number": lambda: m.Problem(
        DOMAIN, "anisotropic-diffusion", {"axy": -0.8, "f": "x"}, SIDES
    ),
    "per cell": lambda: m.Problem(DOMAIN, "diffusion", {**rough(CELLS, 20), "f": "x"}, SIDES),
    "at nodes": lambda: m.Problem(
        DOMAIN, "anisotropic-diffusion", {**rough((68, 84), 20), "f": "x"}, m.Dirichlet("x*y")
    ),
    "at both, and a reaction": lambda: m.Problem(
        DOMAIN,
        "diffusion",
        {"axx": rough(CELLS, 9)["axx"] + 1, "axy": 0.3, "ayy": "2+x", "c": 9.0},
        SIDES,
    ),
    "insulated": lambda: m.Problem(
        DOMAIN, "diffusion", {**rough(CELLS, 20), "f": "x - 0.5"}, m.Neumann(0.0)
    ),
    "a pair": lambda: m.Problem(
        m.Domain((48, 70), 1 / 48),
        "diffusion",
        {**rough((48, 70), 20), "f": "x"},
        periodic("bottom", "top") | {"left": m.Dirichlet("y"), "right": m.Robin(1.0, 2.0)},
    ),
    "both pairs": lambda: m.Problem(
        m.Domain((48, 72), 1 / 48),
        "diffusion",
        {**rough((48, 72), 20), "f": "sin(pi*x/0.75)"},
        periodic("left", "right", "bottom", "top"),
    ),
}


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_number_of_ranks_takes_the_same_iterations_to_the_field_of_a_direct_solver(
    as_by_one, name
):
    iterations, off = as_by_one(PROBLEMS[name](), 1e-10)
    assert iterations <= 30
    assert off < 1e-9


def test_cells_that_are_no_squares_hold_the_energy_of_their_rises():
    cells, sides, fields = (24, 20), (0.05, 0.1), rough((24, 20), 30)
    _, field = driven_from_the_right(cells, sides, fields)
    domain = m.Domain(cells, {"y": sides[0], "x": sides[1]})
    insulated = dict.fromkeys(("top", "bottom"), m.Neumann(0.0))
    conditions = {"left": m.Dirichlet(0.0), "right": m.Neumann(1.0), **insulated}
    solution = m.solve(m.Problem(domain, "diffusion", fields, conditions), settings=TIGHT)
    assert solution.field == pytest.approx(field, abs=1e-9 * np.ptp(field))


# Of u = sin(2 x + y): the flux is T grad u, and f what is left of it, with u_x = 2 c, u_y = c, c = cos(2 x + y).
VARYING = {"axx": "2 + x*y", "axy": "0.9*sin(3*x)*cos(y)", "ayy": "1.5 + 0.5*sin(2*y)"}
FLUX_X = "(2*(2 + x*y) + 0.9*sin(3*x)*cos(y))*cos(2*x + y)"
FLUX_Y = "(2*0.9*sin(3*x)*cos(y) + 1.5 + 0.5*sin(2*y))*cos(2*x + y)"
SOURCE = (
    "((4*(2 + x*y) + 4*0.9*sin(3*x)*cos(y) + 1.5 + 0.5*sin(2*y))*sin(2*x + y)"
    " - (2*y + 2.7*cos(3*x)*cos(y) - 1.8*sin(3*x)*sin(y) + cos(2*y))*cos(2*x + y))"
)


@pytest.mark.parametrize("per_cell", [False, True])
def test_the_largest_error_is_of_second_order(per_cell):
    errors = []
    for n in (32, 64, 128, 256):
        fields = {**VARYING}
        if per_cell:
            middles = (np.arange(n) + 0.5) / n
            y, x = middles[:, None], middles
            fields["axx"] = 2 + x * y
            fields["axy"] = 0.9 * np.sin(3 * x) * np.cos(y)
            fields["ayy"] = 1.5 + 0.5 * np.sin(2 * y) + 0 * x
        sides = {
            "left": m.Dirichlet("sin(2*x + y)"),
            "bottom": m.Dirichlet("sin(2*x + y)"),
            "right": m.Neumann(FLUX_X),
            "top": m.Robin(3.0, f"{FLUX_Y} + 3*sin(2*x + y)"),
        }
        problem = m.Problem(m.Domain((n, n), 1 / n), "diffusion", {**fields, "f": SOURCE}, sides)
        solution = m.solve(problem, "exact", rtol=1e-9)
        assert solution.converged
        errors.append(abs(solution.field - np.sin(2 * solution.x + solution.y[:, None])).max())
    assert errors[-1] < 1e-5
    assert np.array(errors[:-1]) / errors[1:] == pytest.approx([4, 4, 4], rel=0.15)


@pytest.mark.parametrize("ratio", [3, 30, 300, 3000])
def test_the_estimate_is_no_less_than_the_error_and_the_residual_is_as_asked(ratio):
    for seed in range(3):
        f = np.random.default_rng(seed).standard_normal((68, 84))
        problem = m.Problem(DOMAIN, "diffusion", {**rough(CELLS, ratio, seed), "f": f}, SIDES)
        solution = m.solve(problem, rtol=1e-5)
        error = np.sqrt(np.square(solution.field - solve_directly(problem)).mean())
        assert error <= solution.error_estimate < 20 * error
        assert solution.report["discrete_residual"] <= 1e-5


def test_a_strong_anisotropy_along_no_axis_is_solved():
    fields = {**tensor(3000.0, 0.5), "f": "sin(9*x)"}
    problem = m.Problem(m.Domain((128, 128), 1 / 128), "anisotropic-diffusion", fields, SIDES)
    solution = m.solve(problem, rtol=1e-10)
    assert solution.report["accelerate"] == "multigrid"
    assert solution.converged
    reference = solve_directly(problem)
    assert abs(solution.field - reference).max() < 1e-7 * np.ptp(reference)


def test_heat_fades_at_the_rate_of_the_grids_equation():
    n, steps, dt = 32, 3, 0.1
    h = 2 * np.pi / n
    domain = m.Domain((n, n), h)
    fields = {"axx": 2.0, "axy": 0.7, "ayy": 1.0}
    problem = m.Problem(domain, "heat", fields, periodic("left", "right", "bottom", "top"))
    series = m.march(problem, initial="sin(x + y)", steps=steps, dt=dt, method="euler")
    rate = (4 * 3.0 * np.sin(h / 2) ** 2 + 2 * 0.7 * np.sin(h) ** 2) / h**2
    expected = (1 + dt * rate) ** -steps
    start, *_, end = series
    assert end == pytest.approx(expected * start, abs=3e-5)


BAD = rough(CELLS, 5)
BAD["axy"] = BAD["axy"].copy()
BAD["axy"][3, 7] = 9.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (BAD, r"positive definite everywhere .* in the cell \(3, 7\) \(y, x\) axx is .* axy 9,"),
        ({"axx": 1.0, "axy": "x", "ayy": 0.25}, r"in the cell \(0, 41\) .* axy 0\.50"),
        ({"axx": "1", "axy": 0.5, "ayy": "x-9"}, r"in the cell \(0, 0\) .* ayy -9"),
    ],
)
@pytest.mark.ranks(1, 2, 3)
def test_a_tensor_that_is_not_positive_definite_is_refused_with_its_first_cell(
    comm, fields, message
):
    with pytest.raises(ValueError, match=message):
        m.solve(m.Problem(DOMAIN, "diffusion", fields, SIDES), ranks=comm)


def test_what_is_not_solved_is_refused():
    round_sides = periodic("left", "right")
    problem = m.Problem(
        m.Domain((48, 49)), "diffusion", {"axx": 1.0, "axy": "x/9", "ayy": 1.0}, round_sides
    )
    with pytest.raises(m.Unsupported, match=r"even numbers of cells between them, .* 49x48 cells"):
        m.solve(problem)
    disk = m.Domain.from_distance(lambda x, y: np.hypot(x - 0.5, y - 0.4) - 0.3, CELLS, 1 / 83)
    with pytest.raises(m.Unsupported, match=r"domain is no rectangle here, .* mixed derivative"):
        m.Problem(disk, "anisotropic-diffusion", {"axy": 0.5})
