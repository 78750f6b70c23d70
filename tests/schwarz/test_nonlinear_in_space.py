"""Nonlinear equations in boxes: formulas, an assembly of its own, Newton's method by factorisations, and ranks."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from medium_by_cells import equations

import mosaicdd as m
from mosaicdd.schwarz.local_solvers.exact import Exact
from mosaicdd.solvers.references import solve_directly

TIGHT = m.SolveSettings(rtol=1e-11)
CELLS, H = (10, 13, 9), 0.1
NODES = tuple(n + 1 for n in CELLS)
MIXED = {
    "left": m.Dirichlet("x + y*z"), "right": m.Neumann("1 + z"), "bottom": m.Robin(2.0, 1.0),
    "top": m.Dirichlet(0.5), "back": m.Neumann(0.0), "front": m.Robin(0.3, "x"),
}  # fmt: skip
PERIODIC = {"left": m.Periodic(), "right": m.Periodic(), "bottom": m.Dirichlet("z")}


def positive(shape, seed=0):
    return np.random.default_rng(seed).uniform(0.5, 4.0, shape)


def bored():
    mask = np.ones(CELLS, bool)
    mask[3:7, 4:8, 2:6] = mask[:2, :, 7:] = False
    return m.Domain.from_mask(mask, H)


U = "sin(x + 2*y)*exp(z)"
GRADIENT = "cos(x + 2*y)*exp(z)", "2*cos(x + 2*y)*exp(z)", U
A, ALONG = "(1 + x*z/2)", ("z/2", "0", "x/2")
INWARD = " - ".join(f"({a})*({u})" for a, u in zip(ALONG, GRADIENT, strict=True))
DIFFUSION = f"4*{A}*({U}) - {INWARD}"  # -div(A grad U)
SQUARES = " + ".join(f"({u})**2" for u in GRADIENT)
FORMULAS = {
    "poisson-boltzmann": ({"a": A, "c": "1 + y"}, f"{DIFFUSION} + (1 + y)*sinh({U})", A),
    "quasilinear-diffusion": (
        {"a": A, "k": "1 + u**2"},
        f"(1 + ({U})**2)*({DIFFUSION}) - 2*({U})*{A}*({SQUARES})",
        f"{A}*(1 + ({U})**2)",
    ),
    "reaction-diffusion": ({"a": A, "r": "u**3 - u"}, f"{DIFFUSION} + ({U})**3 - ({U})", A),
    "allen-cahn": ({"eps": f"sqrt{A}", "c": 2.0}, f"{DIFFUSION} + ({U})**3 + ({U})", A),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_error_is_of_second_order_with_values_fluxes_and_exchanges(name):
    fields, f, flux = FORMULAS[name]
    ux, uy, uz = GRADIENT
    sides = {
        "left": m.Dirichlet(U), "right": m.Neumann(f"{flux}*({ux})"), "bottom": m.Dirichlet(U),
        "top": m.Robin(2.0, f"{flux}*({uy}) + 2*({U})"), "back": m.Neumann(f"-{flux}*({uz})"),
        "front": m.Dirichlet(U),
    }  # fmt: skip
    errors = []
    for n in (6, 12):
        domain = m.Domain((n, n, 2 * n // 3), 1 / n)
        solution = m.solve(m.Problem(domain, name, fields | {"f": f}, sides), rtol=1e-8)
        assert solution.status == "converged_rtol"
        z, y, x = np.meshgrid(solution.z, solution.y, solution.x, indexing="ij")
        errors.append(abs(solution.field - np.sin(x + 2 * y) * np.exp(z)).max())
    assert np.log2(errors[0] / errors[1]) > 1.8, errors


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_a_salt_solution_in_a_medium_of_voxels_is_that_of_a_newton_method_of_its_own(comm):
    a, c, f = positive(CELLS), 30 * positive(NODES, 1), 3 * positive(NODES, 2)
    matrix = equations(a, (H, H, H))[0] / H  # of which H squared is left
    inside = np.zeros(NODES, bool)
    inside[1:-1, 1:-1, 1:-1] = True
    z, y, x = np.indices(NODES) * H
    u, free = np.where(inside, 0.0, 2 * x - y * z).ravel(), np.flatnonzero(inside)
    for _ in range(20):
        residual = (matrix @ u + H**2 * (c.ravel() * np.sinh(u) - f.ravel()))[free]
        slope = scipy.sparse.diags_array(H**2 * c.ravel()[free] * np.cosh(u[free]))
        u[free] -= scipy.sparse.linalg.spsolve((matrix[free][:, free] + slope).tocsc(), residual)
    problem = m.Problem(
        m.Domain(CELLS, H), "poisson-boltzmann", {"a": a, "c": c, "f": f}, m.Dirichlet("2*x - y*z")
    )
    solution = m.solve(problem, Exact(16), ranks=comm, settings=TIGHT)
    assert solution.status == "converged_rtol"
    np.testing.assert_allclose(solution.gather(), u.reshape(NODES), rtol=0, atol=1e-11)


KINDS = {
    "values": ("poisson-boltzmann", {"a": positive(CELLS), "c": positive(NODES), "f": 5.0}, m.Dirichlet("2*x - z"), None),
    "sides": ("quasilinear-diffusion", {"a": positive(CELLS), "c": positive(NODES), "k": "exp(u)"}, MIXED, None),
    "periods": ("reaction-diffusion", {"a": positive(NODES), "r": "u**3 - u", "f": "x*0 + y"}, PERIODIC, None),
    "voxels": ("allen-cahn", {"eps": positive(NODES), "f": "x"}, {"outline": m.Neumann(0.7), "outline[x > 0.5]": m.Robin(1.0, 2.0), "left": m.Dirichlet(0.2)}, bored()),
    "voxels of two kinds": ("quasilinear-diffusion", {"a": positive(CELLS), "f": 3.0}, {"outline": m.Dirichlet(1.0)}, bored()),
}  # fmt: skip


def of_kind(kind):
    name, fields, sides, domain = KINDS[kind]
    return m.Problem(domain or m.Domain(CELLS, H), name, fields, sides)


@pytest.mark.parametrize("kind", KINDS)
def test_fields_are_those_of_newtons_method_with_a_direct_solver(kind):
    problem = of_kind(kind)
    solution, expected = m.solve(problem, settings=TIGHT), solve_directly(problem)
    assert solution.status == "converged_rtol"
    assert solution.report["discrete_residual"] <= TIGHT.rtol
    np.testing.assert_allclose(solution.field, expected, rtol=0, atol=1e-10 * np.nanmax(expected))
    rough = m.solve(problem, rtol=1e-2)
    error = np.sqrt(np.nanmean((rough.field - expected) ** 2))
    assert error <= rough.error_estimate <= 100 * error + 1e-12


@pytest.mark.ranks(2, 3, 4, 6, 8)
@pytest.mark.parametrize("kind", ["sides", "voxels"])
def test_any_number_of_ranks_gives_the_same_field(kind, comm, alone_and_together):
    alone, together = alone_and_together(m.solve, of_kind(kind), Exact(16), settings=TIGHT)
    assert together.iterations == alone.iterations
    np.testing.assert_allclose(together.gather(), alone.field, rtol=0, atol=1e-12 * 5)


@pytest.mark.parametrize("name", ["poisson-boltzmann", "quasilinear-diffusion"])
def test_what_does_not_depend_on_z_is_the_field_of_the_plane(name):
    sides = {"left": m.Dirichlet("3*y"), "right": m.Robin(2.0, "y"), "bottom": m.Neumann(1.0)}
    fields = {"c": 5.0, "f": "10*x"}
    plane = m.solve(m.Problem(m.Domain((9, 12), H), name, fields, sides), settings=TIGHT).field
    sides |= {"back": m.Neumann(0.0), "front": m.Neumann(0.0)}
    box = m.solve(m.Problem(m.Domain((8, 9, 12), H), name, fields, sides), settings=TIGHT).field
    np.testing.assert_allclose(box, np.broadcast_to(plane, box.shape), rtol=0, atol=1e-9)


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
    within = lambda places: np.mean(
        [
            np.linalg.norm(places + np.array([i, j, k])[:, None, None, None] / n, axis=0) < radius
            for i in steps
            for j in steps
            for k in steps
        ],
        axis=0,
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
    assert solved.converged
    assert vacuum.converged
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


def test_a_front_in_time_is_that_of_the_plane():
    fields = {"a": 0.02, "r": "u**3 - u"}
    options = {"dt": 0.2, "steps": 4, "settings": TIGHT}
    sides = m.Neumann(0.0)
    start = "0.5*cos(pi*x)*cos(2*pi*y)"
    plane = m.march(
        m.Problem(m.Domain((9, 12), H), "reaction-diffusion", fields, sides), start, **options
    )
    box = m.march(
        m.Problem(m.Domain((8, 9, 12), H), "reaction-diffusion", fields, sides), start, **options
    )
    assert box.status == plane.status == "converged_rtol"
    expected = np.broadcast_to(plane.field, box.field.shape)
    np.testing.assert_allclose(box.field, expected, rtol=0, atol=1e-8)


BOX = m.Domain((8, 8, 8), H)
OWN = m.NonlinearEquation(
    "bratu-of-the-plane", "-lap u - exp(u) = f",
    lambda u, h: -(sum(u.neighbours) - 4 * u.centre) / h**2 - u.centre.exp(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: m.Problem(BOX, "burgers"), "burgers is solved in the plane only"),
        (lambda: m.Problem(BOX, OWN), r"bratu-of-the-plane is solved in the plane only.*axes=\(2, 3\)"),
        (lambda: m.solve(m.Problem(BOX, "poisson-boltzmann", {"c": -np.ones((8, 8, 8))})), "c must be not negative everywhere; 512 of the 512"),
        (lambda: m.solve(m.Problem(BOX, "poisson-boltzmann", {"a": -np.ones((8, 8, 8))})), "a must be positive everywhere; 512 of the 512"),
        (lambda: m.Problem(BOX, "poisson-boltzmann", {"a": -1.0}), "needs a > 0, got -1"),
        (lambda: m.solve(m.Problem(BOX, "quasilinear-diffusion", {}, m.Neumann(0.0))), "level of the solution is not known"),
    ],
)  # fmt: skip
def test_what_is_not_solved_is_said_in_one_line(wrong, says):
    with pytest.raises(ValueError, match=says) as told:
        wrong()
    assert "\n" not in str(told.value)


def test_an_equation_of_the_users_own_says_that_it_knows_boxes():
    bratu = m.NonlinearEquation(
        "bratu-of-boxes", "-lap u - c exp(u) = f",
        lambda u, h, c: -sum(v - u.centre for v in u.neighbours) / h**2 - c.centre * u.centre.exp(),
        parameters={"c": 0.5}, axes=(2, 3),
    )  # fmt: skip
    problem = m.Problem(BOX, bratu)
    solution = m.solve(problem, settings=TIGHT)
    assert solution.status == "converged_rtol"
    np.testing.assert_allclose(solution.field, solve_directly(problem), atol=1e-10)
    assert solution.field.max() > 0.01


@pytest.mark.parametrize("shape", [(24, 40), (25, 41)])
def test_a_permittivity_in_the_plane_multiplies_flows_per_cell_and_per_node(shape):
    a, c = positive(shape), 2.0
    sides = {"left": m.Dirichlet(1.0), "top": m.Robin(2.0, 0.5)}
    domain = m.Domain((24, 40), H)
    salt = m.solve(
        m.Problem(domain, "poisson-boltzmann", {"a": a, "c": c, "f": 1e-3}, m.Dirichlet(1e-3)),
        settings=TIGHT,
    ).field
    linear = m.solve(
        m.Problem(domain, "diffusion", {"a": a, "c": c, "f": 1e-3}, m.Dirichlet(1e-3)), rtol=1e-11
    ).field
    np.testing.assert_allclose(salt, linear, rtol=1e-6)
    problem = m.Problem(domain, "poisson-boltzmann", {"a": a, "c": c, "f": 5.0}, sides)
    field = m.solve(problem, settings=TIGHT).field
    np.testing.assert_allclose(field, solve_directly(problem), rtol=0, atol=1e-9)
