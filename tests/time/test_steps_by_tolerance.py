"""Steps by tolerance: they keep it, grow as the field settles, go through jumps, and are alike on all ranks."""

import numpy as np
import pytest

import mosaicdd as m

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
TIGHT = {"settings": m.SolveSettings(rtol=1e-11), "solver_share": 0}


@RANKS
def test_steps_by_tolerance_are_the_same_on_all_ranks(alone_and_together):
    problem = m.Problem((64, 80), "heat", {"f": "sin(4*t)*x"})
    options = {"dt": 0.02, "steps": 4, "every": 2, "tolerance": 0.05, "solver_share": 0}
    one, all_ranks = alone_and_together(m.march, problem, "sin(x)*sin(y)", **options)
    np.testing.assert_array_equal(all_ranks.steps["step"], one.steps["step"])
    np.testing.assert_allclose(all_ranks.gather(), one.field, rtol=0, atol=1e-7)
    np.testing.assert_allclose(all_ranks.times, [0, 0.04, 0.08])
    assert len(set(one.steps["step"])) > 2


def test_steps_by_tolerance_grow_as_the_field_settles_and_meet_the_times_that_are_kept():
    known = m.Problem((64, 64), "heat", {"f": 1.0})
    series = m.march(
        known, "100*where(abs(x-0.5)<0.2, 1, 0)", dt=0.25, steps=32, every=8, tolerance=1e-3
    )
    lengths = series.steps["step"]
    assert lengths[0] < 0.05  # no step was judged before the first ones were taken again
    assert lengths.max() > 0.25
    np.testing.assert_allclose(series.times, [0, 2, 4, 6, 8])
    np.testing.assert_allclose(np.log2(lengths / 0.25) % 1, 0)
    size = np.sqrt(np.mean(series.field**2))
    judged = series.steps["time_error"]
    assert np.isfinite(judged).all()
    assert judged[-1] <= 1e-3 * size


class Box:
    """A heated square of 32 x 32 cells: what its semidiscrete equations have at every time, by their eigenvectors."""

    def __init__(self):
        n, self.h = 32, 1 / 64
        k = np.arange(1, n)
        self.sines = np.sqrt(2 / n) * np.sin(np.pi * np.outer(k, k) / n)
        values = (2 * np.sin(np.pi * k / (2 * n)) / self.h) ** 2
        self.values = values[:, None] + values
        self.ones = np.outer(*[self.sines.sum(axis=0)] * 2)  # of the function 1

    def sums(self, factors):
        """Return a field, zero on the sides, whose share of each eigenvector is this times that of 1."""
        return np.pad(self.sines @ (factors * self.ones) @ self.sines, 1)

    def march(self, sides, initial=0.0, **options):
        fields = {"f": options.pop("f", 0.0)}
        problem = m.Problem(m.Domain((32, 32), self.h), "heat", fields, m.Dirichlet(sides))
        return m.march(problem, initial, **options)

    def warm(self, since):
        """Return the fields after the sides have jumped from 0 to 1 at a time, or begun so."""
        return lambda t: 1 - self.sums(np.exp(-self.values * (t - since))) if t > since else 0.0

    def heated(self, since):
        """Return the fields after a source has jumped from 0 to 1 at a time."""
        return lambda t: self.sums(-np.expm1(-self.values * max(t - since, 0.0)) / self.values)

    def swinging(self, t):
        """Return the field at a time, from rest by the source ``sin(t)``."""
        v = self.values
        return self.sums((v * np.sin(t) - np.cos(t) + np.exp(-v * t)) / (v**2 + 1))


BOX = Box()


