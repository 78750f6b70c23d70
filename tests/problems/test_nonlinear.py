"""Nonlinear equations: derivatives by automatic differentiation, and the discrete solutions' order."""

import numpy as np
import pytest
import scipy.special
import torch

import mosaicdd as m
from mosaicdd.discretisation.discrete import MediumSystem
from mosaicdd.problems.equations import NONLINEAR, find_equation, use_equation
from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.operators.nonlinear_part import Linearised
from mosaicdd.problems.operators.patch import StencilValues
from mosaicdd.solvers.references import solve_by_multigrid, solve_directly

GRID = m.Domain((9, 12), 0.125).grid()
CROSSED = ("minimal-surface", "p-laplace")  # whose residuals depend on the corners of patches
WHOLE = tuple(slice(0, nodes) for nodes in GRID.nodes)


def operator(name, **fields):
    return NONLINEAR[name].operator(fields)


def random_fields(name, rng):
    one = NONLINEAR[name]
    varying = (key for key in one.parameters if key not in one.numbers)
    return {key: rng.uniform(1, 2, GRID.nodes) for key in varying}


@pytest.mark.parametrize("name", NONLINEAR)
def test_the_derivative_is_that_of_the_residual(name):
    rng = np.random.default_rng(0)
    one = operator(name, **random_fields(name, rng))
    u, change = rng.standard_normal((2, *GRID.nodes))
    change[[0, -1]] = change[:, [0, -1]] = 0.0
    system = MediumSystem(Linearised(one.on(GRID, WHOLE), u), GRID)
    found = system.apply(change)
    step = 1e-6
    higher, lower = (one.on(GRID, WHOLE).residual(u + t * change) for t in (step, -step))
    np.testing.assert_allclose(found, (higher - lower) / (2 * step), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(
        system.matrix @ change[1:-1, 1:-1].ravel(), found.ravel(), atol=1e-12
    )


@pytest.mark.parametrize("name", NONLINEAR)
def test_a_part_has_the_residual_and_the_derivative_of_the_whole(name):
    rng = np.random.default_rng(0)
    u = rng.standard_normal(GRID.nodes)
    one = operator(name, **random_fields(name, rng))
    # The last digit of a hyperbolic sine depends on its place in the array on some processors.
    last = 4 * np.finfo(float).eps if name == "poisson-boltzmann" else 0.0

    def assert_alike(part, whole):
        np.testing.assert_allclose(part, whole, rtol=0, atol=last * abs(whole).max())

    rows, columns = slice(2, 8), slice(1, 9)
    part = one.on(GRID, (rows, columns)).residual(u[rows, columns])
    assert_alike(part, one.on(GRID, WHOLE).residual(u)[2:6, 1:7])
    wide = slice(1, 9), slice(0, 10)
    found = Linearised(one.on(GRID, wide), u[wide]).conductances(GRID, (rows, columns))
    whole = Linearised(one.on(GRID, WHOLE), u).conductances(GRID, WHOLE).part(rows, columns)
    assert (not found.across) == (not whole.across) == (name not in CROSSED)
    for values, expected in zip(found.arrays(), whole.arrays(), strict=True):
        assert_alike(values, expected)


@pytest.mark.parametrize("name", CROSSED)
@pytest.mark.parametrize("varying", [False, True])
def test_residuals_in_arrays_are_those_at_nodes_one_by_one(name, varying):
    rng = np.random.default_rng(2)
    u = StencilValues.of(torch.from_numpy(rng.standard_normal((3, 9, 12))))
    given = {key: rng.uniform(1, 2, (3, 9, 12)) for key in random_fields(name, rng)}
    if not varying:
        given = dict.fromkeys(given, np.array(1.3))
    fields = {key: StencilValues.of(torch.from_numpy(value)) for key, value in given.items()}
    alone = {key: StencilValues(*one.values) for key, one in fields.items()}
    h, one = GRID.spacing, operator(name)
    np.testing.assert_allclose(
        one.at(u, fields, h), one.at(StencilValues(*u.values), alone, h), rtol=1e-12, atol=1e-10
    )


@pytest.mark.parametrize("name", CROSSED)
def test_the_residual_is_the_derivative_of_the_discrete_energy(name):
    # The energy of a cell is the mean over its corners of that of the gradient there.
    u = torch.from_numpy(np.random.default_rng(0).standard_normal(GRID.nodes)).requires_grad_()
    h = GRID.spacing
    along, up = (u[:, 1:] - u[:, :-1]) / h, (u[1:] - u[:-1]) / h
    energy = 0.0
    for p in (along[:-1], along[1:]):
        for q in (up[:, :-1], up[:, 1:]):
            squared = p**2 + q**2
            density = (
                (1 + squared) ** 0.5 if name == "minimal-surface" else (0.25 + squared) ** 2 / 4
            )
            energy = energy + h**2 / 4 * density.sum()
    (found,) = torch.autograd.grad(energy, u)
    one = operator(name, **({} if name == "minimal-surface" else {"p": 4.0, "eps": 0.5}))
    residual = one.on(GRID, WHOLE).residual(u.detach().numpy())
    np.testing.assert_allclose(residual, found[1:-1, 1:-1].numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CROSSED)
def test_the_derivative_of_an_energy_is_positive_definite_at_steep_places_too(name):
    u = 20 * GRID.spacing * np.random.default_rng(0).standard_normal(GRID.nodes)
    system = MediumSystem(Linearised(operator(name).on(GRID, WHOLE), u), GRID)
    assert np.linalg.eigvalsh(system.matrix.toarray()).min() > 0


def test_for_p_of_two_it_is_laplaces():
    u = np.random.default_rng(0).standard_normal(GRID.nodes)
    found = operator("p-laplace", p=2.0).on(GRID, WHOLE).residual(u)
    beside = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    np.testing.assert_allclose(found, 4 * u[1:-1, 1:-1] - beside, atol=1e-12)


def errors(name, solution, cells=(16, 32, 64), **fields):
    """Return the largest errors of the discrete solutions on finer and finer grids of one domain."""
    found = []
    for n in cells:
        domain = m.Domain((n, n), 1.0 / n)
        problem = m.Problem(domain, name, fields, m.Dirichlet(solution))
        nodes = np.arange(n + 1) / n
        found.append(abs(solve_directly(problem) - solution(nodes, nodes[:, None])).max())
    return np.array(found)


def smooth(x, y):
    return 1.5 * np.sin(2 * x + 1) * np.cos(y)  # whose Laplacian is -5 times itself


def gradient_squared(x, y):
    return (3 * np.cos(2 * x + 1) * np.cos(y)) ** 2 + (1.5 * np.sin(2 * x + 1) * np.sin(y)) ** 2


def source_of_k(x, y):  # of k = 1 + u^2
    u = smooth(x, y)
    return -2 * u * gradient_squared(x, y) + (1 + u**2) * 5 * u


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (
            "poisson-boltzmann",
            {"c": 3.0, "f": lambda x, y: 5 * smooth(x, y) + 3 * np.sinh(smooth(x, y))},
        ),
        ("quasilinear-diffusion", {"k": "1 + u**2", "f": source_of_k}),
        (
            "allen-cahn",
            {"eps": 1.0, "c": 5.0, "f": lambda x, y: 9 * smooth(x, y) + smooth(x, y) ** 3},
        ),
    ],
)
def test_second_order(name, fields):
    found = errors(name, smooth, **fields)
    assert (np.log2(found[:-1] / found[1:]) > 1.9).all()


