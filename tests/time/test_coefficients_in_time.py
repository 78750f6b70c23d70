"""Coefficients that change with the time: order in the step, steps by hand, ranks, files, and what is refused."""

import numpy as np
import pytest
from interrupted_marches import interrupted
from scipy.integrate import solve_ivp

import mosaicdd as m

TIGHT = {"settings": m.SolveSettings(rtol=1e-11), "solver_share": 0}


@pytest.mark.parametrize(
    ("axes", "method", "order"),
    [
        pytest.param(2, "euler", 1, marks=pytest.mark.nightly),
        pytest.param(2, "bdf2", 2, marks=pytest.mark.nightly),
        (2, "crank-nicolson", 2),
        (3, "bdf2", 2),
    ],
)
def test_the_error_falls_with_the_order_in_the_step(axes, method, order):
    n, h = 16, 0.25
    value = axes * (2 * np.sin(np.pi * h / 8) / h) ** 2  # of the grid's own Laplacian
    shape = "*".join(f"sin(pi*{x}/4)" for x in "xyz"[:axes])
    source = f"(({value}*(1 + t*t) + t)*cos(t) - (2 + sin(3*t))*sin(t))*{shape}"
    fields = {"a": "1 + t*t", "s": "2 + sin(3*t)", "c": "t", "f": source}
    problem = m.Problem(m.Domain((n,) * axes, h), "heat", fields, m.Dirichlet(0.0))
    errors = []
    for steps in (8, 16):
        series = m.march(problem, shape, dt=1 / steps, steps=steps, method=method, **TIGHT)
        assert series.status == "converged_rtol"
        middle = np.array([field[(n // 2,) * axes] for field in series])
        errors.append(abs(middle - np.cos(series.times)).max())
    np.testing.assert_allclose(np.log2(errors[0] / errors[1]), order, atol=0.25)


def test_an_equation_that_is_not_linear_follows_its_reaction_in_time():
    # Nothing flows, so u' = u - u^3 - c(t) u everywhere.
    exact = solve_ivp(lambda t, u: u - u**3 - 3 * t * u, (0, 1), [0.5], rtol=1e-10).y[0, -1]
    errors = []
    for steps in (8, 16):
        problem = m.Problem((16, 16), "allen-cahn", {"c": "3*t"}, m.Neumann(0.0))
        series = m.march(problem, 0.5, dt=1 / steps, steps=steps, **TIGHT)
        assert np.ptp(series.field) < 1e-8
        errors.append(abs(series.field.mean() - exact))
    assert 3 < errors[0] / errors[1] < 6


def test_a_coefficient_that_is_not_sound_at_some_time_ends_the_march_there():
    problem = m.Problem((32, 32), "heat", {"a": "0.25 - t"})
    series = m.march(problem, 1.0, dt=0.1, steps=5, method="euler")
    assert (series.status, len(series)) == ("diverged_nan", 3)
    assert "at the time 0.3: the field a must be positive" in series.report["failure"]


def test_a_march_with_changing_coefficients_is_gone_on_with(tmp_path):
    fields = {"a": lambda x, y, t: 1 + t * x, "s": "1 + t"}
    problem = m.Problem((32, 32), "heat", fields, m.Dirichlet("t*x"))
    path, how = tmp_path / "out.h5", {"dt": 0.1, "steps": 4, **TIGHT}
    whole = m.march(problem, 0.0, **how)
    interrupted(problem, 0.0, 0.4, path, **how)
    again = m.Output(path, resume=True)
    resumed = m.march(problem, 0.0, output=again, **how)
    np.testing.assert_array_equal(resumed.field, whole.field)
    other = problem.with_fields(a=lambda x, y, t: 1 + 2 * t * x)
    interrupted(problem, 0.0, 0.4, path, **how)
    with pytest.raises(ValueError, match="belongs to another problem"):
        m.march(other, 0.0, output=again, **how)


@pytest.mark.parametrize(
    ("equation", "fields", "message"),
    [
        ("heat", {"a": "1 + q*t"}, "the field a: expression '1 .* q is not allowed"),
        ("quasilinear-diffusion", {"k": "1 + t*u**2"}, "t is not allowed"),
    ],
)
def test_what_does_not_change_is_refused_by_name(equation, fields, message):
    with pytest.raises(ValueError, match=message):
        m.march(m.Problem((32, 32), equation, fields), 0.0, dt=0.1, steps=1)


def test_without_steps_there_is_no_time():
    with pytest.raises(ValueError, match=r"t is not allowed \(the time"):
        m.solve(m.Problem((32, 32), "diffusion", {"a": "1 + t"}))
