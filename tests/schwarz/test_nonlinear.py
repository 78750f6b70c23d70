"""Nonlinear equations: random ones beside Newton's method of the test's own, formulas, estimates, and what is refused."""

import itertools

import numpy as np
import pytest
from own_nonlinear import EQUATIONS, OwnNonlinear, drawn_nonlinear
from scipy.integrate import solve_bvp

import mosaicdd as m
from mosaicdd.solvers.newton import newton_steps
from mosaicdd.solvers.references import solve_directly

RTOL = 1e-11
TIGHT = m.SolveSettings(rtol=RTOL)
LEFT = 1e-7  # of the largest value: what RTOL leaves by a condition of some ten thousand
DAILY = 2 * len(EQUATIONS)
SEEDS = [*range(DAILY), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(DAILY, 300))]
LARGE = [*range(1000, 1007), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1007, 1100))]  # fmt: skip


def require_own_field(p, solution):
    field = np.asarray(solution.gather())
    if p.pde == "burgers" and solution.status == "stagnated":  # flows may have no steady state
        pytest.skip(f"{solution}: {p}")
    assert solution.converged, str(p)
    own = OwnNonlinear(p).solve(field)
    assert solution.report["discrete_residual"] <= RTOL
    np.testing.assert_array_equal(np.isnan(field), np.isnan(own))
    np.testing.assert_allclose(field, own, rtol=0, atol=LEFT * np.nanmax(abs(own)))


@pytest.mark.parametrize("seed", SEEDS)
def test_fields_are_those_of_a_newton_method_of_its_own(seed):
    """Each equation on rectangles, boxes, masks, distances and polygons, with fields per cell, at nodes or numbers."""
    p = drawn_nonlinear(seed)
    require_own_field(p, m.solve(p.problem, "exact", settings=TIGHT))


@pytest.mark.ranks(1, 2, 3, 4, 6, 8)
@pytest.mark.parametrize("seed", LARGE)
def test_any_number_of_ranks_has_these_fields(seed, comm):
    p = drawn_nonlinear(seed, large=True)
    require_own_field(p, m.solve(p.problem, "exact", settings=TIGHT, ranks=comm))


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("by", ["sines", "multigrid"])
@pytest.mark.parametrize("name", ["minimal-surface", "p-laplace"])
def test_steep_fields_in_boxes_are_the_same_by_sines_and_by_multigrid(name, by, comm, monkeypatch):
    if by == "multigrid":  # as where sine transforms are slow
        monkeypatch.setattr(newton_steps, "_MOST", 0)
    p = drawn_nonlinear(5, large=True, name=name, kind="box")
    p.sides, p.held = {}, None
    steep = m.Dirichlet("4*sin(5*x*y + z) + 3*z")
    problem = m.Problem(p.domain, name, p.given_fields, steep)
    solution = m.solve(problem, ranks=comm, settings=TIGHT)
    field, expected = solution.gather(), solve_directly(problem)
    assert solution.converged
    assert np.ptp(expected) > 5
    np.testing.assert_allclose(field, expected, rtol=0, atol=1e-9 * np.ptp(expected))


CENTRE, INNER, OUTER = (0.5, 0.52), 0.187, 0.413


def ring(n):
    def distance(x, y):
        r = np.hypot(x - CENTRE[0], y - CENTRE[1])
        return abs(r - (INNER + OUTER) / 2) - (OUTER - INNER) / 2

    return m.Domain.from_distance(distance, (n, n), 1 / n)


def around_a_cylinder(condition, c):
    """Return the potential of a cylinder in an electrolyte, by its radius."""

    def slope(r, y):
        return np.stack([y[1], c * np.sinh(y[0]) - y[1] / r])

    def ends(a, b):
        if isinstance(condition, m.Dirichlet):
            return np.array([a[0] - condition.values, b[0]])
        alpha = getattr(condition, "alpha", 0.0)  # the flux is outward: towards the axis
        return np.array([-a[1] + alpha * a[0] - condition.values, b[0]])

    r = np.linspace(INNER, OUTER, 200)
    guess = np.stack([2 * (OUTER - r) / (OUTER - INNER), np.full_like(r, -2 / (OUTER - INNER))])
    found = solve_bvp(slope, ends, r, guess, tol=1e-9, max_nodes=20000)
    assert found.success
    return lambda r: found.sol(r)[0]


