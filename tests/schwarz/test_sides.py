"""Natural sides: second order, the residual and the error that are reported, alike on all ranks."""

import numpy as np
import pytest

from mosaicdd import (
    Dirichlet,
    Domain,
    EllipticOperator,
    Equation,
    Neumann,
    Problem,
    Robin,
    Solver,
    SolveSettings,
    Unsupported,
    solve,
)
from mosaicdd.solvers.references import solve_directly

TIGHT = SolveSettings(rtol=1e-11)


def u(x, y):
    """Return the manufactured solution ``exp(x / 2) sin(2 y) + x y``."""
    return np.exp(x / 2) * np.sin(2 * y) + x * y


def gradient(x, y):
    """Return its derivatives along x and y."""
    return np.exp(x / 2) * np.sin(2 * y) / 2 + y, 2 * np.exp(x / 2) * np.cos(2 * y) + x


def manufactured(cells, spacing, *, varying=True, c=2.0, floating=False):
    """Return the problem that `u` solves, with a condition of each kind, or with fluxes all round."""

    def a(x, y):
        return 1 + x + y * y if varying else np.ones_like(x + y)

    def f(x, y):
        ux, uy = gradient(x, y)
        laplacian = np.exp(x / 2) * np.sin(2 * y) * (0.25 - 4)
        slopes = (ux + 2 * y * uy) if varying else 0.0
        return c * u(x, y) - a(x, y) * laplacian - slopes

    def flux(axis, sign):
        return lambda x, y: sign * a(x, y) * gradient(x, y)[axis]

    sides = {
        "left": Neumann(flux(0, -1)),
        "right": Robin(3.0, lambda x, y: flux(0, 1)(x, y) + 3 * u(x, y)),
        "bottom": Neumann(flux(1, -1)),
        "bottom[0.5:0.75]": Dirichlet(u),
        "top": Dirichlet(u),
    }
    if floating:
        sides |= {"right": Neumann(flux(0, 1)), "top": Neumann(flux(1, 1))}
        del sides["bottom[0.5:0.75]"]
    fields = {"a": a if varying else 1.0, "c": c, "f": f}
    return Problem(Domain(cells, spacing), "diffusion", fields, sides)


def truth(solution):
    return u(solution.x, solution.y[:, None])


def orders(errors):
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


def test_fluxes_all_round_are_of_second_order_up_to_the_mean_which_is_zero():
    errors = []
    for n in (16, 32, 64, 128):
        solution = solve(manufactured((n, n), 1 / n, c=0.0, floating=True), settings=TIGHT)
        weights = np.outer(*[np.r_[0.5, np.ones(n - 1), 0.5]] * 2)
        assert abs((solution.field * weights).sum()) < 1e-10 * weights.sum()
        # What the quadrature of a smooth flux leaves over is of second order.
        assert solution.report["imbalance"] < 0.1 / n**2
        difference = solution.field - truth(solution)
        errors.append(np.ptp(difference))
    assert (orders(errors) > 1.9).all(), errors


def test_a_rectangle_of_any_number_of_cells_needs_no_natural_side():
    problem = Problem(Domain((95, 130), 0.1), "laplace", sides=Dirichlet("x*x - y*y"))
    solution = solve(problem, "exact", settings=TIGHT)
    # The 5-point stencil is exact for it.
    x, y = solution.x, solution.y[:, None]
    assert abs(solution.field - (x * x - y * y)).max() < 1e-8 * 170


@pytest.mark.parametrize("contrast", [1.0, 1e6])
def test_natural_sides_cost_no_iterations(contrast):
    rng = np.random.default_rng(0)
    cells = (256, 256)
    a = np.where(rng.random(cells) < 0.1, contrast, 1.0)
    fields = {"a": a, "f": rng.standard_normal((257, 257))}
    sides = {
        "all given": Dirichlet(),
        "two natural": {"left": Neumann(), "right": Neumann()},
        "one given": {name: Neumann() for name in ("left", "right", "top")},
        "given in a corner": {
            "left[0:0.1]": Dirichlet(),
            **{name: Neumann() for name in ("left", "right", "top", "bottom")},
        },
    }
    counts = {}
    for name, given in sides.items():
        solution = solve(Problem(Domain(cells), "diffusion", fields, given))
        assert solution.status == "converged_rtol"
        counts[name] = solution.iterations
    assert max(counts.values()) <= 1.5 * counts["all given"], counts