def scherk(x, y):
    return np.log(np.cos(y - 0.3) / np.cos(x - 0.6)) + 0.0 * x


def catenoid(x, y):
    return np.arccosh(np.hypot(x + 1.1, y + 0.2))


def p_harmonic(p):
    return lambda x, y: np.hypot(x + 0.5, y + 0.4) ** ((p - 2) / (p - 1))


def between_plates(x, y):
    # With u = top in the middle, exp((top - u) / 2) is Jacobi's cd.
    top, c = 0.5, 10.0
    _, cn, dn, _ = scipy.special.ellipj(
        np.sqrt(c) * np.exp(top / 2) / 2 * (x - 0.5), np.exp(-2 * top)
    )
    return top - 2 * np.log(cn / dn) + 0.0 * y


def of_kirchhoff(harmonic):
    # Kirchhoff's transform u + u^3 / 3 is harmonic where k = 1 + u^2.
    return 2 * np.sinh(np.arcsinh(1.5 * harmonic) / 3)


def waves_of_kirchhoff(x, y):
    return of_kirchhoff(3 * np.exp(2 * x) * np.cos(2 * y))


@pytest.mark.parametrize(
    ("name", "solution", "fields"),
    [
        ("minimal-surface", scherk, {}),
        ("minimal-surface", catenoid, {}),
        ("p-laplace", p_harmonic(1.5), {"p": 1.5, "eps": 1e-6}),
        ("p-laplace", p_harmonic(4.0), {"p": 4.0, "eps": 1e-6}),
        ("poisson-boltzmann", between_plates, {"c": 10.0}),
        ("quasilinear-diffusion", waves_of_kirchhoff, {"k": "1 + u**2"}),
    ],
)
def test_formulas_are_met_with_second_order(name, solution, fields):
    found = errors(name, solution, **fields)
    assert (np.log2(found[:-1] / found[1:]) > 1.85).all()