@pytest.mark.parametrize("condition", [m.Dirichlet(3.0), m.Neumann(8.0), m.Robin(2.0, 8.0)])
def test_the_potential_around_a_cylinder_is_of_second_order(condition):
    c, grids, errors = 20.0, (32, 64, 128), []
    exact = around_a_cylinder(condition, c)
    for n in grids:
        sides = {"outer": m.Dirichlet(0.0), "hole1": condition}
        one = m.solve(m.Problem(ring(n), "poisson-boltzmann", {"c": c}, sides), settings=TIGHT)
        radius = np.hypot(one.x - CENTRE[0], one.y[:, None] - CENTRE[1])
        errors.append(abs(one.field - exact(radius))[~np.isnan(one.field)].max())
    assert np.polyfit(np.log(grids), np.log(errors), 1)[0] < -1.8, errors
    assert all(fine < coarse / 3 for coarse, fine in itertools.pairwise(errors)), errors


@pytest.mark.parametrize(
    "distance",
    [  # those of SNI (ICLR 2026)
        "minimum(hypot(x - 0.35, y - 0.5) - 0.3, maximum(abs(x - 0.65) - 0.3, abs(y - 0.5) - 0.15))",
        "maximum(0.12 - hypot(x - 0.3, y - 0.35), 0.15 - hypot(x - 0.65, y - 0.65))",
        "maximum(hypot(x - 0.5, y - 0.5) - 0.45, 0.1*(1 - hypot((x - 0.55)/0.2, (y - 0.45)/0.1)))",
    ],
)
def test_kirchhoffs_transform_is_harmonic_on_shapes(distance):
    """Of ``-div((1 + u^2) grad u) = f`` the transform ``u + u^3 / 3`` solves Poisson's equation."""
    domain = m.Domain.from_distance(distance, (128, 128), 1 / 128)
    g = "sin(3*x) + cos(4*y)"
    given, transformed = m.Dirichlet(g), m.Dirichlet(f"{g} + ({g})**3 / 3")
    natural = {"hole1": m.Neumann("1 + x - y")} if not distance.startswith("minimum") else {}
    f, names = {"f": 10.0}, ("outline", "left", "right", "bottom", "top")
    hot = m.Problem(domain, "quasilinear-diffusion", f, dict.fromkeys(names, given) | natural)
    w = m.Problem(domain, "poisson", f, dict.fromkeys(names, transformed) | natural)
    field, kirchhoff = (m.solve(one, settings=TIGHT).field for one in (hot, w))
    exact = 2 * np.sinh(np.arcsinh(1.5 * kirchhoff) / 3)
    assert np.nanmean((field - exact) ** 2) <= (1e-3) ** 2 * np.nanmean(exact**2)


def test_the_potential_at_a_charged_wall_is_that_of_gouy_and_chapman():
    """``u = 4 artanh(tanh(u0 / 4) exp(-x / l))``, with the flux of Grahame; `c` is ``1 / l^2``."""
    u0, kappa, errors = 2.0, 5.0, []
    gamma = np.tanh(u0 / 4)
    exact = lambda x: 4 * np.arctanh(gamma * np.exp(-kappa * x))
    for n in (32, 64):
        sides = {"left": m.Neumann(2 * kappa * np.sinh(u0 / 2)), "right": m.Dirichlet(exact(1.0))}
        sides |= {name: m.Neumann(0.0) for name in ("bottom", "top", "back", "front")}
        problem = m.Problem(m.Domain((4, 4, n), 1 / n), "poisson-boltzmann", {"c": kappa**2}, sides)
        solution = m.solve(problem, rtol=1e-9)
        errors.append(abs(solution.field - exact(solution.x)).max())
    assert errors[1] < 0.01 * u0
    assert errors[0] / errors[1] > 3.6


