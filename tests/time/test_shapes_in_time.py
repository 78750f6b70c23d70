"""Marches on shapes and with natural sides: by hand, in order, on all ranks, in files, and resumed."""

import itertools

import numpy as np
import pfhub
import pytest
from interrupted_marches import interrupted

import mosaicdd as m

TIGHT = {"settings": m.SolveSettings(rtol=1e-11), "solver_share": 0}
SHAPE = "(x*x - y*y + x*y)"  # harmonic


def ring(n):
    return m.Domain.from_distance("abs(hypot(x - 0.5, y - 0.52) - 0.3) - 0.113", (n, n), 1 / n)


def into_the_hole(x, y, t):
    dx, dy = 0.5 - x, 0.52 - y
    return np.cos(t) * ((2 * x + y) * dx + (x - 2 * y) * dy) / np.hypot(dx, dy)


def cooling(n):
    """Return the problem that ``cos(t)`` times `SHAPE` solves."""
    sides = {"outer": m.Dirichlet(f"cos(t)*{SHAPE}"), "hole1": m.Neumann(into_the_hole)}
    return m.Problem(ring(n), "heat", {"f": f"-sin(t)*{SHAPE}"}, sides)


def cooled(series, number=-1):
    x, y, t = series.x, series.y[:, None], series.times[number]
    return np.cos(t) * (x * x - y * y + x * y)


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("bdf2", 2), ("crank-nicolson", 2)])
def test_outlines_that_change_with_time_keep_the_order_of_the_steps(method, order):
    fields = []
    for steps in (4, 8, 16):
        series = m.march(cooling(48), SHAPE, dt=1 / steps, steps=steps, method=method, **TIGHT)
        assert series.status == "converged_rtol"
        np.testing.assert_array_equal(np.isnan(series.field), np.isnan(series[0]))
        fields.append(series.field)
    one, other = (np.nanmax(abs(a - b)) for a, b in itertools.pairwise(fields))
    if method != "crank-nicolson":  # which damps nothing, not what small volumes begin with either
        assert one > 2 ** (order - 0.4) * other
    assert np.nanmax(abs(fields[-1] - cooled(series))) < (2e-4 if order == 2 else 2e-3)


def several():
    waves, initial = "20*sin(7*x + 3*t)", "0.3*sin(9*x*y)"
    mixed = {"left": m.Dirichlet("t*y"), "right": m.Neumann("x*y"), "top": m.Robin(2.0, "x")}
    on_ring = {"outer": m.Neumann(0.0), "hole1": m.Robin(2.0, "cos(t)")}
    rectangle = m.Domain((50, 70), 1 / 64)
    turning = {"f": waves, "bx": "30*(0.52 - y)", "by": "30*(x - 0.5)"}
    return {
        "flow": (m.Problem(ring(96), "advection-diffusion", turning, on_ring), initial),
        "heat": (m.Problem(ring(96), "heat", {"f": waves, "a": "1 + x"}, on_ring), initial),
        "reaction": (
            m.Problem(ring(64), "reaction-diffusion", {"f": waves, "r": "u**3 - u"}, on_ring),
            initial,
        ),
        "sides": (m.Problem(rectangle, "allen-cahn", {"f": waves}, mixed), initial),
        "hot": (m.Problem(rectangle, "quasilinear-diffusion", {"f": waves}, mixed), initial),
    }


@pytest.mark.parametrize(
    "name", ["reaction", "hot", pytest.param("sides", marks=pytest.mark.nightly)]
)
def test_nonlinear_equations_move_with_second_order(name):
    problem, initial = several()[name]
    fields = [m.march(problem, initial, dt=0.04 / k, steps=2 * k, **TIGHT).field for k in (1, 2, 4)]
    changes = [np.sqrt(np.nanmean((a - b) ** 2)) for a, b in itertools.pairwise(fields)]
    assert changes[1] < changes[0] / 2.5


@pytest.mark.ranks(1, 2, 3)
def test_the_file_holds_the_shape(comm, common_path):
    path, problem = common_path / "out.h5", cooling(48)
    series = m.march(problem, SHAPE, dt=0.1, steps=2, ranks=comm, output=path, **TIGHT)
    comm.Barrier()
    stored = m.read(path)
    np.testing.assert_array_equal(stored.series()[1], series[1])
    np.testing.assert_array_equal(stored.inside, np.isfinite(series[1]))


