"""Marches through time: orders in the step, media and sides, ranks, steps by tolerance."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from own_nonlinear import OwnNonlinear, drawn_nonlinear

import mosaicdd as m

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
TIGHT = {"settings": m.SolveSettings(rtol=1e-11), "solver_share": 0}


class Manufactured:
    """``v = cos(t) S + sin(2t) x / 3`` with ``S = sin(pi x/4) sin(pi y/4)``, on 4 x 4.

    ``S`` is an eigenvector of the discrete Laplacian, ``x`` is harmonic: with ``f`` made from the discrete
    eigenvalue ``v`` solves the equations of the grid, and all of the error is of the steps.
    """

    shape = "sin(pi*x/4)*sin(pi*y/4)"

    def __init__(self, cells):
        h = 4 / cells
        value = 2 * (2 * np.sin(np.pi * h / 8) / h) ** 2
        self.values = f"cos(t)*{self.shape} + sin(2*t)*x/3"
        self.initial = self.shape
        source = f"({value}*cos(t) - sin(t))*{self.shape} + 2*cos(2*t)*x/3"
        self.problem = m.Problem(
            m.Domain((cells, cells), h), "heat", {"f": source}, m.Dirichlet(self.values)
        )

    def error(self, series):
        x, y, t = series.x, series.y[:, None], series.times[-1]
        truth = np.cos(t) * np.sin(np.pi * x / 4) * np.sin(np.pi * y / 4) + np.sin(2 * t) * x / 3
        return np.sqrt(np.mean((series.field - truth) ** 2))


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("bdf2", 2), ("crank-nicolson", 2)])
def test_the_error_falls_with_the_order_in_the_step(method, order):
    known = Manufactured(48)
    errors = []
    for steps in (10, 20):
        series = m.march(
            known.problem, known.initial, dt=1 / steps, steps=steps, method=method, **TIGHT
        )
        errors.append(known.error(series))
        assert series.status == "converged_rtol"
    found = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(found, order, atol=0.15)  # the next order is a tenth at these steps
    assert series.report["solver_error"] < 1e-2 * errors[-1]


def test_the_estimated_errors_of_the_steps_bound_the_error():
    # Each fades from step to step, so their sum is too large, by what it takes to fade: 1 / (lambda dt).
    known = Manufactured(48)
    for method in ("euler", "bdf2", "crank-nicolson"):
        series = m.march(known.problem, known.initial, dt=0.05, steps=20, method=method)
        error = known.error(series)
        assert 0.5 * error < series.report["time_error"] < 20 * error


def test_last_values_that_were_known_exactly_give_the_order_of_a_step():
    # The first step of BDF2 alone: theta = 2/3, of second order in one step.
    known = Manufactured(48)
    errors = [
        known.error(m.march(known.problem, known.initial, dt=dt, steps=1, **TIGHT))
        for dt in (0.1, 0.05)
    ]
    assert np.log2(errors[0] / errors[1]) > 1.8


def test_energy_of_a_closed_box_is_kept():
    # Crank-Nicolson and the finite volumes keep the sum over the volumes to the solver's tolerance.
    sides = dict.fromkeys(("left", "right", "top", "bottom"), m.Neumann(0.0))
    problem = m.Problem(m.Domain((40, 40), 0.1), "heat", {"a": "1 + x"}, sides)
    series = m.march(
        problem, "exp(-5*((x-1)**2+(y-2)**2))", dt=0.05, steps=10, method="crank-nicolson", **TIGHT
    )
    weights = np.ones(41)
    weights[[0, -1]] = 0.5
    sums = [weights @ field @ weights for field in series]
    np.testing.assert_allclose(sums, sums[0], rtol=1e-7)
    assert np.ptp(series.field) < 0.5 * np.ptp(series[0])


@RANKS
@pytest.mark.parametrize("medium", [False, True], ids=["constant", "medium"])
def test_the_fields_do_not_depend_on_the_ranks(medium, alone_and_together):
    fields = {"f": "exp(-4*((x-2-cos(3*t))**2+(y-2)**2))"}
    fields |= {"a": "2+sin(3*x*y)"} if medium else {}
    sides = (
        {"left": m.Dirichlet("sin(t)*y"), "top": m.Neumann(0.5)} if medium else m.Dirichlet("t*x")
    )
    problem = m.Problem((96, 112), "heat", fields, sides)
    options = {"dt": 0.05, "steps": 5, "every": 2, "solver_share": 0}
    options["settings"] = m.SolveSettings(rtol=1e-12)
    one, all_ranks = alone_and_together(m.march, problem, "x*y/4", **options)
    np.testing.assert_array_equal(all_ranks.times, [0, 0.1, 0.2, 0.25])
    for field, other in zip(one.fields, map(all_ranks.gather, range(4)), strict=True):
        np.testing.assert_allclose(other, field, rtol=0, atol=1e-10)
    part = all_ranks.local(2)
    np.testing.assert_array_equal(part, all_ranks.gather(2)[all_ranks.place])


def test_a_smaller_tolerance_gives_a_smaller_error():
    known = Manufactured(48)
    errors = [
        known.error(m.march(known.problem, known.initial, dt=0.5, steps=4, tolerance=tolerance))
        for tolerance in (1e-2, 1e-3)
    ]
    # Of second order: a tenth of the error of a step is a step 10^(1/3) times shorter.
    assert errors[0] > 2 * errors[1]


def test_a_source_of_node_values_at_all_times_is_interpolated():
    nodes, times = (33, 33), np.linspace(0, 0.4, 5)
    y, x = np.mgrid[:33, :33] / 64
    frames = times[:, None, None] * x * y
    options = {"dt": 0.1, "steps": 4, "method": "crank-nicolson", **TIGHT}
    given = m.march(m.Problem((32, 32), "heat", {"f": frames}), 0.0, **options)
    same = m.march(m.Problem((32, 32), "heat", {"f": lambda x, y, t: t * x * y}), 0.0, **options)
    assert same.field.shape == nodes
    np.testing.assert_allclose(given.field, same.field, rtol=0, atol=1e-12)
    assert same.field.max() > 0


def test_the_reaction_of_a_nonlinear_equation_moves_in_time():
    # Allen and Cahn without diffusion's part: constants follow du/dt = u - u^3.
    sides = m.Dirichlet("1/sqrt(1 + 3*exp(-2*t))")
    problem = m.Problem(m.Domain((32, 32), 0.05), "allen-cahn", {"eps": 0.05}, sides)
    errors = []
    for steps in (8, 16):
        series = m.march(problem, 0.5, dt=1 / steps, steps=steps)
        errors.append(np.abs(series.field - 1 / np.sqrt(1 + 3 * np.exp(-2))).max())
    assert errors[1] < 1e-3
    assert np.log2(errors[0] / errors[1]) > 1.7


@pytest.mark.ranks(1, 2, 3)
def test_a_front_of_fisher_s_equation_runs_at_its_speed(comm):
    # u = (1 + exp(x / sqrt(6) - 5 t / 6))^-2 solves du/dt - lap u + u^2 - u = 0 (Ablowitz, Zeppetella 1979).
    wave = "(1+exp((x-2)/sqrt(6)-5*t/6))**-2"
    problem = m.Problem(
        m.Domain((32, 128), 0.0625), "reaction-diffusion", {"r": "u**2 - u"}, m.Dirichlet(wave)
    )
    series = m.march(problem, wave.replace("5*t/6", "0"), dt=0.1, steps=10, ranks=comm)
    truth = (1 + np.exp((series.x - 2) / np.sqrt(6) - 5 / 6)) ** -2
    np.testing.assert_allclose(series.gather(), np.broadcast_to(truth, (33, 129)), atol=3e-4)


@RANKS
@pytest.mark.parametrize(
    ("name", "kind"),
    [("quasilinear-diffusion", "rectangle"), ("allen-cahn", "cells"), ("reaction-diffusion", "box"), ("burgers", "rectangle")],
)  # fmt: skip
def test_steps_of_nonlinear_equations_are_those_of_a_newton_method_of_its_own(comm, name, kind):
    p, dt = drawn_nonlinear(1003, large=True, name=name, kind=kind), 0.4
    stepped = replace(p, fields=p.fields | {"c": p.fields["c"] + 1 / dt})
    u = np.full(p.nodes, 0.5)
    for _ in range(2):
        series = m.march(p.problem, u, dt=dt, steps=1, method="euler", ranks=comm, **TIGHT)
        own, after = OwnNonlinear(stepped), np.asarray(series.gather())
        own.b += own.per_unknown(own.volumes) * u.ravel() / dt
        np.testing.assert_allclose(after, own.solve(after), rtol=0, atol=1e-8 * np.nanmax(after))
        u = np.nan_to_num(after)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pde": "poisson"}, "poisson has no parameter that multiplies u"),
        ({"dt": 0.0}, "dt must be a number > 0, got 0.0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"method": "rk4"}, "unknown method 'rk4'; known: euler, bdf2, crank-nicolson"),
        ({"initial": np.zeros((3, 3))}, r"initial: the field initial has the shape \(3, 3\)"),
        ({"initial": "1/x"}, "initial: the field initial has 33 of 1089 values"),
        (
            {"fields": {"r": "u*t"}, "pde": "reaction-diffusion"},
            "t is not allowed .the time: fields and values on sides may depend on it",
        ),
        (
            {"fields": {"f": np.zeros((3, 33, 33))}},
            "has values at 3 times, the last at 0.2; .* need 5",
        ),
        ({"tolerance": 2.0}, "tolerance must lie between 0 and 1, got 2.0"),
    ],
)
def test_bad_input_is_one_clear_line(change, message):
    change = {"pde": "heat", "fields": {}, "dt": 0.1, "steps": 4, "initial": 0.0} | change
    pde, fields, initial = (change.pop(name) for name in ("pde", "fields", "initial"))
    with pytest.raises((ValueError, TypeError), match=message):
        m.march(m.Problem((32, 32), pde, fields), initial, **change)


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize(
    ("fields", "sides"), [({"f": "1/(0.2-t)"}, "0"), ({"f": 1.0}, "log(0.2-t)")], ids=["f", "sides"]
)
def test_data_that_end_at_some_time_end_the_march_there(fields, sides, comm):
    problem = m.Problem((64, 64), "heat", fields, m.Dirichlet(sides))
    series = m.march(problem, 0.0, dt=0.05, steps=8, method="euler", ranks=comm)
    assert (series.status, len(series.times)) == ("diverged_nan", 4)
    assert series.report["failure"].startswith("between the times 0.15 and 0.2: ")
    assert np.isfinite(series.gather()).all()


def test_an_equation_in_time_without_steps_is_refused():
    with pytest.raises(m.Unsupported, match="heat is an equation in time: give it steps"):
        m.solve(m.Problem((32, 32), "heat"))


@RANKS
@pytest.mark.parametrize("cells", [64, 50])
def test_what_is_periodic_decays_as_its_modes_do(comm, cells):
    # An eigenvector of the discrete Laplacian: every step of Euler's divides it by 1 + lambda dt.
    h, dt = 4 / cells, 0.05
    problem = m.Problem(
        m.Domain((48, cells), h), "heat", sides={"left": m.Periodic(), "right": m.Periodic()}
    )
    height = 48 * h
    shape = f"sin(pi*x/2 + 1)*sin(pi*y/{height})"
    series = m.march(problem, shape, dt=dt, steps=4, method="euler", ranks=comm, **TIGHT)
    value = sum((2 * np.sin(k * h / 2) / h) ** 2 for k in (np.pi / 2, np.pi / height))
    x, y, field = series.x, series.y[:, None], series.gather()
    truth = np.sin(np.pi * x / 2 + 1) * np.sin(np.pi * y / height) / (1 + value * dt) ** 4
    assert abs(field - truth).max() < 1e-10
    np.testing.assert_array_equal(field[:, 0], field[:, -1])


@pytest.mark.ranks(1, 2, 3)
def test_a_series_is_not_saved_beside_data_that_were_changed(comm, common_path):
    a = np.ones((65, 65))
    problem = m.Problem(
        (64, 64), "heat", {"a": a, "f": "sin(t)"}, {"left": m.Dirichlet("t*y"), "top": m.Neumann(1)}
    )
    series = m.march(problem, 0.0, dt=0.1, steps=2, ranks=comm)
    series.save(common_path / "right.h5")
    a[3, 4] = 2.0
    with pytest.raises(ValueError, match="the field a of the problem changed since it was solved"):
        series.save(common_path / "wrong.h5")
    assert not (common_path / "wrong.h5").exists()


def test_steps_warn_of_nothing():
    problem = m.Problem((16, 20), "heat", {"a": "1 + x"}, {"left": m.Robin(2.0, 1.0)})
    torch.set_warn_always(True)  # else once in a process
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            m.march(problem, "x", dt=0.1, steps=3)
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("per_unit", [20, 40, 80, 160])
def test_a_nearly_diagonal_medium_converges_to_the_last_digits(per_unit):
    """A step of so little diffusion is a matrix near the identity: all that is left is rounding."""
    a = 1e-3 * np.exp(np.random.default_rng(0).standard_normal((33, 33)))
    problem = m.Problem(m.Domain((32, 32), 1 / 32), "heat", {"a": a, "f": 1.0})
    settings = m.SolveSettings(rtol=1e-13)
    series = m.march(problem, 0.0, dt=1 / per_unit, steps=3, settings=settings)
    assert series.status == "converged_rtol"


def test_a_part_of_a_side_ends_where_it_does_not_where_ten_digits_end():
    spacing, corner = 1 / 4096, 4.5e6
    end = corner + 9.25 * spacing
    sides = {f"left[:{end!r}]": m.Dirichlet("1 + 0*t"), "left": m.Neumann(0.0)}
    domain = m.Domain((16, 16), spacing, origin=(0.0, corner))
    series = m.march(m.Problem(domain, "heat", {"a": 1.0}, sides), 0.0, dt=1.0, steps=1)
    # The corner has the mean of both sides.
    assert list(series.gather(1)[1:11, 0] == 1.0) == [True] * 9 + [False]