def born(n, kappa, a_out=8.0, radius=0.25, charge=1e-3):
    """Return the potential of the solvation at an ion, a point in a ball of permittivity 1, and Born's, Debye's and Hueckel's."""
    at = (np.indices((n,) * 3) + 0.5) / n - 0.5
    nodes = np.indices((n + 1,) * 3) / n - 0.5
    steps = (np.arange(4) + 0.5) / 4 - 0.5
    shifts = np.array(list(itertools.product(steps, repeat=3)))[:, :, None, None, None] / n
    within = lambda places: np.mean(
        [np.linalg.norm(places + shift, axis=0) < radius for shift in shifts], axis=0
    )
    inside = within(at)
    fields = {"a": inside + (1 - inside) * a_out, "c": (1 - within(nodes)) * a_out * kappa**2}

    def distance(x, y, z):
        return np.maximum(np.sqrt((x - 0.5) ** 2 + (y - 0.5) ** 2 + (z - 0.5) ** 2), 0.1 / n)

    def far(x, y, z):
        r = distance(x, y, z)
        scale = charge / (4 * np.pi * a_out * (1 + kappa * radius))
        return scale * np.exp(-kappa * (r - radius)) / r

    f, domain = m.Wells([((0.5, 0.5, 0.5), charge)]), m.Domain((n,) * 3, 1 / n)
    solved = m.solve(m.Problem(domain, "poisson-boltzmann", fields | {"f": f}, m.Dirichlet(far)))
    empty = m.Dirichlet(lambda x, y, z: charge / (4 * np.pi * distance(x, y, z)))
    vacuum = m.solve(m.Problem(domain, "poisson", {"f": f}, empty))
    middle = (n // 2,) * 3
    exact = charge / (4 * np.pi * radius) * (1 / (a_out * (1 + kappa * radius)) - 1.0)
    return solved.field[middle] - vacuum.field[middle], exact


@pytest.mark.parametrize("kappa", [0.0, 4.0])
def test_the_energy_of_an_ion_in_a_salt_solution_nears_borns_with_the_spacing(kappa):
    errors = []
    for n in (12, 24):
        potential, exact = born(n, kappa)
        errors.append(abs(potential / exact - 1))
    assert errors[1] < 0.11  # to first order: voxels cut the ball, whose permittivity jumps by 8
    assert errors[1] < 0.6 * errors[0]


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize(
    ("cells", "p"),
    [((33, 50), 1.5), ((33, 50), 2.0), ((33, 50), 5.0), ((17, 17, 34), 2.0)],  # for 2 corners count nothing
)  # fmt: skip
def test_what_sides_drive_alone_is_an_answer(comm, cells, p):
    """Between a flux and an exchange the slope is that of the formula; residuals are measured by both."""
    slope, eps, level = 0.7, 0.1, 3.0
    flux = 1.4 * (eps**2 + slope**2) ** ((p - 2) / 2) * slope
    names = ["left", "right", "bottom", "top", "back", "front"][: 2 * len(cells)]
    sides = dict.fromkeys(names, m.Neumann(0.0))
    sides |= {"right": m.Neumann(flux), "left": m.Robin(2.0, 2.0 * level - flux)}
    problem = m.Problem(m.Domain(cells, 0.1), "p-laplace", {"a": 1.4, "p": p, "eps": eps}, sides)
    solution = m.solve(problem, ranks=comm, settings=m.SolveSettings(rtol=1e-12))
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 6
    expected = np.broadcast_to(level + slope * 0.1 * np.arange(cells[-1] + 1), [n + 1 for n in cells])  # fmt: skip
    np.testing.assert_allclose(solution.gather(), expected, rtol=1e-10)


def test_steep_data_do_not_lead_far_beyond_the_surface():
    # A residual that flows bound falls on the way to any height.
    sides = {"left": m.Dirichlet("9*sin(5*y)"), "right": m.Neumann("0.3 - y/6"), "bottom": m.Robin(2.0, "x"), "top": m.Neumann(0.0)}  # fmt: skip
    f = np.random.default_rng(0).uniform(-0.4, 0.4, (34, 36))
    solution = m.solve(m.Problem(m.Domain((33, 35), 0.1), "minimal-surface", {"f": f}, sides))
    assert solution.status == "converged_rtol"
    assert abs(solution.field).max() < 20


@pytest.mark.parametrize("rtol", [1e-2, 1e-4])
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 12, 13])
def test_the_estimates_cover_the_error(seed, rtol):
    problem = drawn_nonlinear(seed, large=True).problem
    rough, tight = (m.solve(problem, "exact", rtol=each) for each in (rtol, RTOL))
    error = np.sqrt(np.nanmean(np.square(np.asarray(rough.field) - np.asarray(tight.field))))
    assert error <= rough.error_estimate <= 100 * error + 1e-12


