"""Periodic sides on ranks: alike on all, also where a rank is its own neighbour; refusals on all of them."""

import numpy as np
import pytest
from periods import periodic

from mosaicdd import Domain, Neumann, Periodic, Problem, Robin, SolveSettings, solve
from mosaicdd.solvers.references import solve_directly

TIGHT = SolveSettings(rtol=1e-11)


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


@pytest.mark.ranks(1, 4)
def test_a_window_may_hold_the_copies(in_window):
    problem = Problem(Domain((90, 70), 1 / 64), "poisson", {"f": "x+y"}, periodic("x"))
    fields = in_window(problem, ((0.3, 1.2), (0.5, 70 / 64)))
    np.testing.assert_array_equal(*fields)


@pytest.mark.ranks(1, 2, 4)
def test_a_flow_comes_round_on_all_ranks(comm):
    fields = {"bx": "200*y", "by": 50.0, "f": "1 + sin(5*x)"}
    problem = Problem(Domain((70, 83), 1 / 64), "advection-diffusion", fields, periodic("x"))
    solution = solve(problem, ranks=comm, settings=TIGHT)
    assert abs(solution.gather() - solve_directly(problem)).max() < 1e-11