@pytest.mark.parametrize(
    ("k", "solution"),
    [
        ("u", lambda x, y: np.sqrt(4 + x - y)),
        ("1 + u**2", lambda x, y: of_kirchhoff(3 * (x**2 - y**2) + 4 * x * y + 1)),
        (
            "1 + u**2",
            lambda x, y: of_kirchhoff((50 + 50**3 / 3) * x),
        ),  # from 0 to 50, 7 in the first cell
    ],
    ids=["linear", "quadratic", "steep"],
)
def test_kirchhoffs_transform_of_a_polynomial_is_reproduced_to_rounding(k, solution):
    # The discrete flux is the difference of the transform, which is a polynomial that 5 points know.
    (error,) = errors("quasilinear-diffusion", solution, cells=(16,), k=k)
    assert error < 1e-9


def test_multigrid_takes_newtons_steps_too():
    problem = m.Problem(
        (32, 48), "poisson-boltzmann", {"c": 20.0, "f": 5.0}, m.Dirichlet("2*sin(x)")
    )
    np.testing.assert_allclose(solve_by_multigrid(problem), solve_directly(problem), atol=1e-10)


def test_an_expression_in_u_can_be_differentiated():
    u = torch.linspace(0.5, 2, 5, dtype=torch.float64, requires_grad=True)
    value = Expression("where(u > 1, exp(-u), u**2) + pi", variables=("u", "pi")).of_tensors(u=u)
    (found,) = torch.autograd.grad(value.sum(), u)
    inside = u.detach().numpy()
    np.testing.assert_allclose(found.numpy(), np.where(inside > 1, -np.exp(-inside), 2 * inside))


@pytest.mark.parametrize(("f", "edge"), [(1.0, 0.5), (0.0, 0.0)])  # nothing given: bratu's problem
def test_an_equation_of_the_users_own(f, edge):
    def residual(u, h, c):
        return -(sum(u.neighbours) - 4 * u.centre) / h**2 + c.centre * torch.exp(u.centre)

    own = m.NonlinearEquation("own-exponential", "-lap u + c exp(u) = f", residual, {"c": 2.0})
    problem = m.Problem((64, 64), own, {"f": f}, m.Dirichlet(edge))
    u = solve_directly(problem)
    np.testing.assert_allclose(m.solve(problem).field, u, atol=1e-6)
    system = own.operator({"c": 2.0})
    whole = tuple(slice(0, nodes) for nodes in u.shape)
    grid = problem.domain.grid()
    found = system.on(grid, whole).residual(u) / grid.spacing**2
    np.testing.assert_allclose(found, f, atol=1e-6)


