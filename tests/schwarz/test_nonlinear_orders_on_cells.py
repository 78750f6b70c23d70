"""Nonlinear equations on cells that are no squares, nor cubes, are solved with errors of second order; what knows squares alone refuses."""

import numpy as np
import pytest
import sympy
import torch

import mosaicdd as m
from mosaicdd import NonlinearEquation
from mosaicdd.problems.equations import NONLINEAR

X, Y, Z = PLACES = sympy.symbols("x y z")


def manufactured(name, axes):
    """Return fields, the solution and the flux along each axis, as sympy has them."""
    places = PLACES[:axes]
    u = sympy.sin(X + 2 * Y) * (sympy.exp(Z) if axes == 3 else 1) / 2
    a = 1 + X * places[-1] / 2
    slopes = [u.diff(place) for place in places]
    squared = sum(slope**2 for slope in slopes)
    fields, k, reaction = {"a": a}, a, 0
    if name == "poisson-boltzmann":
        fields, reaction = {"a": a, "c": 1 + Y}, (1 + Y) * sympy.sinh(u)
    elif name == "quasilinear-diffusion":
        k = a * (1 + u**2)
    elif name == "reaction-diffusion":
        reaction = u**3
    elif name == "allen-cahn":
        fields, reaction = {"eps": sympy.sqrt(a), "c": 2.0}, u**3 + u
    elif name == "burgers":
        fields, reaction = {"nu": a, "c": 2.0}, 2 * u + u * sum(slopes)
    elif name == "minimal-surface":
        fields, k = {}, 1 / sympy.sqrt(1 + squared)
    else:
        fields, k = {"a": a, "eps": 0.3, "p": 3.5}, a * (0.09 + squared) ** sympy.Rational(3, 4)
    fluxes = [k * slope for slope in slopes]
    f = reaction - sum(flux.diff(place) for flux, place in zip(fluxes, places, strict=True))
    return fields | {"f": f}, u, fluxes


def spelled(values):
    return values if isinstance(values, float) else str(values)


def order(errors, cells):
    """Return the order of errors at so many cells along an axis, of the straight line through logarithms."""
    return -np.polyfit(np.log(cells), np.log(errors), 1)[0]


def errors_of(solution, exact):
    """Return the largest error and the root mean square."""
    along = [solution.z] if solution.field.ndim == 3 else []
    places = np.meshgrid(*along, solution.y, solution.x, indexing="ij")
    error = solution.field - exact(*places[::-1])
    return np.nanmax(abs(error)), np.sqrt(np.nanmean(error**2))


CELLS = {2: (20, 8), 3: (2, 5, 3)}
FOUR = {2: (1, 2, 4, 6), 3: (2, 3, 4, 6)}
CASES = [
    pytest.param(name, axes, FOUR[axes], marks=pytest.mark.nightly)
    for name in NONLINEAR
    for axes in NONLINEAR[name].axes
]


@pytest.mark.parametrize(("name", "axes", "times"), [("p-laplace", 2, (1, 2)), *CASES])
def test_errors_are_of_second_order_with_values_fluxes_and_exchanges(name, axes, times):
    fields, u, fluxes = manufactured(name, axes)
    sides = {
        "left": m.Dirichlet(spelled(u)),
        "right": m.Neumann(spelled(fluxes[0])),
        "bottom": m.Dirichlet(spelled(u)),
        "top": m.Robin(2.0, spelled(fluxes[1] + 2 * u)),
    }
    if axes == 3:
        sides |= {"back": m.Neumann(spelled(-fluxes[2])), "front": m.Dirichlet(spelled(u))}
    exact, errors = sympy.lambdify(PLACES[:axes], u, "numpy"), []
    for k in times:
        cells = tuple(k * n for n in CELLS[axes])
        domain = m.Domain(cells, tuple(1 / n for n in cells))
        every = {key: spelled(value) for key, value in fields.items()}
        solution = m.solve(m.Problem(domain, name, every, sides), "exact", rtol=1e-9)
        assert solution.status == "converged_rtol"
        errors.append(errors_of(solution, exact))
    # Along an edge of two natural sides those in the gradient have larger errors, in cubes as here.
    largest = name not in ("minimal-surface", "p-laplace") or axes == 2
    assert order([both[not largest] for both in errors], times) > 1.85, errors


@pytest.mark.nightly
@pytest.mark.parametrize("condition", ["values", "exchange"])
@pytest.mark.parametrize("name", ["reaction-diffusion", "quasilinear-diffusion", "allen-cahn"])
@pytest.mark.parametrize("cells", [(40, 20), (16, 48)])
def test_outlines_are_of_second_order(name, condition, cells):
    fields, u, fluxes = manufactured(name, 2)
    away = sympy.sqrt((X - 1) ** 2 + (Y - 1) ** 2)
    through = (fluxes[0] * (X - 1) + fluxes[1] * (Y - 1)) / away
    given = m.Dirichlet(spelled(u))
    if condition == "exchange":
        given = m.Robin(1.5, spelled(through + 1.5 * u))
    exact, errors, times = sympy.lambdify((X, Y), u, "numpy"), [], (1, 2, 3, 4)
    for k in times:
        spacing = tuple(2 / (k * n) for n in cells)
        domain = m.Domain.from_distance(spelled(away - 0.83), tuple(k * n for n in cells), spacing)
        every = {key: spelled(value) for key, value in fields.items()}
        solution = m.solve(m.Problem(domain, name, every, {"outline": given}), rtol=1e-9)
        assert solution.status == "converged_rtol"
        errors.append(errors_of(solution, exact)[0])
    assert order(errors, times) > 1.6, errors


def own(residual, **fields):
    equation = NonlinearEquation("own", "F(u) = f", residual, {"c": 1.0})
    return m.Problem(m.Domain((12, 16), (25.0, 10.0)), equation, fields)


def test_an_equation_of_ones_own_needs_to_know_nothing_of_cells_where_neighbours_count_one_by_one():
    def residual(u, h, c):
        laplacian = sum(u.neighbours) - 4 * u.centre
        return c.centre * torch.sinh(u.centre) - laplacian / h**2

    problem = own(residual, c=1e-3, f="sin(x/50)")
    shipped = m.Problem(problem.domain, "poisson-boltzmann", problem.fields)
    field = m.solve(shipped, rtol=1e-12).field
    np.testing.assert_allclose(m.solve(problem, rtol=1e-12).field, field, rtol=0, atol=1e-10)


def _of_nine(u, h, c):
    beside, corners = sum(u.neighbours), sum(u.corners)
    return c.centre * u.centre**3 + (20 * u.centre - 4 * beside - corners) / (6 * h**2)


def _of_a_slope_of_the_field(u, h, c):
    laplacian = sum(u.neighbours) - 4 * u.centre
    return u.centre * (c.right - c.left) / (2 * h) - laplacian / h**2


@pytest.mark.parametrize("residual", [_of_nine, _of_a_slope_of_the_field])
def test_an_equation_that_couples_axes_by_one_spacing_is_refused(residual):
    with pytest.raises(m.Unsupported, match=r"by one spacing, these cells are 10x25: give cells"):
        own(residual)
