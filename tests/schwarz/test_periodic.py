"""Periodic sides: second order, against a matrix of wrapped neighbours, alike on all ranks."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
import torch
from media import MEDIA

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.interface import Interface
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.references.references import solve_by_multigrid, solve_directly
from mosaicdd.problems.sides.conditions import Dirichlet, Neumann, Periodic, Robin
from mosaicdd.schwarz.layouts import InterfaceMovement, block_of
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.solver import Solver, solve

TIGHT = SolveSettings(rtol=1e-11)
PAIRS = {"x": ("left", "right"), "y": ("bottom", "top")}
AXES = ("x", "y", "xy")


def periodic(axes):
    """Return periodic sides along some axes."""
    return {side: Periodic() for axis in axes for side in PAIRS[axis]}


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


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize(
    ("axes", "cells"),
    [
        ("x", (96, 128)),
        ("y", (100, 90)),
        ("xy", (100, 90)),
        pytest.param("x", (100, 90), marks=pytest.mark.nightly),
        pytest.param("y", (96, 128), marks=pytest.mark.nightly),
        pytest.param("xy", (96, 128), marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_all_numbers_of_ranks_give_the_same(alone_and_together, axes, cells):
    rng = np.random.default_rng(1)
    fields = {"a": np.exp(rng.standard_normal(cells)), "f": "sin(2*pi*x) + cos(3*y)"}
    if axes == "xy":
        fields["c"] = 1.0
    sides = periodic(axes) | (
        {} if "x" in axes else {"left": Neumann(1.0), "right": Robin(1.0, "y")}
    )
    problem = Problem(Domain(cells, 1 / 32), "diffusion", fields, sides)
    alone, together = alone_and_together(solve, problem, settings=TIGHT)
    assert abs(together.iterations - alone.iterations) <= 1
    assert abs(together.gather() - alone.field).max() < 1e-10 * abs(alone.field).max()
    # Each estimate is of its own error: iterates in float32 differ by that much at early ends.
    alone_early, early = alone_and_together(solve, problem, settings=SolveSettings(rtol=1e-6))
    early.gather()
    for solution in (alone_early, early):
        rms = np.sqrt(((solution.field - alone.field) ** 2).mean())
        assert 1 <= solution.error_estimate / rms <= 5
    assert "x" not in axes or np.array_equal(together.field[:, 0], together.field[:, -1])
    assert "y" not in axes or np.array_equal(together.field[0], together.field[-1])


@pytest.mark.ranks(1, 4)
@pytest.mark.parametrize("dims", [(1, 4), (4, 1), (2, 2)])
def test_a_rank_may_be_its_own_neighbour(comm, dims):
    problem = Problem(Domain((70, 70), 0.1), "screened-poisson", {"c": 1.0, "f": "x*y"}, Periodic())
    settings = TIGHT.with_changes(dims=dims if comm.size == 4 else None)
    solution = solve(problem, ranks=comm, settings=settings)
    assert abs(solution.gather() - solve_directly(problem)).max() < 1e-10


@pytest.mark.ranks(1, 2, 3)
def test_what_is_periodic_all_round_is_known_up_to_a_constant(comm):
    sides, cells = Periodic(), (64, 50)
    with pytest.raises(ValueError, match=r"100\.0% of the sources and fluxes are left over"):
        solve(Problem(Domain(cells, 0.1), "poisson", {"f": 1.0}, sides), ranks=comm)
    f = "1e-3 + sin(2*pi*x/5)"
    solution = solve(Problem(Domain(cells, 0.1), "poisson", {"f": f}, sides), ranks=comm)
    # The mean of |sin| is 2 / pi, on the grid as well to h^2.
    assert solution.report["imbalance"] == pytest.approx(1e-3 * np.pi / 2, rel=1e-2)
    assert abs(solution.gather()[:-1, :-1].mean()) < 1e-12


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ({"left": Periodic()}, "the side left is periodic, the side right is not; give both"),
        ({"top": Periodic()}, "the side top is periodic, the side bottom is not; give both"),
        (
            {"left": Periodic(), "right": Periodic(), "left[0:1]": Neumann()},
            r"the side left is periodic, so nothing else holds on left\[0:1\]",
        ),
        ({"left[0:1]": Periodic(), "right": Periodic()}, r"left\[0:1\] is periodic: a side is so"),
    ],
)
def test_what_is_not_a_pair_is_refused_on_all_ranks(comm, sides, message):
    with pytest.raises(ValueError, match=message):
        solve(Problem(Domain((64, 64)), "laplace", sides=sides), ranks=comm)


@pytest.mark.ranks(1, 2, 3)
def test_too_few_cells_are_refused(comm):
    problem = Problem(Domain((64, 16)), "laplace", sides=periodic("x"))
    with pytest.raises(ValueError, match="nx must be at least 17 between periodic sides"):
        solve(problem, ranks=comm)


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


@pytest.mark.ranks(1, 4)
def test_a_window_may_hold_the_copies(comm):
    problem = Problem(Domain((90, 70), 1 / 64), "poisson", {"f": "x+y"}, periodic("x"))
    whole = solve(problem, ranks=comm)
    window = solve(problem, ranks=comm, window=((0.3, 1.2), (0.5, 70 / 64)))
    rows, columns = np.isin(whole.y, window.y), np.isin(whole.x, window.x)
    np.testing.assert_array_equal(window.gather(), whole.gather()[rows][:, columns])


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


@pytest.mark.ranks(1, 2, 4)
def test_a_flow_comes_round_on_all_ranks(comm):
    fields = {"bx": "200*y", "by": 50.0, "f": "1 + sin(5*x)"}
    problem = Problem(Domain((70, 83), 1 / 64), "advection-diffusion", fields, periodic("x"))
    solution = solve(problem, ranks=comm, settings=TIGHT)
    assert abs(solution.gather() - solve_directly(problem)).max() < 1e-11


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


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("axes", AXES)
def test_an_interface_goes_to_the_root_and_back_as_for_a_checkpoint(comm, axes):
    around = "y" in axes, "x" in axes
    grid = Grid((100, 83), 0.1)
    lattice = Lattice.around(grid, Subdomain(32, 3.2), around)
    rng = np.random.default_rng(0)
    (y0, x0), (y1, x1) = lattice.first_node, lattice.last_node
    field = rng.standard_normal((y1 - y0 + 1, x1 - x0 + 1))
    if around[0]:
        field[-1] = field[0]
    if around[1]:
        field[:, -1] = field[:, 0]
    s = lattice.spacing
    lines = field[::s], field[:, ::s].T
    with Ranks.of(comm) as ranks:
        ranks = ranks.fitted(lattice.subdomains)
        block = block_of(ranks, lattice, ranks.rank)
        v = Interface(block, device=torch.device("cpu"), dtype=torch.float64)
        movement = InterfaceMovement(ranks, lattice, 1)
        movement.scatter(lines if ranks.is_root else None, v)
        rows, columns = (
            (np.arange(a, a + n + 1) - low) % (count - 1)
            if wraps
            else np.arange(a, a + n + 1) - low
            for a, n, low, count, wraps in zip(
                block.origin, block.cells, (y0, x0), field.shape, around, strict=True
            )
        )
        region = field[np.ix_(rows, columns)]
        np.testing.assert_array_equal(v.lines[0][0], region[::s])
        np.testing.assert_array_equal(v.lines[1][0], region[:, ::s].T)
        for axis in (0, 1):
            back = np.zeros_like(lines[axis])
            movement.gather(v, axis, lambda part, place, back=back: back.__setitem__(place, part))
            if ranks.is_root:
                np.testing.assert_array_equal(back, lines[axis])