def data(**changed):
    """Return a march of a few steps, as arguments of `m.march`, with some changed."""
    rng = np.random.default_rng(0)
    given = {
        "domain": m.Domain((32, 48), 1 / 32),
        "a": 1 + rng.random((33, 49)),
        "f": rng.random((33, 49)),
        "initial": rng.random((33, 49)),
    } | changed
    fields = {name: given[name] for name in ("a", "f")}
    return m.Problem(given["domain"], "heat", fields, m.Neumann("t")), given["initial"]


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("name", ["initial", "a", "f", "domain", "frames", "function"])
def test_a_march_is_not_resumed_with_other_values(name, comm, common_path):
    ones = np.ones((33, 49))
    before, after = {
        "initial": ({}, {"initial": ones}),
        "a": ({}, {"a": ones}),
        "f": ({}, {"f": ones}),
        "domain": (
            {"domain": m.Domain.from_distance("hypot(x - 0.6, y - 0.5) - 0.4", (32, 48), 1 / 32)},
            {"domain": m.Domain.from_distance("hypot(x - 0.6, y - 0.5) - 0.45", (32, 48), 1 / 32)},
        ),
        "frames": ({"f": np.zeros((5, 33, 49))}, {"f": np.ones((5, 33, 49))}),
        "function": ({"initial": lambda x, y: x * y}, {"initial": lambda x, y: x - y}),
    }[name]
    how = {"steps": 4, "dt": 0.1, "ranks": comm}
    interrupted(*data(**before), 0.0, common_path / "out.h5", **how)
    how["output"] = m.Output(common_path / "out.h5", resume=True)
    with pytest.raises(ValueError, match=r"resume: .* belongs to another problem: its"):
        m.march(*data(**after), **how)
    assert m.march(*data(**before), **how).status == "converged_rtol"


def wave(nu):
    """Return a front of Burgers' equation, which runs diagonally: as expressions, in time and at its begin."""
    front = f"1/(1 + exp((x + y - t)/(2*{nu})))"
    return front, front.replace(" - t", "")


def test_a_front_of_burgers_equation_runs_with_second_order():
    front, begin = wave(0.05)
    errors = []
    for n, steps in ((32, 6), (64, 12)):
        problem = m.Problem(m.Domain((n, n), 1 / n), "burgers", {"nu": 0.05}, m.Dirichlet(front))
        series = m.march(problem, begin, dt=0.5 / steps, steps=steps)
        assert series.status == "converged_rtol"
        x, y = series.x, series.y[:, None]
        errors.append(abs(series.field - 1 / (1 + np.exp((x + y - 0.5) / 0.1))).max())
    assert errors[0] > 3 * errors[1]
    assert errors[1] < 7e-3


def test_a_shock_of_burgers_equation_stays_between_its_values():
    # Cells of a Peclet number of 31: upwind, and without a wiggle.
    front, begin = wave(0.001)
    problem = m.Problem(m.Domain((32, 32), 1 / 32), "burgers", {"nu": 0.001}, m.Dirichlet(front))
    series = m.march(problem, begin, dt=0.05, steps=6, method="euler")
    assert series.status == "converged_rtol"
    assert -1e-6 <= series.field.min() <= series.field.max() <= 1 + 1e-6
    middle = series.field[16, 16 - 8 : 16 + 9]  # it falls across the front at x + y = 0.3
    assert np.all(np.diff(series.field[4]) < 1e-9)
    assert np.all(middle < 0.5)


@pytest.mark.ranks(1, 2, 3)
def test_burgers_equation_flows_around_a_hole(alone_and_together):
    hole = m.Domain.from_distance("0.15 - hypot(x - 0.4, y - 0.45)", (64, 64), 1 / 64)
    sides = {"left": m.Dirichlet(1.0), "bottom": m.Dirichlet(1.0), "hole1": m.Dirichlet(0.0)}
    sides |= {"right": m.Neumann(0.0), "top": m.Neumann(0.0)}
    problem = m.Problem(hole, "burgers", {"nu": 0.05}, sides)
    options = {"dt": 0.1, "steps": 3, "method": "euler", **TIGHT}
    one, together = alone_and_together(m.march, problem, 0.0, **options)
    assert together.status == "converged_rtol"
    assert -1e-9 <= np.nanmin(one.field) <= np.nanmax(one.field) <= 1 + 1e-9
    np.testing.assert_allclose(together.gather(), one.field, rtol=0, atol=1e-9)


def test_the_front_of_pfhub_s_benchmark_is_of_second_order():
    coarse, fine = (
        pfhub.error(m.march(pfhub.problem(cells), pfhub.initial, dt=0.1, steps=2))
        for cells in (50, 100)
    )
    assert fine < coarse / 3
    assert fine < 7.8e-3  # which is published of this spacing


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("method", ["euler", "bdf2", "crank-nicolson"])
def test_values_on_the_outline_of_whole_cells_hold_from_the_begin(method, comm):
    mask = np.ones((32, 32), bool)
    mask[20:, 12:] = False
    domain = m.Domain.from_mask(mask, 0.1, per_cell=True)
    sides = {"outline": m.Dirichlet("1 + t")} | dict.fromkeys(
        ("left", "right", "top", "bottom"), m.Neumann(0.0)
    )
    problem = m.Problem(domain, "heat", None, sides)
    series = m.march(problem, 5.0, dt=0.1, steps=3, method=method, ranks=comm, **TIGHT)
    for n, t in enumerate(series.times):
        np.testing.assert_allclose(series.gather(n)[20, 12:], 1 + t, rtol=1e-12)
        np.testing.assert_allclose(series.gather(n)[20:, 12], 1 + t, rtol=1e-12)
