"""What flows by gradients has its derivative from a formula: that of automatic differentiation, to rounding."""

import numpy as np
import pytest
import torch

import mosaicdd as m
from mosaicdd.problems.operators import nonlinear_part
from mosaicdd.problems.operators.gradient_flux import outflow
from mosaicdd.problems.operators.patch import StencilValues

CELLS = {2: (9, 7), 3: (5, 4, 6)}


def steep(squared):
    return (0.1 + squared) ** 0.75


def flow(u, h, a, c):
    return outflow(u, h, steep, a)


def constant(u, h, a, c):
    return outflow(u, h, torch.ones_like, a)


def mixed(u, h, a, c):
    # The derivative of the second factor is in rows only: that of no energy.
    return outflow(u, h, steep, a) * (1 + c.centre) + outflow(u, h, steep) + torch.sinh(u.centre)


def apart(residual):
    """Return a residual that is not told the array its patches are cut from."""

    def of_values(u, h, a, c):
        return residual(StencilValues(*u.values, aspect=u.aspect), h, a, c)

    return of_values


def part(residual, axes, spacing):
    fields = {"a": "1 + x*x + y", "c": "1 + sin(x)"}
    equation = m.NonlinearEquation(
        "own", "own", residual, parameters={"a": 1.0, "c": 1.0}, axes=(2, 3)
    )
    domain = m.Domain(CELLS[axes], spacing[:axes] if isinstance(spacing, tuple) else spacing)
    problem = m.Problem(domain, equation, fields, m.Dirichlet(0.0))
    grid = domain.grid()
    return problem.operator.on(grid, tuple(slice(0, n) for n in grid.nodes))


@pytest.mark.parametrize("spacing", [0.1, (0.1, 0.2, 0.15)])
@pytest.mark.parametrize("residual", [flow, constant, mixed])
@pytest.mark.parametrize("axes", [2, 3])
def test_they_are_those_of_automatic_differentiation(axes, residual, spacing, monkeypatch):
    monkeypatch.setattr(nonlinear_part, "_STRIP", 2 * 5 * 7)  # several strips
    known, other = (part(each, axes, spacing) for each in (residual, apart(residual)))
    rng = np.random.default_rng(0)
    u, change = (rng.standard_normal([n + 1 for n in CELLS[axes]]) for _ in range(2))
    expected = other.partials(u, other.part)
    partials = known.partials(u, known.part)
    size = max(abs(values).max() for values in expected.values())
    for offset in expected | partials:
        ours, theirs = (of.get(offset, 0.0) for of in (partials, expected))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-13 * size)
    products = (each.products(u, [change, u]) for each in (known, other))
    for ours, theirs in zip(*products, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * size)
    if residual is not mixed:
        product = known.derivative(u, known.part).apply(change)
        np.testing.assert_allclose(
            product, known.products(u, [change])[0], rtol=0, atol=1e-12 * size
        )
    if residual is flow:  # no digit is lost of a difference
        assert not known.derivative(u, known.part).apply(np.ones_like(u)).any()


@pytest.mark.parametrize("name", ["minimal-surface", "poisson-boltzmann", "quasilinear-diffusion"])
def test_conductances_do_not_depend_on_the_strips_they_are_made_in(name, monkeypatch):
    problem = m.Problem(m.Domain((40, 7), 0.1), name, {}, m.Dirichlet(0.0))
    grid = problem.domain.grid()
    known = problem.operator.on(grid, tuple(slice(0, n) for n in grid.nodes))
    u = np.random.default_rng(0).standard_normal(grid.nodes)
    whole = known.derivative(u, known.part)
    short = known.derivative(u, known.part, np.float32)
    monkeypatch.setattr(nonlinear_part, "_STRIP", 1)
    for rows in (1, 5):
        monkeypatch.setattr(nonlinear_part, "_ROWS", rows)
        strips = known.derivative(u, known.part)
        for expected, k, rounded in zip(
            whole.arrays(), strips.arrays(), short.arrays(), strict=True
        ):
            size = abs(expected).max()
            np.testing.assert_allclose(k, expected, rtol=0, atol=1e-14 * size)
            assert rounded.dtype == np.float32
            np.testing.assert_allclose(rounded, expected, rtol=0, atol=1e-6 * max(size, 1.0))