def test_a_users_own_residual_of_nine_nodes():
    def residual(u, h):  # Mehrstellenverfahren, and a pointwise nonlinearity
        across = u.up_left + u.up_right + u.down_left + u.down_right
        laplacian = (4 * sum(u.neighbours) + across - 20 * u.centre) / (6 * h**2)
        return u.centre**3 - laplacian

    own = m.NonlinearEquation("own-cube", "-lap u + u^3 = f", residual)
    problem = m.Problem((48, 64), own, {"f": 3.0}, m.Dirichlet("sin(2*x)"))
    u = solve_directly(problem)
    np.testing.assert_allclose(
        m.solve(problem, settings=m.SolveSettings(rtol=1e-11)).field, u, atol=1e-9
    )


def test_a_residual_of_nine_nodes_that_no_energy_makes_is_refused():
    def residual(u, h):
        return -(sum(u.neighbours) + u.up_right - 5 * u.centre) / h**2

    own = m.NonlinearEquation("own-skew", "", residual, self_adjoint=False)
    with pytest.raises(ValueError, match="corners of its patches must be self-adjoint"):
        solve_directly(m.Problem((8, 8), own, {"f": 1.0}))


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("poisson-boltzmann", {"c": -1.0}, "needs c >= 0, got -1"),
        ("quasilinear-diffusion", {"a": 0.0}, "needs a > 0, got 0"),
        ("quasilinear-diffusion", {"k": "1 + v"}, "field k: .* v is not allowed"),
        ("p-laplace", {"p": 0.5}, "needs p >= 1, got 0.5"),
        ("p-laplace", {"p": float("nan")}, "field p must be finite, got nan"),
        ("p-laplace", {"p": "2 + x"}, "field p of p-laplace must be one number"),
        ("p-laplace", {"eps": 0.0}, "needs eps > 0, got 0"),
        ("poisson-boltzmann", {"d": 1.0}, "has no field 'd'; it has: c, a, f"),
        ("quasilinear-diffusion", {"a": np.ones((3, 4))}, r"shape \(3, 4\), the grid has \(9, 9\)"),
        ("p-laplace", {"a": np.ones((8, 7))}, r"shape \(8, 7\), the grid has \(9, 9\)"),
    ],
)
def test_unsound_fields(name, fields, message):
    with pytest.raises(ValueError, match=message):
        m.Problem((8, 8), name, fields)


def test_a_field_that_is_negative_somewhere():
    c = np.ones((9, 9))
    c[3, 4] = -1.0
    with pytest.raises(
        ValueError, match=r"field c must be not negative everywhere; .* at node \(3, 4\)"
    ):
        solve_directly(m.Problem((8, 8), "poisson-boltzmann", {"c": c}))


def test_a_conductivity_that_falls_below_zero_is_told():
    problem = m.Problem((16, 16), "quasilinear-diffusion", {"k": "u"}, m.Dirichlet("x - 0.2"))
    with pytest.raises(ValueError, match="depends on the solution is not positive"):
        solve_directly(problem)


def test_networks_are_trained_for_linear_equations():
    with pytest.raises(ValueError, match="poisson-boltzmann is not linear"):
        find_equation("poisson-boltzmann")
    with pytest.raises(ValueError, match="name of its own"):
        use_equation(m.NonlinearEquation("poisson-boltzmann", "", lambda u, h: u.centre))


@pytest.mark.parametrize(
    ("k", "message"),
    [
        (lambda u: 1 + np.exp(u.numpy()), "made of torch's functions as torch.exp: RuntimeError: "),
        (lambda u, x: u, "TypeError: "),
        (lambda u: None, r"and give as many values, got NoneType for \(3,\)"),
        (lambda u: u[:2], r"got \(2,\) for \(3,\)"),
    ],
)
def test_a_function_of_the_solution_that_is_not_of_tensors_is_refused_at_once(k, message):
    with pytest.raises(
        TypeError, match=f"the function for the field k must be of tensors.*{message}"
    ):
        m.Problem((64, 64), "quasilinear-diffusion", {"k": k})


def test_a_function_of_the_solution_may_give_a_number():
    assert m.Problem((64, 64), "quasilinear-diffusion", {"k": lambda u: 2.0}).functions