def require_the_tolerance(series, truth, tolerance, most):
    """Check fields, steps and their estimates: heat forgets errors, so what all steps add is a bound of them."""
    assert series.status == "converged_rtol"
    assert len(series.steps["step"]) <= most
    largest = max(np.sqrt(np.mean(field**2)) for field in series)
    errors = series.steps["time_error"]
    assert np.isfinite(errors).all()
    assert errors.max() <= tolerance * largest
    for field, t in zip(series, series.times, strict=True):
        error = np.sqrt(np.mean((field - truth(t))[1:-1, 1:-1] ** 2))
        assert error <= errors[series.steps["time"] <= t].sum() + 1e-9 * largest


@pytest.mark.parametrize(
    ("steps", "method"),
    [(1, "bdf2"), (2, "bdf2"), (3, "bdf2"), (1, "euler"), (2, "crank-nicolson")],
)
def test_the_tolerance_holds_in_marches_of_few_steps_too(steps, method):
    value = 2 * (2 * np.sin(np.pi / 64) / BOX.h) ** 2  # of the first eigenvector
    x = np.sin(np.pi * np.arange(33) / 32)
    options = {"dt": 0.02, "steps": steps, "tolerance": 3e-3, "method": method}
    series = BOX.march(0.0, "sin(2*pi*x)*sin(2*pi*y)", **options)
    truth = lambda t: np.exp(-value * t) * np.outer(x, x)
    require_the_tolerance(series, truth, 3e-3, most=40)


@pytest.mark.parametrize(
    ("data", "since"),
    [
        ("sides", 0.53),  # within a step
        ("f", 0.5),  # between steps
        pytest.param("sides", 0.5, marks=pytest.mark.nightly),
        pytest.param("f", 0.53, marks=pytest.mark.nightly),
    ],
)
def test_steps_by_tolerance_go_through_jumps(data, since):
    jump = f"where(t>{since}, 1, 0)"
    truth = BOX.warm(since) if data == "sides" else BOX.heated(since)
    sides, f = (jump, 0.0) if data == "sides" else (0.0, jump)
    series = BOX.march(sides, f=f, dt=0.25, steps=3, tolerance=1e-2)
    require_the_tolerance(series, truth, 1e-2, most=70)
    assert min(map(np.min, series)) >= 0.0
    assert max(map(np.max, series)) <= 1.0 + 1e-2


def test_steps_by_tolerance_begin_where_the_sides_are_not_what_the_field_is():
    series = BOX.march("where(t>0, 1, 0)", dt=0.02, steps=2, tolerance=1e-2)
    require_the_tolerance(series, BOX.warm(0.0), 1e-2, most=60)


def test_steps_by_tolerance_begin_from_rest():
    series = BOX.march(0.0, f="sin(t)", dt=0.1, steps=4, tolerance=1e-3)
    require_the_tolerance(series, BOX.swinging, 1e-3, most=40)


def test_a_nonlinear_equation_is_at_rest_until_a_source_is_switched_on():
    # Waves of Burgers' equation as small as 1e-4 are those of heat, with nu for the conductivity.
    f = "where(t>0.01, 1e-4, 0)"
    problem = m.Problem(m.Domain((32, 32), BOX.h), "burgers", {"nu": 1.0, "f": f})
    series = m.march(problem, 0.0, dt=0.01, steps=2, method="euler")
    assert (series.status, np.max(series[1])) == ("converged_rtol", 0.0)
    # One step of Euler's: (1 + lambda dt)^-1 of each eigenvector's share.
    step = BOX.sums(1e-6 / (1 + 0.01 * BOX.values))
    np.testing.assert_allclose(series[2], step, rtol=0, atol=1e-4 * step.max())


def test_a_tolerance_that_no_step_keeps_ends_a_march_and_says_so(monkeypatch):
    monkeypatch.setattr("mosaicdd.time.steps._SHORTEST", 1)
    series = BOX.march(0.0, "sin(2*pi*x)*sin(2*pi*y)", dt=0.01, steps=4, tolerance=1e-4)
    assert (series.status, len(series.steps["step"])) == ("diverged_tolerance", 1)
    assert "more than the tolerance" in series.report["failure"]
