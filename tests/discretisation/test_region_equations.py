"""The equations of a region, strip by strip, against those of all of it at once."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.region_equations import region_equations
from mosaicdd.problems.operators.medium import medium_of

CELLS = 90, 70  # in y and x: strips of 32 rows do not fit


def holes(x, y):
    return np.maximum(
        0.21 - np.hypot(x % 0.5 - 0.25, y % 0.5 - 0.21), np.hypot(x - 1.5, y - 0.5) - 1.2
    )


def mask():
    inside = np.ones((CELLS[0] + 1, CELLS[1] + 1), bool)
    inside[20:52, 30:61] = inside[40:, :7] = False
    return inside


NATURAL = {"outline": m.Robin(2.0, "x"), "left": m.Neumann(1.0), "top": m.Robin(0.3, 1.0)}
CASES = {
    "a rectangle": (None, {"left": m.Neumann(), "top[0.1:0.5]": m.Robin(1.0, 2.0)}),
    "fluxes all round": (None, m.Neumann()),
    "given outlines": ("distance", {"outline": m.Dirichlet("x*y"), "left": m.Neumann()}),
    "natural outlines": ("distance", NATURAL),
    "one hole is natural": ("distance", {"hole1": m.Neumann(1.0), "outline": m.Dirichlet(1.0)}),
    "a periodic rectangle": (
        None,
        {
            "left": m.Periodic(),
            "right": m.Periodic(),
            "top": m.Robin(0.5, 1.0),
            "bottom[:0.9]": m.Neumann(),
        },
    ),
    "periodic along both axes": (None, m.Periodic()),
    "no value anywhere": (
        "distance",
        {side: m.Neumann() for side in ("outline", "left", "right", "bottom", "top")},
    ),
    "a mask": ("mask", {"outline": m.Neumann(), "left": m.Neumann()}),
}


@pytest.mark.parametrize("c", [0.0, 3.0])
@pytest.mark.parametrize("name", CASES)
def test_they_are_those_of_all_at_once(name, c):
    shape, sides = CASES[name]
    if shape is None:
        domain = m.Domain(CELLS, 1 / 40)
    elif shape == "mask":
        domain = m.Domain.from_mask(mask(), 1 / 40)
    else:
        domain = m.Domain.from_distance(holes, CELLS, 1 / 40)
    problem = m.Problem(domain, "diffusion", {"a": 0.7, "c": c}, sides)
    grid = domain.grid(1 / 40)
    discretisation = Discretisation(problem, medium_of(problem.operator), grid)
    for part in ((slice(-9, 82), slice(-11, 101)), (slice(3, 55), slice(40, 91))):
        expected, found = discretisation.equations(part), region_equations(discretisation, part)
        inner = slice(1, -1), slice(1, -1)  # as neither knows what is beyond
        for one, other in zip(
            expected.conductances.arrays(), found.conductances.arrays(), strict=True
        ):
            np.testing.assert_array_equal(one[inner], other[inner])
        np.testing.assert_array_equal(expected.active[inner], found.active[inner])
        here = expected.active & found.active
        np.testing.assert_array_equal(expected.volumes[here], found.volumes[here])
        cut = slice(1, here.shape[0] - 1), slice(1, here.shape[1] - 1)
        one, other = expected.part(*cut), found.part(*cut)
        pairs = [(one.ties, other.ties, ("nodes", "known", "conductances"))]
        if shape is not None:
            np.testing.assert_array_equal(one.outlines.reported, other.outlines.reported)
            names = "nodes", "points", "weights", "outlines"
            pairs += [
                (getattr(one.outlines, kind), getattr(other.outlines, kind), names)
                for kind in ("ties", "natural", "on")
            ]
            names = "nodes", "points", "outlines", "lengths", "distances"
            pairs.append((one.outlines.natural, other.outlines.natural, names))
        for some, others, names in pairs:
            some, others = (
                np.column_stack([getattr(each, name) for name in names]) for each in (some, others)
            )
            np.testing.assert_allclose(
                *(each[np.lexsort(each.round(6).T[::-1])] for each in (some, others)), atol=1e-12
            )
