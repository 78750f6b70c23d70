"""Periodic sides: second order, against a matrix of wrapped neighbours, alike on all ranks."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from media import MEDIA
from periods import AXES, PAIRS, periodic

from mosaicdd import Dirichlet, Domain, Neumann, Problem, Solver, SolveSettings, solve
from mosaicdd.solvers.references import solve_by_multigrid, solve_directly

TIGHT = SolveSettings(rtol=1e-11)


def manufactured(n, axes, *, varying):
    """Return a problem on ``2 x 1`` and its solution, with ``n`` cells to the unit.

    Along periodic axes it is ``sin(2 pi x + 1)``, or ``sin(2 pi y)``, along the others an exponential.
    """
    ways = {"x": "x" in axes, "y": "y" in axes}
    p = 2 * np.pi

    def part(t, around, shift, order):
        if around:
            return p**order * np.sin(p * t + shift + order * np.pi / 2)
        return 0.5**order * np.exp(t / 2)

    def u(x, y, dx=0, dy=0):
        return part(x, ways["x"], 1.0, dx) * part(y, ways["y"], 0.0, dy)

    def a(x, y):
        return 1.5 + np.sin(p * x) * np.cos(p * y) + 0 * (x + y) if varying else np.ones_like(x + y)

    def f(x, y):
        slopes = p * np.cos(p * x) * np.cos(p * y), -p * np.sin(p * x) * np.sin(p * y)
        along = slopes[0] * u(x, y, 1) + slopes[1] * u(x, y, 0, 1) if varying else 0.0
        return -along - a(x, y) * (u(x, y, 2) + u(x, y, 0, 2))

    sides = periodic(axes)
    for axis in ("x", "y"):
        if axis not in axes:
            sides |= {
                PAIRS[axis][0]: Dirichlet(u),
                PAIRS[axis][1]: Neumann(
                    lambda x, y, axis=axis: a(x, y) * (u(x, y, 1) if axis == "x" else u(x, y, 0, 1))
                ),
            }
    fields = {"a": a if varying else 1.0, "f": f}
    return Problem(Domain((n, 2 * n), 1 / n), "diffusion", fields, sides), u


@pytest.mark.parametrize("kind", MEDIA)
@pytest.mark.parametrize("axes", AXES)
def test_odd_numbers_of_lattice_cells_are_solved_as_soon_in_any_medium(axes, kind):
    n = 5 * 16
    rng = np.random.default_rng(0)
    f = rng.standard_normal((n, n))
    f = np.pad(f - f.mean(), ((0, 1), (0, 1)), mode="wrap")
    fields = {"a": MEDIA[kind]((n, n), rng), "f": f}
    solution = solve(
        Problem(Domain((n, n)), "diffusion", fields, periodic(axes)),
        settings=SolveSettings(rtol=1e-8),
    )
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 16


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("axes", AXES)
def test_solutions_are_of_second_order_in_the_largest_error(axes, varying):
    errors = []
    for n in (20, 40, 80, 160):
        problem, u = manufactured(n, axes, varying=varying)
        solution = solve(problem, settings=TIGHT)
        assert solution.status == "converged_rtol"
        truth = u(solution.x, solution.y[:, None])
        errors.append(abs(solution.field - truth).max())
    # Of mean zero on both: the trapezoidal rule is exact for what is periodic.
    assert (np.log2(np.array(errors[:-1]) / np.array(errors[1:])) > 1.9).all(), errors


def wrapped(a, c, h, axes):
    """Return the matrix of a medium of values per cell on ``(ny, nx)`` nodes that come round.

    Where an axis is not periodic, the values on both sides are zero: it has a node less.
    """
    numbers = np.arange(a.size).reshape(a.shape)
    right, up = 0.5 * (a + np.roll(a, 1, 0)), 0.5 * (a + np.roll(a, 1, 1))
    diagonal = right + np.roll(right, 1, 1) + up + np.roll(up, 1, 0) + c * h * h
    entries = [(numbers, numbers, diagonal)]
    for axis, k in ((1, right), (0, up)):
        there = np.roll(numbers, -1, axis)
        entries += [(numbers, there, -k), (there, numbers, -k)]
    rows, columns, values = (
        np.concatenate([part.ravel() for part in parts]) for parts in zip(*entries, strict=True)
    )
    matrix = scipy.sparse.csr_array((values, (rows, columns)))
    inner = numbers[0 if "y" in axes else 1 :, 0 if "x" in axes else 1 :]
    return matrix[inner.ravel()][:, inner.ravel()], inner.shape


@pytest.mark.parametrize("cells", [(64, 48), (50, 70), (17, 33)], ids=str)
@pytest.mark.parametrize("axes", AXES)
def test_fields_are_those_of_a_matrix_of_wrapped_neighbours(axes, cells):
    rng = np.random.default_rng(0)
    h, a = 1 / 16, np.exp(rng.standard_normal(cells))
    f = rng.standard_normal([n + 1 for n in cells])
    problem = Problem(Domain(cells, h), "diffusion", {"a": a, "c": 2.0, "f": f}, periodic(axes))
    # What the source has on two sides that are one are halves of the same volume.
    given = f.copy()
    if "x" in axes:
        given[:, [0, -1]] = given[:, [0, -1]].mean(axis=1, keepdims=True)
    if "y" in axes:
        given[[0, -1]] = given[[0, -1]].mean(axis=0)
    matrix, shape = wrapped(a, 2.0, h, axes)
    inner = given[:-1, :-1][-shape[0] :, -shape[1] :]
    u = scipy.sparse.linalg.spsolve(matrix.tocsc(), h * h * inner.ravel()).reshape(shape)
    solution, reference = solve(problem, settings=TIGHT), solve_directly(problem)
    for field in (solution.field, reference):
        within = field[:-1, :-1][-shape[0] :, -shape[1] :]
        assert abs(within - u).max() < 1e-9 * abs(u).max()
        assert "x" not in axes or np.array_equal(field[:, 0], field[:, -1])
        assert "y" not in axes or np.array_equal(field[0], field[-1])
    assert solution.report["discrete_residual"] <= 1e-11


def test_pyamg_agrees():
    problem, _ = manufactured(48, "x", varying=True)
    assert abs(solve_by_multigrid(problem) - solve_directly(problem)).max() < 1e-7


def test_given_values_that_differ_at_both_ends_have_their_mean_there():
    problem = Problem(
        Domain((32, 64), 1 / 64), "laplace", sides=periodic("x") | {"top": Dirichlet("x")}
    )
    field = solve(problem, settings=TIGHT).field
    assert field[-1, 0] == field[-1, -1] == 0.5
    assert abs(field - solve_directly(problem)).max() < 1e-10


def test_iterations_are_those_of_the_square():
    a = np.exp(np.random.default_rng(0).standard_normal((256, 256)))
    counts = {}
    for axes in ("", *AXES):
        fields = {"a": a, "f": "sin(2*pi*x/4)"}
        problem = Problem(Domain((256, 256)), "diffusion", fields, periodic(axes) or Dirichlet())
        solution = solve(problem)
        assert solution.status == "converged_rtol"
        counts[axes] = solution.iterations
    assert max(counts.values()) <= 1.5 * counts[""], counts


@pytest.mark.parametrize("varying", [pytest.param(False, marks=pytest.mark.nightly), True])
@pytest.mark.parametrize("axes", AXES)
def test_iterations_do_not_grow_where_cells_are_just_above_a_multiple_of_16(axes, varying):
    counts = []
    for n in (96, 97, 107):
        a = np.exp(np.random.default_rng(0).standard_normal((n, n))) if varying else 1.0
        fields = {"a": a, "c": 0.1, "f": "sin(2*x) + y"}
        counts.append(
            solve(Problem(Domain((n, n)), "diffusion", fields, periodic(axes))).iterations
        )
    assert max(counts) <= max(counts[0] + 2, 12), counts


@pytest.mark.parametrize("axes", ["x", "xy"])
def test_the_error_estimate_bounds_the_error(axes):
    rng = np.random.default_rng(1)
    fields = {"a": np.exp(rng.standard_normal((80, 90))), "f": rng.standard_normal((81, 91))}
    fields["f"] -= trapezoidal_mean(fields["f"])
    problem = Problem(Domain((80, 90)), "diffusion", fields, periodic(axes))
    solution = solve(problem, settings=SolveSettings(rtol=1e-4))
    rms = np.sqrt(((solution.field - solve_directly(problem)) ** 2).mean())
    assert 1 <= solution.error_estimate / rms <= 30


def trapezoidal_mean(f):
    return np.mean(
        [f[y, x].mean() for y in (slice(1, None), slice(-1)) for x in (slice(1, None), slice(-1))]
    )


def test_new_values_need_no_new_plan():
    problem = Problem(Domain((64, 70), 0.1), "poisson", {"f": "x"}, periodic("x"))
    others = [
        problem.with_fields(f="x*y"),
        problem.with_sides(periodic("x") | {"top": Dirichlet(1)}),
    ]
    with Solver(problem, settings=TIGHT) as solver:
        first = solver()
        planned = list(solver._setup.bound.planned.values())
        for other in others:
            solution = solver(other, start=first)
            assert abs(solution.field - solve_directly(other)).max() < 1e-8
        assert list(solver._setup.bound.planned.values()) == planned
        with pytest.raises(ValueError, match="make a new one"):
            solver(problem.with_sides(periodic("y")))


@pytest.mark.parametrize("axes", AXES)
def test_a_flow_through_periodic_sides_is_of_second_order(axes):
    errors = []
    for n in (40, 80, 160):
        still, u = manufactured(n, axes, varying=False)

        def f(x, y, still=still, u=u):
            flow = (20 + np.sin(2 * np.pi * y)) * u(x, y, 1) + 5 * u(x, y, 0, 1)
            return still.fields["f"](x, y) + flow + u(x, y)

        fields = {"f": f, "bx": "20 + sin(2*pi*y)", "by": 5.0, "c": 1.0}
        problem = Problem(still.domain, "advection-diffusion", fields, still.sides)
        solution = solve(problem, settings=TIGHT)
        assert solution.status == "converged_rtol"
        errors.append(abs(solution.field - u(solution.x, solution.y[:, None])).max())
    assert (np.log2(np.array(errors[:-1]) / np.array(errors[1:])) > 1.8).all(), errors


@pytest.mark.parametrize("speed", [1e3, 1e5])  # cell Peclet numbers of 16 and 1600
@pytest.mark.parametrize("axes", AXES)
def test_a_fast_flow_is_that_of_the_grid_where_the_lattice_is_longer(axes, speed):
    fields = {"bx": f"{speed}*(1 + y)", "by": -speed, "c": 1.0, "f": "1 + sin(5*x)"}
    problem = Problem(Domain((58, 79), 1 / 64), "advection-diffusion", fields, periodic(axes))
    expected = solve_directly(problem)
    assert abs(solve(problem, settings=TIGHT).field - expected).max() < 1e-8 * abs(expected).max()


@pytest.mark.parametrize("axes", ["x", "xy"])
def test_several_problems_share_periodic_sides(axes):
    f = np.random.default_rng(0).standard_normal((3, 65, 51))
    problem = Problem(Domain((64, 50)), "screened-poisson", {"c": 1.0, "f": f}, periodic(axes))
    solution = solve(problem, settings=SolveSettings(rtol=1e-11, batch=2))
    for number, field in enumerate(solution.field):
        assert abs(field - solve_directly(problem.with_fields(f=f[number]))).max() < 1e-10
