"""Marches between periodic sides: equations that are not linear, and other domains than rectangles."""

import numpy as np
import pytest
import torch

import mosaicdd as m

TIGHT = {"settings": m.SolveSettings(rtol=1e-10), "solver_share": 0}
P = 2 * np.pi
PAIR = {"left": m.Periodic(), "right": m.Periodic()}


def travelling(n):
    """Return ``du/dt - lap u / 10 + u^3 = f`` on the unit square, and its solution, a wave that travels."""

    def u(x, y, t):
        return np.sin(P * (x - t)) * np.exp(y)

    def f(x, y, t):
        v = u(x, y, t)
        return -P * np.cos(P * (x - t)) * np.exp(y) - 0.1 * (1 - P**2) * v + v**3

    fields = {"a": 0.1, "r": "u**3", "f": f}
    sides = PAIR | {"bottom": m.Dirichlet(u), "top": m.Neumann(lambda x, y, t: 0.1 * u(x, y, t))}
    return m.Problem(m.Domain((n, n), 1 / n), "reaction-diffusion", fields, sides), u


def test_a_travelling_wave_is_of_second_order_in_space_and_time():
    errors = []
    for n in (20, 40):
        problem, u = travelling(n)
        series = m.march(problem, lambda x, y, u=u: u(x, y, 0.0), dt=1 / n, steps=n // 4, **TIGHT)
        truth = u(series.x, series.y[:, None], series.times[-1])
        errors.append(abs(series.field - truth).max())
    assert np.log2(errors[0] / errors[-1]) > 1.8, errors


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("method", ["euler", "bdf2", "crank-nicolson"])
def test_initial_values_that_differ_on_both_sides_are_those_of_the_first(method, comm):
    first = np.random.default_rng(0).standard_normal((33, 33))
    same = first.copy()
    same[:, -1] = first[:, 0]
    problem = m.Problem(m.Domain((32, 32), 0.1), "heat", None, {**PAIR, "top": m.Dirichlet(1.0), "bottom": m.Neumann(0.0)})  # fmt: skip
    how = TIGHT | {"dt": 0.01, "steps": 3, "method": method, "ranks": comm}
    series, other = (m.march(problem, u, **how) for u in (first, same))
    for n in range(4):
        field = series.gather(n)
        np.testing.assert_array_equal(field[:, 0], field[:, -1])
        np.testing.assert_array_equal(field, other.gather(n))


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_initial_values_that_the_last_nodes_alone_have_hold_on_both_sides(comm):
    mask = np.ones((12, 17, 16), bool)
    mask[3:8, 0, 4:11] = False
    rng, initial = np.random.default_rng(0), np.full((13, 18, 17), np.nan)
    for corner in np.ndindex(2, 2, 2):  # what is inside has values
        place = tuple(slice(at, at + n) for at, n in zip(corner, mask.shape, strict=True))
        initial[place] = np.where(mask, rng.standard_normal(mask.shape), initial[place])
    on_both = np.where(np.isnan(initial), initial[:, [-1]], initial)
    assert np.isnan(initial[:, 0]).any()
    sides = {"bottom": m.Periodic(), "top": m.Periodic(), "outline": m.Neumann(0.3)}
    problem = m.Problem(m.Domain.from_mask(mask, 0.1), "heat", {}, sides)
    how = {"dt": 0.001, "steps": 1, "ranks": comm}
    fields = [m.march(problem, u, **how, **TIGHT).gather() for u in (initial, on_both)]
    np.testing.assert_allclose(*fields, rtol=0, atol=1e-9)
    settings = TIGHT["settings"]
    march = m.differentiable(problem, "initial", initial=0.0, settings=settings, **how)
    called = march(initial=torch.from_numpy(initial))[1]
    np.testing.assert_allclose(called, fields[0], rtol=0, atol=1e-9)
