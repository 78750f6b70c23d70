"""Data that jump at the end of a step: what they give in all, in fields, balances and gradients; on ranks."""

import numpy as np
import pytest
from interrupted_marches import interrupted

import mosaicdd as m
from mosaicdd.problems.fields.expressions import Expression

METHODS = pytest.mark.parametrize("method", ["bdf2", "euler", "crank-nicolson"])
N, H, DT, STEPS = 12, 1.0, 1.0, 10
TIGHT = {"settings": m.SolveSettings(rtol=1e-13), "solver_share": 0}
TIME = {"dt": DT, "steps": STEPS}
DOMAIN = m.Domain((N, N), H)
PLACE = (5.0, 6.0)
ENDS = np.r_[0.5, np.ones(N - 1), 0.5]
VOLUMES = np.outer(ENDS, ENDS) * H**2
AREA, AROUND = (N * H) ** 2, 4 * N * H
CLOSE = {"rel": 1e-11, "abs": 1e-12}
CLOSED = m.Neumann(0.0)

# What flows in by them in five times is 5.
SOURCES = {
    "a well": m.Wells([(PLACE, lambda t: 1.0 * (t < 5))]),
    "a well to the end": m.Wells([(PLACE, lambda t: 1.0 * (t <= 5))]),
    "a well by a text": m.Wells([(PLACE, "where(t < 5, 1, 0)")]),
    "a text": f"where(t < 5, 1, 0)/{AREA}",
    "a function": lambda x, y, t: (t < 5) / AREA + 0.0 * x,
    "by floor": f"5*(floor(t/5) < 1)/{AREA}/5",
}
SIDES = {
    "a flux": m.Neumann(f"where(t < 5, 1, 0)/{AROUND}"),
    "a flux to the end": m.Neumann(lambda x, y, t: (t <= 5) / AROUND + 0.0 * x),
}


def marched(fields, sides=CLOSED, initial=0.0, **how):
    return m.march(m.Problem(DOMAIN, "heat", fields, sides), initial, **TIME | TIGHT | how)


@METHODS
@pytest.mark.parametrize("kind", [*SOURCES, *SIDES])
def test_what_is_on_for_five_steps_gives_five(kind, method):
    source, sides = SOURCES.get(kind, 0.0), SIDES.get(kind, CLOSED)
    series = marched({"f": source}, sides, method=method)
    for number in (2, 5, 6, 10):
        held, balance = (series[number] * VOLUMES).sum(), series.balance(number)
        assert held == pytest.approx(min(number, 5), **CLOSE)
        assert balance.stored == pytest.approx(held, **CLOSE)
        assert balance.sources + balance.inflow == pytest.approx(held, **CLOSE)


@METHODS
def test_ends_that_rounding_moves_are_met(method):
    # 3 * 0.1 is more than 0.3, 7 * 0.1 more than 0.7.
    for end in (3, 7):
        rate = f"where(t < 0.{end}, 1, 0)/{AREA}"
        series = marched({"f": rate}, method=method, dt=0.1)
        assert (series.field * VOLUMES).sum() == pytest.approx(0.1 * end, **CLOSE)


@METHODS
def test_given_values_that_jump_are_stored_and_do_not_swing(method):
    sides = {"left": m.Dirichlet("2*(t < 5)")} | dict.fromkeys(("right", "top", "bottom"), CLOSED)
    series = marched({"c": "0.1*x", "s": "1 + 0.1*y"}, sides, method=method)
    expected = np.r_[np.full(6, 2.0), np.zeros(5)]
    np.testing.assert_allclose([f[3, 0] for f in series], expected, atol=1e-12)
    storage = (1 + 0.1 * np.arange(N + 1) * H)[:, None] * VOLUMES
    for number in range(1, STEPS + 1):
        balance = series.balance(number)
        gained = (storage * (series[number] - series[0])).sum()
        assert balance.stored == pytest.approx(gained, **CLOSE)
        assert balance.relative < 1e-11


@METHODS
def test_values_that_jump_at_the_begin_count_from_there(method):
    late, given = ({"left": m.Dirichlet(v)} | {"right": CLOSED} for v in ("2*(t > 0)", 2.0))
    first = np.zeros((N + 1, N + 1))
    one = marched({}, late, first, method=method)
    assert one[0][3, 0] == 0.0
    np.testing.assert_allclose(
        one.field, marched({}, given, first, method=method).field, atol=1e-12
    )


@pytest.mark.parametrize("name", ["left", "outline"])
def test_an_exchange_that_jumps_beside_values_that_change_by_more(name):
    domain = DOMAIN
    if name == "outline":
        mask = np.ones((N, N), bool)
        mask[7:, 6:] = False
        domain = m.Domain.from_mask(mask, H, per_cell=True)
    every = dict.fromkeys(("left", "right", "top", "bottom"), CLOSED)
    whole, first = (
        m.Problem(domain, "heat", None, every | {name: m.Robin(alpha, "3*t")})
        for alpha in ("where(t < 4, 0.2, 0.1)", 0.2)
    )
    then = m.Problem(domain, "heat", None, every | {name: m.Robin(0.1, "3*(t + 4)")})
    series = m.march(whole, 0.0, dt=DT, steps=5, **TIGHT)
    before = m.march(first, 0.0, dt=DT, steps=4, **TIGHT).field
    after = m.march(then, np.nan_to_num(before), dt=DT, steps=1, method="euler", **TIGHT).field
    np.testing.assert_allclose(series.field, after, rtol=1e-10)


