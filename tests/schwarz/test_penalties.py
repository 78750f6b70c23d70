"""Residuals say something of the values, whatever a penalty or an offset adds to right-hand sides."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.solvers.references import solve_directly

N = 32
# Values are given on three sides, so the inverse of the grid's operator has a norm below N^2 / pi^2 = 104; what
# varies on these has one below 10.
AMPLIFIED = 1e3
RTOL = 1e-11
TIGHT, CLOSE = m.SolveSettings(rtol=RTOL), AMPLIFIED * RTOL
ALPHAS = 10.0 ** np.arange(0, 17, 4)
BOX = m.Domain((N, 2 * N), 1 / (2 * N))  # for three ranks
SHAPE = (N + 1, 2 * N + 1)


def saddle(offset):
    """Return a solution of Laplace's equation, without a flux at x = 0, that is one of the grid's, too."""
    return lambda x, y: offset + x * x - y * y


def beside(alpha, g, **others):
    """Return sides of which the left one exchanges with values that a solution has there, without a flux."""
    return {"left": m.Robin(alpha, lambda x, y: alpha * g(x, y))} | {
        side: others.get(side, m.Dirichlet(g)) for side in ("right", "top", "bottom")
    }


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize(("offset", "rtol"), [(0.0, RTOL), (1.0, RTOL), (1e6, 1e-8)])
@pytest.mark.parametrize("a", [1.0, 1e-7])
def test_an_exchange_however_large_gives_right_values(comm, a, offset, rtol):
    g, counts, settings = saddle(offset), [], m.SolveSettings(rtol=rtol)
    for alpha in ALPHAS:
        problem = m.Problem(BOX, "diffusion", {"a": a}, beside(a * alpha, g))
        solution = m.solve(problem, settings=settings, ranks=comm)
        assert solution.converged
        counts.append(solution.iterations)
        error = abs(solution.gather() - g(solution.x, solution.y[:, None])).max()
        assert error < AMPLIFIED * rtol, alpha
    assert max(counts) <= min(counts) + 4, counts


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize(
    ("pde", "fields"),
    [
        ("poisson", {}),
        ("advection-diffusion", {"bx": 3.0, "by": -20.0}),
        ("screened-poisson", {"c": 3.0, "f": 3.0}),
        ("quasilinear-diffusion", {"k": "1 + u*u"}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_one_is_one_beside_any_exchange(comm, pde, fields):
    for alpha in ALPHAS:
        sides = beside(alpha, lambda x, y: np.ones(np.broadcast(x, y).shape))
        solution = m.solve(m.Problem(BOX, pde, fields, sides), ranks=comm)
        assert solution.converged
        assert abs(solution.gather() - 1.0).max() < CLOSE, alpha


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("alpha", [1e4, 1e16])
def test_steps_in_time_beside_an_exchange_stay_where_nothing_drives_them(comm, alpha):
    g = saddle(2.0)
    problem = m.Problem(BOX, "heat", {}, beside(alpha, g))
    series = m.march(problem, g, dt=0.05, steps=3, settings=TIGHT, ranks=comm)
    assert series.converged
    assert abs(series.gather() - g(series.x, series.y[:, None])).max() < CLOSE


def mask_with_a_step():
    """Return a domain of cells without those in its upper right."""
    mask = np.ones((N, N), bool)
    mask[20:, 20:] = False
    return m.Domain.from_mask(mask, 1 / N, per_cell=True)


@pytest.mark.parametrize(
    ("domain", "side"),
    [
        (m.Domain.from_distance("0.2 - hypot(x - 0.55, y - 0.5)", (N, N), 1 / N), "left"),
        (mask_with_a_step(), "outline"),
    ],
    ids=["hole", "mask"],
)
def test_one_is_one_in_shapes_beside_any_exchange(domain, side):
    for alpha in ALPHAS:
        sides = {"left": m.Dirichlet(1.0), "outline": m.Dirichlet(1.0), "right": m.Neumann()}
        sides |= {"top": m.Dirichlet(1.0), "bottom": m.Neumann(), side: m.Robin(alpha, alpha)}
        solution = m.solve(m.Problem(domain, "poisson", {}, sides))
        assert solution.converged
        assert np.nanmax(abs(solution.field - 1.0)) < CLOSE, alpha


@pytest.mark.parametrize("level", [0.0, 90.0])
def test_values_that_a_local_reaction_asks_for_hold_beside_it_and_say_nothing_of_the_rest(level):
    # A river: a column of nodes whose reaction asks for the level, and a source of water beside it.
    c, f = np.zeros(SHAPE), np.ones(SHAPE)
    c[:, 10] = 1e12
    f[:, 10] = level * c[:, 10]
    problem = m.Problem(BOX, "diffusion", {"c": c, "f": f, "a": 2.5e-4}, m.Dirichlet(level))
    solution = m.solve(problem)
    assert solution.converged
    reference = solve_directly(problem)
    assert np.ptp(reference) > 30  # of what the source drives, whatever the level
    assert abs(solution.field - reference).max() < 1e-5 * np.ptp(reference)


def test_an_offset_changes_no_iteration():
    rng = np.random.default_rng(0)
    a, f = np.exp(rng.standard_normal(SHAPE)), rng.standard_normal(SHAPE)
    fields = {"a": a, "f": f, "c": 2.0}
    counts, solutions = [], []
    for offset in (0.0, 1e2, 1e5):
        given = fields | {"f": f + 2.0 * offset}
        solution = m.solve(
            m.Problem(m.Domain(BOX.cells, 1.0), "diffusion", given, m.Dirichlet(offset))
        )
        counts.append(solution.iterations)
        solutions.append(solution.field - offset)
    assert len(set(counts)) == 1, counts
    for field in solutions[1:]:  # a residual of 1e-7, and the rounding of 1e5
        assert abs(field - solutions[0]).max() < 1e-6 * np.ptp(solutions[0])


@pytest.mark.parametrize("pde", ["diffusion", "advection-diffusion", "quasilinear-diffusion"])
def test_units_of_coefficients_and_data_change_no_iteration_or_are_refused(pde):
    rng = np.random.default_rng(0)
    a, f, found = np.exp(rng.standard_normal(SHAPE)), rng.standard_normal(SHAPE), []
    velocity = {"bx": 3.0} if pde.startswith("advection") else {}

    def problem(scale):
        flow = {name: scale * value for name, value in velocity.items()}
        return m.Problem(BOX, pde, {"a": scale * a, "f": scale * f} | flow, m.Dirichlet("x"))

    for scale in (1.0, 1e-20, 1e20, 1e-120, 1e120):
        solution = m.solve(problem(scale))
        found.append((solution.iterations, solution.field))
    for iterations, field in found[1:]:
        assert iterations == found[0][0]
        assert abs(field - found[0][1]).max() < 1e-9  # rounding, times the condition of 32^2 cells
    for scale in (1e-200, 1e200):
        with pytest.raises(ValueError, match="multiply coefficients, sources, fluxes and alpha"):
            m.solve(problem(scale))


@pytest.mark.parametrize("pde", ["poisson", "diffusion"])
def test_values_that_have_lost_digits_are_small_absolutely(pde):
    fields = {"f": 1e-305} | ({"a": "1 + x"} if pde == "diffusion" else {})
    solution = m.solve(m.Problem(BOX, pde, fields, m.Dirichlet(0.0)))
    assert solution.status == "converged_atol"
    assert 0 < abs(solution.field).max() < 1e-305
    assert m.solve(m.Problem(BOX, pde, fields | {"f": 0.0})).status == "converged_rtol"


def test_an_exchange_beyond_the_range_of_float32_is_refused():
    problem = m.Problem(BOX, "poisson", {}, beside(1e100, saddle(0.0)))
    with pytest.raises(ValueError, match="an exchange or a reaction that large give the value"):
        m.solve(problem)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_constant_is_certified(alpha):
    sides = beside(alpha, lambda x, y: np.full(np.broadcast(x, y).shape, 1.3))
    problem = m.Problem(BOX, "diffusion", {"a": "1 + x"}, sides)
    solution = m.solve(problem, settings=m.SolveSettings(certify=1e-12))
    assert solution.status == "converged_rtol"
    assert abs(solution.field - 1.3).max() < 1e-12


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("pde", ["poisson", "diffusion"])
def test_of_values_that_are_beyond_float64_it_is_said(comm, pde):
    a = {"a": "1e-100 * (1 + x)" if pde == "diffusion" else 1e-100}
    solution = m.solve(m.Problem(BOX, "diffusion", a | {"f": "1e300*x"}), ranks=comm)
    assert solution.status == "diverged_nan"
    assert "of up to 1e+300 are given" in solution.report["failure"]


@pytest.mark.parametrize("unit", [1e-200, 1e-155])
def test_numbers_whose_products_vanish_are_a_tensor_all_the_same(unit):
    one, other = (
        m.solve(m.Problem(BOX, "diffusion", {"a": scale, "f": scale}), "exact")
        for scale in (1.0, unit)
    )
    assert other.status == "converged_rtol"
    close = (
        10 * 1e-7 * one.field.max()
    )  # an update of rtol times the size is earned within ten times
    np.testing.assert_allclose(other.field, one.field, rtol=0, atol=close)


@pytest.mark.parametrize("value", [1e-310, 1e-295])
@pytest.mark.filterwarnings("error")
def test_values_next_to_nothing_are_no_failure(value):
    solution = m.solve(m.Problem((32, 32), "laplace", sides=m.Dirichlet(value)))
    assert solution.status == "converged_atol"
    assert abs(solution.field).max() <= 2 * value
