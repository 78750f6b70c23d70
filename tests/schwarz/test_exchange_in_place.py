"""Exchange whose coefficient varies in place, and in time, on sides and outlines."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.storage.hdf5 import open_any
from mosaicdd.storage.inputs import sides_of_file


def u(x, y):
    return np.sin(2 * x) * np.cosh(y) + x


def slope(x, y):
    return 2 * np.cos(2 * x) * np.cosh(y) + 1, np.sin(2 * x) * np.sinh(y)


def source(x, y):
    return 3 * np.sin(2 * x) * np.cosh(y)


def alpha(x, y):
    return 1 + 5 * np.sin(3 * x + 4 * y) ** 2


TEXT = "1 + 5*sin(3*x + 4*y)**2"


def robin(normal, given=alpha):
    def g(x, y):
        (nx, ny), (ux, uy) = normal(x, y), slope(x, y)
        return nx * ux + ny * uy + alpha(x, y) * u(x, y)

    return m.Robin(given, g)


def rectangle(n):
    along = np.arange(n + 1) / n
    sides = {
        "left": robin(lambda x, y: (-1, 0)),
        "top": robin(lambda x, y: (0, 1), TEXT),
        "bottom": robin(lambda x, y: (0, -1), alpha(along, 0.0)),
        "right": m.Dirichlet(u),
    }
    return m.Problem(m.Domain((n, n), 1 / n), "diffusion", {"f": source}, sides)


def disk(n):
    domain = m.Domain.from_distance("hypot(x - 0.5, y - 0.5) - 0.4", (n, n), 1 / n)

    def outward(x, y):
        return (x - 0.5) / np.hypot(x - 0.5, y - 0.5), (y - 0.5) / np.hypot(x - 0.5, y - 0.5)

    return m.Problem(domain, "diffusion", {"f": source}, {"outline": robin(outward)})


def off(problem):
    solution = m.solve(problem)
    assert solution.converged
    x = np.linspace(0, 1, problem.domain.cells[1] + 1)
    return np.nanmax(abs(solution.gather() - u(*np.meshgrid(x, x)))), solution


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("made", [rectangle, disk])
def test_second_order_and_nothing_is_lost(made, tmp_path):
    (coarse, _), (fine, solution) = off(made(32)), off(made(64))
    assert 3.2 < coarse / fine < 4.8
    balance, flow = solution.balance(), solution.flow("left" if made is rectangle else "outline")
    assert balance.relative < 1e-6
    assert flow == pytest.approx(3.350 if made is rectangle else 1.3463, rel=1e-3)


@pytest.mark.parametrize("made", [rectangle, disk])
def test_a_file_knows_the_coefficient(made, tmp_path):
    solution = m.solve(made(32))
    solution.save(tmp_path / "u.h5")
    name = "left" if made is rectangle else "outline"
    assert m.read(tmp_path / "u.h5").flow(name) == pytest.approx(solution.flow(name), rel=1e-12)
    with open_any(tmp_path / "u.h5", "solution") as file:
        kept = sides_of_file(file, solution.problem.domain.grid())
    again = m.solve(solution.problem.with_sides(kept))
    assert again.field == pytest.approx(solution.field, rel=1e-7, nan_ok=True)


def test_a_coefficient_that_jumps_is_that_of_parts():
    n, sides = 32, {name: m.Neumann() for name in ("top", "bottom")} | {"right": m.Dirichlet("y")}
    at = m.Robin("where(y < 0.51, 1, 3)", 2.0)
    parts = {"left[0:0.515625]": m.Robin(1.0, 2.0), "left[0.515625:]": m.Robin(3.0, 2.0)}
    first, second = (
        m.solve(m.Problem(m.Domain((n, n), 1 / n), "poisson", {}, sides | left)).field
        for left in ({"left": at}, parts)
    )
    assert first == pytest.approx(second, abs=1e-7)


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_masks_of_voxels_and_sides_of_boxes():
    voxels = np.ones((8, 8, 8), bool)
    voxels[3:5, 3:6, 2:5] = False
    sides = {name: m.Neumann() for name in ("top", "bottom", "front", "back")}
    sides |= {"left": m.Dirichlet(0.0), "right": m.Robin("1 + z", 0.5)}
    flows = []
    for outline in (m.Robin("where(x < 0.4, 1, 0)", 1.0), m.Robin(1.0, 1.0)):
        domain = m.Domain.from_mask(voxels, 1 / 8)
        every = sides | {"outline": outline}
        if outline.alpha == 1.0:  # the same said by parts
            every = sides | {"outline[x < 0.4]": outline, "outline": m.Neumann(1.0)}
        solution = m.solve(m.Problem(domain, "diffusion", {"f": 1.0}, every))
        assert solution.balance().relative < 1e-6
        flows.append((solution.flow("left"), solution.flow("right")))
    assert flows[0] == pytest.approx(flows[1], rel=1e-6)


@pytest.mark.parametrize(("made", "method"), [(rectangle, "crank-nicolson"), (disk, "bdf2")])
@pytest.mark.ranks(1, 2, 4)
def test_a_coefficient_in_time_is_of_second_order(made, method):
    """To ``1 + t`` everywhere, with ``alpha`` that changes."""
    errors, domain = [], made(16).domain
    sides = {"outline": m.Robin("2 + y*sin(5*t)", "(2 + y*sin(5*t))*(1 + t)")}
    if made is rectangle:
        sides = {"left": sides["outline"], "right": m.Neumann(), "top": m.Neumann()}
        sides["bottom"] = m.Robin(lambda x, y, t: 1 + x * t, lambda x, y, t: (1 + x * t) * (1 + t))
    problem = m.Problem(domain, "heat", {"f": 1.0}, sides)
    for steps in (4, 8):
        series = m.march(problem, 1.0, dt=0.4 / steps, steps=steps, method=method, rtol=1e-10)
        errors.append(np.nanmax(abs(series.gather() - 1.4)))
        assert series.balance().relative < 1e-8
    assert errors[1] < 3e-3
    assert errors[0] / errors[1] > 2.5


@pytest.mark.parametrize("made", [rectangle, disk])
def test_a_coefficient_that_stays_is_exact_in_time(made):
    name = "outline" if made is disk else "left"
    sides = {name: m.Robin(alpha, lambda x, y, t: alpha(x, y) * (1 + t))}
    if made is rectangle:
        sides |= {other: m.Neumann() for other in ("right", "top", "bottom")}
    problem = m.Problem(made(16).domain, "heat", {"f": 1.0}, sides)
    series = m.march(problem, 1.0, dt=0.1, steps=3, method="crank-nicolson", rtol=1e-10)
    assert np.nanmax(abs(series.field - 1.3)) < 1e-7


def test_gradients_by_the_coefficient():
    problem, n, step = rectangle(16), 16, 1e-3
    solution = m.solve(problem, settings=m.SolveSettings(rtol=1e-13))
    weights = np.random.default_rng(0).standard_normal((n + 1, n + 1))
    by = m.adjoint(solution, weights)["left.alpha"]
    assert by.shape == (n + 1,)
    along, bump = np.arange(n + 1) / n, np.sin(np.arange(n + 1))
    sums = []
    for sign in (1, -1):
        left = m.Robin(alpha(0.0, along) + sign * step * bump, problem.sides["left"].values)
        moved = m.solve(
            problem.with_sides({**problem.sides, "left": left}),
            settings=m.SolveSettings(rtol=1e-13),
        )
        sums.append((weights * moved.field).sum())
    assert by @ bump == pytest.approx((sums[0] - sums[1]) / (2 * step), rel=1e-6)


def test_gradients_on_an_outline_whose_coefficient_varies():
    problem, step = disk(24), 1e-4
    weights, bump = np.random.default_rng(0).standard_normal((2, 25, 25))

    def solved(a):
        how = {"keep": "unknowns", "settings": m.SolveSettings(rtol=1e-13)}
        return m.solve(problem.with_fields(a=a), **how)

    by = m.adjoint(solved(np.ones((25, 25))), weights)
    assert "outline.alpha" not in by
    ahead, back = (np.nansum(weights * solved(1 + s * step * bump).field) for s in (1, -1))
    assert (by["a"] * bump).sum() == pytest.approx((ahead - back) / (2 * step), rel=1e-6)


def test_a_changed_coefficient_is_planned_anew():
    problem = rectangle(16)
    with m.Solver(problem) as solver:
        first = solver().field
        more = {**problem.sides, "left": m.Robin("7 + y", 1.0)}
        with pytest.raises(ValueError, match="alpha of the side left"):
            solver(problem.with_sides(more))
    assert abs(m.solve(problem.with_sides(more)).field - first).max() > 0.1


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("x - 0.5 + 0*y", r"alpha of the side left must be 0 or more.* -0.5 at \(0, 0\)"),
        (np.full(33, np.nan), r"alpha of the side left"),
        (np.ones((2, 33)), "one for all"),
        (np.ones(32), "alpha of the side left has values of the shape"),
        ("1 + q", "q"),
        (-1.0, "must be >= 0, got -1.0"),
        (None, "must be"),
    ],
)
def test_bad_coefficients_are_refused(given, match):
    with pytest.raises((ValueError, TypeError), match=match):
        m.solve(
            m.Problem((32, 32), "poisson", {}, {"left": m.Robin(given), "right": m.Dirichlet(0)})
        )
    if isinstance(given, str) and given.startswith("x"):
        whole = m.Domain.from_distance("hypot(x - 0.5, y - 0.5) - 0.4", (32, 32), 1 / 32)
        with pytest.raises(ValueError, match="alpha of the side outline must be 0 or more"):
            m.solve(m.Problem(whole, "poisson", {}, m.Robin(given)))


def test_an_exchange_of_nothing_holds_nothing():
    domain = disk(32).domain
    for sides in (m.Robin("0*x", 0.0), m.Robin(0.0, 0.0)):
        with pytest.raises(ValueError, match=r"compatible|left over|sources"):
            m.solve(m.Problem(domain, "poisson", {"f": 1.0}, sides))
        with pytest.raises(ValueError, match="level of the solution is not known"):
            m.solve(m.Problem(domain, "quasilinear-diffusion", {"f": 1.0}, sides))


@pytest.mark.parametrize("condition", [m.Robin(np.ones(9), 0.0), m.Dirichlet(np.ones((33, 33)))])
def test_an_outline_takes_no_array_and_says_what_it_takes(condition):
    problem = m.Problem(disk(32).domain, "poisson", {"f": 1.0}, {"outline": condition})
    with pytest.raises(TypeError, match=r"takes no array, got one of the shape .* give a function"):
        m.solve(problem)
