"""What cannot be solved on a domain that is no rectangle: one message, on all ranks."""

import numpy as np
import pytest

from mosaicdd import Domain, Neumann, Problem, solve


def islands(n=64):
    mask = np.zeros((n + 1, n + 1), bool)
    mask[:20], mask[30:40, 10:20] = True, True
    return Domain.from_mask(mask, 1 / n)


def bridged(width):
    """Return two rooms of cells with a corridor between them, so many cells wide."""
    cells = np.zeros((32, 64), bool)
    cells[4:28, 4:20] = cells[4:28, 44:60] = cells[12 : 12 + width, 20:44] = True
    return cells


def bumped():
    """Return a board with a bump of cells, one cell wide."""
    cells = np.zeros((32, 64), bool)
    cells[:20] = cells[20:23, 30] = True
    return Domain.from_mask(cells, 1.0, per_cell=True)


REFUSED = {
    "a floating part": (
        lambda: Problem(islands(), "poisson", {"f": 1.0}, {"outline": Neumann()}),
        r"part 2 of the 2 parts of the domain, 100 nodes from \(0.15625, 0.46875\) on, has no given",
    ),
    "a flux through a staircase": (
        lambda: Problem(islands(), "poisson", {}, {"outline": Neumann(1.0)}),
        "the length of a mask's outline is not known",
    ),
    "an outline that is not there": (
        lambda: Problem(
            Domain.from_distance("abs(hypot(x - 0.5, y - 0.5) - 0.3) - 0.1", (64, 64), 1 / 64),
            "laplace",
            sides={"hole2": Neumann()},
        ),
        "the domain has no outline hole2: its outlines are outer, hole1",
    ),
    "a side that the outline replaces": (
        lambda: Problem(
            Domain.from_polygons(
                [[0, 0], [1, 0], [1, 0.7], [0, 1]], cells=(64, 64), spacing=1 / 64
            ),
            "laplace",
            sides={"left": Neumann("y"), "outer": Neumann(0.0)},
        ),
        "the side left: the outline of the domain runs along this side, .* name outer in its place",
    ),
    "an outline of a rectangle": (
        lambda: Problem((64, 64), "laplace", sides={"hole1": Neumann()}),
        "the domain has no outline hole1: it is a rectangle",
    ),
    "a thin hole": (
        lambda: Problem(
            Domain.from_mask(np.pad(np.zeros((1, 9)), 30, constant_values=1)), "laplace"
        ),
        r"1 holes thinner than a cell, the first at node \(30, 30\)",
    ),
    "nothing inside": (
        lambda: Problem(Domain.from_distance("1 + x*x", (64, 64)), "laplace"),
        "there are none inside the domain",
    ),
    "a bridge of one cell": (
        lambda: Domain.from_mask(bridged(1), per_cell=True),
        r"falls apart where it is one cell wide, as near cell \(12, 20\)",
    ),
    "a bump of one cell": (
        lambda: Problem(bumped(), "poisson", {"f": 1.0}, {"outline": Neumann(0.0)}),
        r"3 cells without a node inside, .* the first at \(20, 30\) \(row, column\)",
    ),
    "an empty mask": (lambda: Domain.from_mask(np.zeros((9, 9))), "the mask is true nowhere"),
    "no mask": (lambda: Domain.from_mask(np.full((9, 9), 0.5)), "is true or false, got values"),
    "a level that is not finite": (
        lambda: Problem(Domain.from_distance("log(x - 0.1)", (64, 64)), "laplace"),
        "the field domain has .* values that are not finite",
    ),
    "a level of another shape": (
        lambda: Domain.from_distance(np.zeros((9, 9)), (16, 16)),
        r"the field domain has the shape \(9, 9\), the grid has \(17, 17\) nodes",
    ),
    "an incompatible flux": (
        lambda: Problem(
            Domain.from_distance("hypot(x - 0.5, y - 0.5) - 0.4", (64, 64), 1 / 64),
            "laplace",
            sides={"outline": Neumann(1.0)},
        ),
        r"100\.0% of the sources and fluxes are left over",
    ),
}


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_on_all_ranks(comm, make, message):
    with pytest.raises(ValueError, match=message) as raised:
        solve(make(), ranks=comm)
    assert "\n" not in str(raised.value)


def test_where_values_are_given_a_bump_of_one_cell_changes_nothing():
    straight = np.zeros((32, 64), bool)
    straight[:20] = True
    fields = [
        solve(Problem(domain, "poisson", {"f": 1.0})).field[:20]
        for domain in (bumped(), Domain.from_mask(straight, 1.0, per_cell=True))
    ]
    np.testing.assert_array_equal(*fields)