def test_bdf2_goes_on_from_the_step_after_a_jump():
    problem = {"f": "where(t < 4, 1, 0)*x", "c": 0.1}
    series = marched(problem, m.Dirichlet(0.0))
    line = 2 * np.eye(N - 1) - np.eye(N - 1, k=1) - np.eye(N - 1, k=-1)
    a = np.kron(line, np.eye(N - 1)) + np.kron(np.eye(N - 1), line) + 0.1 * np.eye((N - 1) ** 2)
    x = np.tile(np.arange(1, N), (N - 1, 1)).ravel() * H
    one, u = np.eye(len(x)), [np.zeros(len(x))]
    for n in range(STEPS):
        f = x * (n < 4)
        if n == 0:
            stage = np.linalg.solve(1.5 * one + a, f + 1.5 * u[-1])
            u.append(1.5 * stage - 0.5 * u[-1])
        elif n == 4:
            u.append(np.linalg.solve(one + a, f + u[-1]))
        else:
            u.append(np.linalg.solve(1.5 * one + a, f + 2 * u[-1] - 0.5 * u[-2]))
    np.testing.assert_allclose(series.field[1:-1, 1:-1].ravel(), u[-1], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("method", "total"), [("euler", 5.0), ("crank-nicolson", 5.5), ("bdf2", 5.5 - 0.5 / 3**5)]
)
def test_node_values_at_all_times_are_linear_between_them(method, total):
    f = np.zeros((STEPS + 1, N + 1, N + 1))
    f[:6] = 1 / AREA
    series = marched({"f": f}, method=method)
    assert (series.field * VOLUMES).sum() == pytest.approx(total, **CLOSE)


SMOOTH = {
    "a text": "sin(3*t)*x",
    "of short waves": "sin(pi*t)*x",  # zero at the end of each step
    "a function": lambda x, y, t: np.exp(-((x - t) ** 2)),
    "a corner": "where(t < 5, t, 5)",
    "a front": lambda x, y, t: 1.0 * (x < 2.5 * t),
    "what waits in space": "where(x < 3, 1, 2)*t",
}


@pytest.mark.parametrize("kind", SMOOTH)
def test_what_does_not_jump_is_no_jump(kind):
    # The first two steps have no estimate of their error, nor would those after a jump.
    errors = marched({"f": SMOOTH[kind]}).steps["time_error"]
    assert np.isnan(errors).tolist() == [True, True, *[False] * (STEPS - 2)]
    errors = marched({"f": SOURCES["a function"]}).steps["time_error"]
    assert np.flatnonzero(np.isnan(errors)).tolist() == [0, 1, 5, 6]


def test_sums_of_bdf2_are_of_second_order():
    off = []
    for steps in (20, 40):
        series = marched({"f": f"cos(t)/{AREA}"}, dt=1 / steps, steps=steps)
        off.append(abs(series.balance().sources - np.sin(1.0)))
        assert series.balance().stored == pytest.approx((series.field * VOLUMES).sum(), **CLOSE)
    assert np.log2(off[0] / off[1]) == pytest.approx(2, abs=0.2)


def test_chosen_steps_store_what_the_field_has():
    sides = {"left": m.Dirichlet("1*(t < 0.5)"), "right": m.Robin(1.0, "sin(t)")}
    problem = {"f": "where(t < 0.25, 1, 0.3*x)"}
    series = marched(problem, sides, dt=0.1, tolerance=1e-2)
    lengths = series.steps["step"]  # halved and doubled
    assert lengths.min() < 0.04
    assert lengths[-1] > 0.09
    balance, gained = series.balance(), ((series.field - series[0]) * VOLUMES).sum()
    assert balance.stored == pytest.approx(gained, rel=1e-9)
    assert balance.relative < 1e-10


@METHODS
def test_gradients_have_the_same_fields(method):
    sides = {"left": m.Dirichlet("2*(t < 3)"), "right": m.Neumann(lambda x, y, t: 1.0 * (t < 2))}
    fields = {"f": "where(t < 4, 1, 0)*x", "s": "1 + 0.1*y", "a": "1 + 0.1*x"}
    problem, time = m.Problem(DOMAIN, "heat", fields, sides), {"dt": DT, "steps": 6}
    march = m.differentiable(problem, "c", method=method, **time, settings=TIGHT["settings"])
    series = m.march(problem, 0.0, method=method, **time, **TIGHT)
    np.testing.assert_allclose(march().numpy(), np.stack([*series]), rtol=1e-9, atol=1e-10)
    march.close()


@pytest.mark.parametrize("at", [0.5, 0.6])
def test_a_march_that_goes_on_at_a_jump_has_the_same_bits(at, tmp_path):
    fields = {"f": SOURCES["a function"], "s": "1 + 0.1*x"}
    problem, path = m.Problem(DOMAIN, "heat", fields, CLOSED), tmp_path / "heat.h5"
    whole = marched(fields)
    interrupted(problem, 0.0, at, path, **TIME, **TIGHT)
    resumed = marched(fields, output=m.Output(path, resume=True))
    np.testing.assert_array_equal(resumed.field, whole.field)
    assert resumed.balance() == whole.balance()


JUMPING = ("t < 1", "floor(t)", "x*(t*2 >= y)", "t % 2", "where(t > 1, x, 0)", "fmod(t, 2)")
STEADY = (
    "t*x",
    "where(x < 1, t, 0)",
    "abs(t - 1)",
    "minimum(t, 1)",
    "sin(x)",
    "(x < 1)*t",
    "1/(2 - t)",
)


def test_what_may_jump_is_known_from_the_text():
    assert all(Expression(text, ("x", "y"), t=0.0).may_jump("t") for text in JUMPING)
    assert not any(Expression(text, ("x", "y"), t=0.0).may_jump("t") for text in STEADY)
