"""Nonlinear equations are solved with errors of second order: in the plane and in boxes, beside periods and outlines."""

import numpy as np
import pytest
import sympy

import mosaicdd as m
from mosaicdd.problems.equations import NONLINEAR

X, Y, Z = PLACES = sympy.symbols("x y z")


def manufactured(name, axes, around):
    """Return fields, the solution and the flux along each axis; ``around``: of period 1 along x."""
    places = PLACES[:axes]
    u = sympy.sin(X + 2 * Y) * (sympy.exp(Z) if axes == 3 else 1) / 2
    a = 1 + X * places[-1] / 2
    if around:
        u, a = sympy.sin(2 * sympy.pi * X + 1) * sympy.exp(Y / 2) / 2, 1 + sympy.cos(2 * sympy.pi * X) * Y / 2  # fmt: skip
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


def errors_of(domain, name, fields, sides, exact):
    """Return the largest error and the root mean square of a solution."""
    every = {key: spelled(value) for key, value in fields.items()}
    solution = m.solve(m.Problem(domain, name, every, sides), "exact", rtol=1e-9)
    assert solution.status == "converged_rtol"
    along = [solution.z] if solution.field.ndim == 3 else []
    places = np.meshgrid(*along, solution.y, solution.x, indexing="ij")
    error = solution.field - exact(*places[::-1])
    return np.nanmax(abs(error)), np.sqrt(np.nanmean(error**2))


def order(errors, times):
    """Return the order of errors of grids so many times as fine, of the line through their logarithms."""
    return -np.polyfit(np.log(times), np.log(errors), 1)[0]


CELLS, FOUR = {2: (20, 8), 3: (2, 5, 3)}, {2: (1, 2, 4, 6), 3: (2, 3, 4, 6)}
DAILY = [
    ("p-laplace", 2, (1, 2), False), ("burgers", 2, (1, 2), False), ("reaction-diffusion", 2, (2, 4), True),
    ("quasilinear-diffusion", 2, (2, 4), True), ("poisson-boltzmann", 3, (2, 4), False), ("allen-cahn", 3, (2, 4), False),
    ("minimal-surface", 3, (2, 3), False),
]  # fmt: skip
NIGHTLY = [
    pytest.param(name, axes, (2, 4, 6) if around else FOUR[axes], around, marks=pytest.mark.nightly)
    for name in NONLINEAR
    for axes in NONLINEAR[name].axes
    for around in (False, True)
    if not (around and axes == 3 and name in ("minimal-surface", "p-laplace"))  # too steep for them
]


@pytest.mark.parametrize(("name", "axes", "times", "around"), [*DAILY, *NIGHTLY])
def test_values_fluxes_exchanges_and_periods_are_of_second_order(name, axes, times, around):
    fields, u, fluxes = manufactured(name, axes, around)
    sides = {
        "left": m.Dirichlet(spelled(u)),
        "right": m.Neumann(spelled(fluxes[0])),
        "bottom": m.Dirichlet(spelled(u)),
        "top": m.Robin(2.0, spelled(fluxes[1] + 2 * u)),
    }
    if around:
        sides |= dict.fromkeys(("left", "right"), m.Periodic())
    if axes == 3:
        sides |= {"back": m.Neumann(spelled(-fluxes[2])), "front": m.Dirichlet(spelled(u))}
    exact, errors = sympy.lambdify(PLACES[:axes], u, "numpy"), []
    for k in times:
        cells = tuple(k * n for n in CELLS[axes])
        domain = m.Domain(cells, tuple(1 / n for n in cells))
        errors.append(errors_of(domain, name, fields, sides, exact))
    # Along an edge of two natural sides those in the gradient have larger errors, in cubes as here.
    largest = name not in ("minimal-surface", "p-laplace") or axes == 2
    least = 1.85 if len(times) > 2 else 1.7
    assert order([both[not largest] for both in errors], times) > least, errors


OUTLINES = [
    pytest.param(name, condition, cells, marks=() if (name[0], condition, cells[0]) == ("q", "exchange", 40) else pytest.mark.nightly)
    for name in ("reaction-diffusion", "quasilinear-diffusion", "allen-cahn")
    for condition in ("values", "exchange")
    for cells in ((40, 20), (16, 48))
]  # fmt: skip


@pytest.mark.parametrize(("name", "condition", "cells"), OUTLINES)
def test_outlines_are_of_second_order(name, condition, cells):
    fields, u, fluxes = manufactured(name, 2, False)
    away = sympy.sqrt((X - 1) ** 2 + (Y - 1) ** 2)
    through = (fluxes[0] * (X - 1) + fluxes[1] * (Y - 1)) / away
    given = m.Dirichlet(spelled(u))
    if condition == "exchange":
        given = m.Robin(1.5, spelled(through + 1.5 * u))
    exact, errors, times = sympy.lambdify((X, Y), u, "numpy"), [], (1, 2, 3, 4)
    for k in times:
        spacing = tuple(2 / (k * n) for n in cells)
        domain = m.Domain.from_distance(spelled(away - 0.83), tuple(k * n for n in cells), spacing)
        errors.append(errors_of(domain, name, fields, {"outline": given}, exact)[0])
    assert order(errors, times) > 1.6, errors