def test_first_values_far_too_large_are_no_measure():
    """The sinh of the smooth surface over these data is 1e8 times that of the solution."""
    top = m.Dirichlet("sin(3*x) + x*y")
    sides = {"left": m.Neumann(-1.0), "right": m.Neumann("x - y"), "bottom": top, "top": top}
    problem = m.Problem(m.Domain((80, 32), 0.1), "poisson-boltzmann", {"f": 1.0}, sides)
    solution = m.solve(problem, settings=TIGHT)
    assert solution.status == "converged_rtol"
    assert solution.error_estimate < 1e-8
    np.testing.assert_allclose(solution.field, solve_directly(problem), rtol=0, atol=1e-8)


def test_a_value_just_beside_a_node_does_not_end_the_reference():
    # The outline passes a node of every tenth row at 1e-5 cells.
    level = np.arange(65) - 40.0 + np.where(np.arange(65)[:, None] % 10 == 5, -1e-5, 0.3)
    domain = m.Domain.from_distance(level / 64, (64, 64), 1 / 64)
    problem = m.Problem(domain, "reaction-diffusion", {"f": "20*y"}, {"outline": m.Dirichlet(2.0)})
    field = m.solve(problem, settings=TIGHT).field
    np.testing.assert_allclose(field, solve_directly(problem), rtol=0, atol=1e-9)


HOLES = m.Domain.from_distance("maximum(0.18 - hypot(x - 0.3, y - 0.35), 0.11 - hypot(x - 0.7, y - 0.68))", (96, 96), 1 / 96)  # fmt: skip
WAVE = m.Domain.from_distance("0.3 + 0.1*sin(pi*x) - y", (64, 64), 1 / 32)
BESIDE_HOLES = {"hole1": m.Robin(2.0, "x"), "hole2": m.Dirichlet(1.0), "left": m.Dirichlet("y"), "right": m.Neumann("x*y"), "top": m.Robin(2.0, "x"), "bottom[0.2:0.7]": m.Neumann(0.4)}  # fmt: skip
ROUND = {"left": m.Periodic(), "right": m.Periodic(), "outline": m.Robin(1.0, "x*(2 - x)"), "top": m.Dirichlet(0.5)}  # fmt: skip


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize(("domain", "sides"), [(HOLES, BESIDE_HOLES), (WAVE, ROUND)])
def test_outlines_with_exchanges_are_those_of_a_direct_solver(domain, sides, comm):
    fields = {"a": "1.5 + sin(9*x*y)", "f": "20*sin(7*x)*cos(4*y)", "c": 0.5}
    problem = m.Problem(domain, "quasilinear-diffusion", fields, sides)
    solution = m.solve(problem, settings=TIGHT, ranks=comm)
    assert solution.iterations <= 10
    np.testing.assert_allclose(solution.gather(), solve_directly(problem), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "fields", "linear"),
    [
        ("poisson-boltzmann", {"c": 0.0}, {}),
        ("quasilinear-diffusion", {"k": "1 + 0*u", "c": 0.5}, {"c": 0.5}),
        ("reaction-diffusion", {"r": "0*u", "c": 0.5}, {"c": 0.5}),
    ],
)
@pytest.mark.parametrize("kind", ["a number", "per node", "per cell"])
def test_beside_outlines_that_cut_cells_what_is_linear_is_that_of_linear_equations(name, fields, linear, kind):  # fmt: skip
    shapes = {"a number": (), "per node": (97, 97), "per cell": (96, 96)}
    a = np.random.default_rng(0).uniform(0.5, 2.0, shapes[kind])
    data = {"f": "sin(3*x)", "a": a if a.ndim else float(a)}
    one = m.solve(m.Problem(HOLES, "diffusion", data | linear, BESIDE_HOLES), settings=TIGHT)
    other = m.solve(m.Problem(HOLES, name, data | fields, BESIDE_HOLES), settings=TIGHT)
    np.testing.assert_allclose(other.field, one.field, rtol=0, atol=1e-8)


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_an_exchange_on_an_outline_counts_the_permittivity(comm):
    """The same equation in two names: in one what multiplies flows stands outside of the residual."""
    a = np.random.default_rng(0).uniform(0.5, 2.0, (65, 65))
    domain = m.Domain.from_distance("hypot(x - 1.63, y - 1.58) - 1.4", (64, 64), 0.05)
    sides = {"outline": m.Robin(0.8, 0.3)}
    names = {"poisson-boltzmann": {"c": 0.7}, "reaction-diffusion": {"r": "0.7*sinh(u)"}}
    salt, reacting = (
        m.solve(m.Problem(domain, name, {"f": 1.0, "a": a, **more}, sides), "exact", ranks=comm, settings=TIGHT)
        for name, more in names.items()
    )  # fmt: skip
    np.testing.assert_allclose(salt.local, reacting.local, rtol=1e-9)


