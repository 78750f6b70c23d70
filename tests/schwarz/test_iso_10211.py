"""Thermal bridges of a standard, ISO 10211:2017, its cases 3 and 4, within the tolerances that it sets.

Its coordinates are in mm, here from the corner of the box around the case; conductivities in W/(m K).
"""

import numpy as np
import pytest

import mosaicdd as m


def conductivities(size, cell, parts):
    """Return those of the voxels of a box, sides (x, y, z) in mm; zero in air. A part is a conductivity and its ends."""
    counts = [round(length / side) for length, side in zip(size, cell, strict=True)]
    x, y, z = ((np.arange(n) + 0.5) * side for n, side in zip(counts, cell, strict=True))
    k = np.zeros(counts[::-1])
    for value, *ends in parts:
        there = [(at > low) & (at < high) for at, (low, high) in zip((x, y, z), ends, strict=True)]
        k[np.ix_(*there[::-1])] = value
    return k


def solve(k, cell, sides):
    spacing = {name: side / 1000 for name, side in zip("xyz", cell, strict=True)}
    domain = m.Domain.from_mask(k > 0, spacing)
    solution = m.solve(m.Problem(domain, "diffusion", {"a": k}, sides))
    assert solution.converged
    return solution


def air(temperature, resistance):
    return m.Robin(1 / resistance, temperature / resistance)


KNOWN = 0.540, 0.805  # of case 4: W, and degrees


def test_case_3_a_corner_with_a_balcony():
    """Of two outer walls, a floor slab goes through one of them."""
    parts = [
        (1.0, (0, 100), (600, 1900), (0, 2150)), (1.0, (0, 1300), (600, 700), (0, 2150)),
        (0.04, (100, 150), (700, 1900), (0, 2150)), (0.04, (100, 1300), (700, 750), (0, 2150)),
        *((0.7, x, y, z) for z in ((0, 1000), (1150, 2150))
          for x, y in (((150, 300), (750, 1900)), ((150, 1300), (750, 900)))),
        (2.5, (150, 1300), (0, 1900), (1000, 1150)), (1.0, (300, 1300), (900, 1900), (1150, 1200)),
    ]  # fmt: skip
    cell = (50, 25, 50)
    room = "(x > 0.299) & (y > 0.899)"
    lower, upper = f"outline[{room} & (z < 1.001)]", f"outline[{room} & (z > 1.199)]"
    sides = dict.fromkeys(["right", "top", "bottom", "back", "front"], m.Neumann(0.0))
    sides |= {"left": air(0.0, 0.05), "outline": air(0.0, 0.05)}
    sides |= {lower: air(20.0, 0.2), upper: air(15.0, 0.2)}
    solution = solve(conductivities((1300, 1900, 2150), cell, parts), cell, sides)
    warm, cool = -solution.flow(lower), -solution.flow(upper)
    cold = solution.flow("outline") + solution.flow("left") + warm + cool
    assert warm == pytest.approx(46.09, rel=0.01)
    assert cool == pytest.approx(13.89, rel=0.01)
    assert cold == pytest.approx(59.98, rel=0.01)
    corners = solution.at([[0.3, 0.9, 1.0], [0.3, 0.9, 1.2]])
    np.testing.assert_allclose(corners, [11.32, 11.11], atol=0.1)


def case_4(cell):
    """Return the heat flow and the largest temperature outside of an iron bar in insulation, by a quarter of it."""
    parts = [(0.1, (0, 500), (0, 500), (0, 200)), (50.0, (0, 50), (0, 25), (0, 600))]
    sides = dict.fromkeys(["left", "right", "bottom", "top"], m.Neumann(0.0))
    sides |= {"back": air(0.0, 0.1), "front": air(1.0, 0.1), "outline": air(1.0, 0.1)}
    solution = solve(conductivities((500, 500, 600), cell, parts), cell, sides)
    assert solution.balance().relative < 1e-6
    return 4 * solution.flow("back"), np.nanmax(solution.field[0])


def test_case_4_comes_closer_by_the_grid():
    coarse, finer = np.array([case_4((25,) * 3), case_4((12.5,) * 3)]) - KNOWN
    assert (abs(finer) < 0.5 * abs(coarse)).all()


@pytest.mark.nightly
def test_case_4_a_bar_through_insulation():
    flow, largest = case_4((6.25,) * 3)
    assert flow == pytest.approx(KNOWN[0], rel=0.01)
    assert largest == pytest.approx(KNOWN[1], abs=0.005)