@pytest.mark.parametrize("rtol", [1e-2, 1e-5])
@pytest.mark.parametrize("floating", [False, True])
def test_the_error_estimate_bounds_the_error(rtol, floating):
    rng = np.random.default_rng(1)
    fields = {"a": np.exp(rng.standard_normal((80, 96))), "f": rng.standard_normal((81, 97))}
    sides = {name: Neumann() for name in ("left", "right", "top", "bottom")}
    if floating:
        fields["f"] -= (fields["f"] * np.outer(*weights((80, 96)))).sum() / (80 * 96)
    else:
        sides["left"] = Robin(1.0, 2.0)
    problem = Problem(Domain((80, 96)), "diffusion", fields, sides)
    solution = solve(problem, settings=SolveSettings(rtol=rtol))
    rms = np.sqrt(((solution.field - solve_directly(problem)) ** 2).mean())
    assert 1 <= solution.error_estimate / rms <= 30


def weights(cells):
    return [np.r_[0.5, np.ones(n - 1), 0.5] for n in cells]


def test_new_values_need_no_new_elements():
    problem = manufactured((64, 64), 1 / 32)
    others = [
        problem.with_fields(f="x*y"),
        problem.with_sides(problem.sides | {"left": Neumann(np.linspace(0.0, 1.0, 65))}),
    ]
    with Solver(problem, settings=TIGHT) as solver:
        solver()
        planned = list(solver._setup.bound.planned.values())
        for other in others:
            assert abs(solver(other).field - solve_directly(other)).max() < 1e-8
        assert list(solver._setup.bound.planned.values()) == planned
        with pytest.raises(ValueError, match="make a new one"):
            solver(problem.with_sides({"left": Neumann()}))


def test_several_problems_differ_in_the_values_of_a_side():
    values = np.random.default_rng(0).standard_normal((3, 65))
    sides = {"left": Neumann(values), "top": Robin(2.0, 1.0)}
    problem = Problem(Domain((64, 48), 0.1), "poisson", {"f": 1.0}, sides)
    solution = solve(problem, settings=SolveSettings(rtol=1e-11, batch=2))
    for number, field in enumerate(solution.field):
        one = problem.with_sides(sides | {"left": Neumann(values[number])})
        assert abs(field - solve_directly(one)).max() < 1e-9


@pytest.mark.ranks(1, 4)
def test_a_window_is_the_part_of_the_field(in_window):
    fields = in_window(manufactured((90, 80), 1 / 64), ((0.3, 1.2), (0.0, 0.5)))
    np.testing.assert_array_equal(*fields)


@pytest.mark.ranks(1, 2, 3)
def test_fluxes_that_cannot_be_are_refused_on_all_ranks(comm):
    sides = {name: Neumann(1.0) for name in ("left", "right", "top", "bottom")}
    problem = Problem(Domain((64, 64), 1.0), "poisson", sides=sides)
    with pytest.raises(ValueError, match=r"100\.0% of the sources and fluxes are left over"):
        solve(problem, ranks=comm)


def test_networks_are_refused():
    problem = Problem((128, 128), "laplace", {}, {"left": Neumann()})
    with pytest.raises(ValueError, match="a side is natural here: take 'exact'"):
        solve(problem, "laplace")


def test_waves_are_refused_by_what_hinders_them_alone():
    waves = EllipticOperator(c=-0.25)
    equation = Equation(name="waves", text="", parameters={}, operator=lambda: waves)
    with pytest.raises(Unsupported) as refused:
        Problem((64, 64), equation, sides={"left": Neumann()})
    assert "a side is natural here, and the equation describes waves, c is -0.25" in str(
        refused.value
    )
    assert "derivative" not in str(refused.value)
    with pytest.raises(Unsupported, match=r"the cells are no multiples of 16, and .* waves"):
        solve(Problem((70, 64), equation))


def test_a_velocity_without_any_value_is_refused():
    sides = {name: Neumann() for name in ("left", "right", "top", "bottom")}
    with pytest.raises(ValueError, match="give a value somewhere, an alpha > 0, or c > 0"):
        solve(Problem((64, 64), "advection-diffusion", {"bx": 1.0}, sides))


@pytest.mark.parametrize("cells", [(2, 2), (2, 31), (3, 14), (15, 16), (17, 5)])
def test_domains_smaller_than_a_subdomain(cells):
    problem = Problem(Domain(cells), "laplace", {}, Dirichlet("x*x - y*y"))
    solution = solve(problem, "exact")
    y, x = solution.y[:, None], solution.x
    np.testing.assert_allclose(solution.field, x * x - y * y, rtol=0, atol=1e-7)


def test_a_domain_without_a_node_to_solve_for():
    with pytest.raises(ValueError, match="take 2 cells or more per axis"):
        solve(Problem(Domain((1, 40)), "laplace"), "exact")
