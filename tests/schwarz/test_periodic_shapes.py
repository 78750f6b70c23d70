"""Domains that are no rectangles between periodic sides: second order, alike on all ranks."""

import numpy as np
import pytest

from mosaicdd import Dirichlet, Domain, Neumann, Periodic, Problem, Robin, SolveSettings, solve
from mosaicdd.solvers.references import solve_directly

TIGHT = SolveSettings(rtol=1e-11)
PAIRS = {"left": Periodic(), "right": Periodic()}


def across(x, y):
    """Return a level of what is around a hole in the middle of two sides, which are one."""
    return 0.3 - np.hypot(np.minimum(x, 1 - x), y - 0.5)


@pytest.mark.parametrize("n", [48, 49, 61])
@pytest.mark.parametrize("hole", [Dirichlet("y*y"), Neumann(0.0), Robin(1.0, "y")], ids=str)
def test_a_hole_across_the_sides_is_that_in_the_middle(n, hole):
    middle = Domain.from_distance("0.3 - hypot(x - 0.5, y - 0.5)", (n, n), 1 / n)
    one, other = (
        Problem(domain, "poisson", {"f": "y"}, PAIRS | {"outline": hole})
        for domain in (middle, Domain.from_distance(across, (n, n), 1 / n))
    )
    field = solve(other, settings=TIGHT).field
    np.testing.assert_allclose(field, solve_directly(other), atol=1e-9)
    np.testing.assert_array_equal(field[:, 0], field[:, -1])
    if n % 2 == 0:
        moved = np.roll(solve(one, settings=TIGHT).field[:, :-1], n // 2, axis=1)
        np.testing.assert_allclose(field[:, :-1], moved, atol=1e-9)


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("both", [False, True])
def test_a_hole_across_the_sides_has_a_name_like_others(comm, both):
    """Moved by half the width it is the other hole, and the bottom is the middle where that is periodic."""
    n, around = 64, PAIRS | {"bottom": Periodic(), "top": Periodic()} if both else PAIRS
    level = "0.18 - minimum({}, {})"
    across = "hypot(minimum(x, 1 - x), y - 0.3)"
    inside = "hypot(x - 0.5, y - 0.7)"
    moved = "hypot(minimum(x, 1 - x), y - 0.7)", "hypot(x - 0.5, y - 0.3)"
    first, second = {"hole1": Dirichlet(1.0)}, {"hole2": Robin(2.0, "y")}
    one, other = (
        solve(
            Problem(
                Domain.from_distance(level.format(*distances), (n, n), 1 / n),
                "poisson",
                {"f": 1.0},
                around | first | second,
            ),
            ranks=comm,
            settings=TIGHT,
        ).gather()
        for distances in ((across, inside), moved)
    )
    np.testing.assert_allclose(np.roll(other[:, :-1], n // 2, axis=1), one[:, :-1], atol=1e-9)
    assert np.nanmax(abs(one[20] - 1)[:13]) < 0.2  # beside hole1


@pytest.mark.ranks(1, 2, 3)
def test_a_wall_between_periodic_sides_is_outer_only_at_another_side(comm):
    wall = Domain.from_distance("0.1 - abs(y - 0.5)", (64, 64), 1 / 64)
    names = PAIRS | {"hole1": Dirichlet(1.0), "bottom": Dirichlet(0.0), "top": Dirichlet(2.0)}
    field = solve(Problem(wall, "laplace", sides=names), ranks=comm, settings=TIGHT).gather()
    y = np.arange(65) / 64
    exact = np.where(y < 0.4, y / 0.4, 1 + (y - 0.6) / 0.4)[:, None] * np.ones(65)
    there = abs(y - 0.5) > 0.1
    np.testing.assert_allclose(field[there], exact[there], atol=1e-9)
    with pytest.raises(ValueError, match="has no outline hole1: its outlines are outer"):
        solve(Problem(wall, "laplace", sides={"hole1": Dirichlet(1.0)}), ranks=comm)


def test_what_is_connected_through_the_sides_only_is_one_part():
    # Below a wall that is open at the sides; no value but at the top.
    mask = np.ones((65, 65), bool)
    mask[30:34, 6:59] = False
    mask[:30, 30:34] = False  # the lower part falls in two, which hang together around
    one = Problem(
        Domain.from_mask(mask, 1 / 64),
        "poisson",
        {"f": 1.0},
        PAIRS | {"top": Dirichlet(0.0), "outline": Neumann(0.0), "bottom": Neumann(0.0)},
    )
    assert solve(one).status == "converged_rtol"
    mask[30:34, :] = False
    with pytest.raises(ValueError, match="part 1 of the 2 parts"):
        solve(Problem(Domain.from_mask(mask, 1 / 64), "poisson", {"f": 1.0}, one.sides))


@pytest.mark.ranks(1, 2, 3)
def test_an_outline_that_does_not_go_on_is_refused(comm):
    disk = Domain.from_distance("0.3 - hypot(x, y - 0.5)", (64, 64), 1 / 64)
    with pytest.raises(
        ValueError, match=r"left and right are periodic, but the outline .* y = 0\.20"
    ):
        solve(Problem(disk, "laplace", sides=PAIRS), ranks=comm)


def test_an_outline_is_not_periodic():
    disk = Domain.from_distance("hypot(x - 2, y - 2) - 1", (64, 64), 1 / 16)
    with pytest.raises(ValueError, match="the side outline is periodic: an outline has a value"):
        Problem(disk, "laplace", sides=Periodic())