def test_several_problems_and_those_that_begin_with_another_share_what_is_planned():
    sources = np.random.default_rng(0).standard_normal((2, 97, 97))
    problem = m.Problem(HOLES, "quasilinear-diffusion", {"a": "1.5 + sin(9*x*y)", "f": sources}, BESIDE_HOLES)  # fmt: skip
    together = m.solve(problem, settings=TIGHT)
    for f, field in zip(sources, together.field, strict=True):
        expected = solve_directly(problem.with_fields(f=f))
        np.testing.assert_allclose(field, expected, rtol=0, atol=1e-8)
    one, warmer = (problem.with_fields(f=k * sources[0]) for k in (1.0, 1.05))
    with m.Solver(one, settings=TIGHT) as solver:
        first = solver()
        # Beyond natural outlines it has no values.
        assert solver(start=first).iterations < first.iterations
        begun = solver(warmer, start=first)
    assert begun.iterations <= first.iterations
    np.testing.assert_allclose(begun.field, solve_directly(warmer), rtol=0, atol=1e-8)


BOX, NEGATIVE = m.Domain((8, 8, 8), 0.1), -np.ones((8, 8, 8))
DISK = m.Domain.from_distance(lambda x, y: np.hypot(x - 1, y - 1) - 0.7, (20, 20), 0.1)
SQUARE, NATURAL = m.Domain((64, 64), 1 / 64), m.Neumann(0.0)
REFUSED = {
    "burgers": (BOX, {}, m.Dirichlet(), "burgers is solved in the plane only"),
    "poisson-boltzmann": (BOX, {"c": NEGATIVE}, m.Dirichlet(), "c must be not negative everywhere; 512 of the 512"),
    "poisson-boltzmann of another sign": (BOX, {"a": NEGATIVE}, m.Dirichlet(), "a must be positive everywhere; 512 of the 512"),
    "poisson-boltzmann of a number": (BOX, {"a": -1.0}, m.Dirichlet(), "needs a > 0, got -1"),
    "quasilinear-diffusion": (BOX, {}, NATURAL, "level of the solution is not known"),
    "quasilinear-diffusion in the plane": (SQUARE, {}, NATURAL, "the level of the solution is not known"),
    "quasilinear-diffusion that turns": (ring(64), {"k": "0.5 - u"}, m.Dirichlet("1 + x"), "not positive there"),
    "minimal-surface": (HOLES, {}, m.Dirichlet(), "minimal-surface couples the differences"),
    "p-laplace": (HOLES, {}, m.Dirichlet(), "p-laplace couples the differences"),
    "minimal-surface in a disk": (DISK, {}, m.Dirichlet(), "on rectangles, boxes and masks of voxels; other"),
}  # fmt: skip


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_solved_is_said_in_one_line(case, comm):
    domain, fields, sides, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as told:
        m.solve(m.Problem(domain, case.partition(" ")[0], fields, sides), ranks=comm)
    assert "\n" not in str(told.value)
