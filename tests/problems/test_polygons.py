"""Domains between polygons: distances near them, names of their outlines, and what is refused."""

import numpy as np
import pytest
from factorised import factorised

import mosaicdd as m
from mosaicdd.problems.shapes.polygons import Polygons

GRID = m.Domain((80, 100), 0.01).grid()
WHOLE = (slice(0, 81), slice(0, 101))
OUTER = [[0.1, 0.1], [0.9, 0.1], [0.9, 0.6], [0.5, 0.75], [0.1, 0.6]]
HOLES = [[[0.6, 0.3], [0.8, 0.32], [0.7, 0.5]], [[0.2, 0.2], [0.2, 0.4], [0.4, 0.4], [0.4, 0.2]]]


INSIDE = [[0.25, 0.25], [0.25, 0.35], [0.35, 0.35]]


def circle(radius, corners=2000):
    t = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    return np.stack([0.5 + radius * np.cos(t), 0.4 + radius * np.sin(t)], axis=1)


def test_near_to_many_edges_the_level_is_the_distance_to_a_ring():
    level = Polygons(circle(0.35), [circle(0.12)]).level(GRID, WHOLE)
    y, x = np.mgrid[:81, :101] * 0.01
    r = np.hypot(x - 0.5, y - 0.4)
    distance = np.maximum(r - 0.35, 0.12 - r)
    near = abs(distance) < 0.015
    # Chords of length l are off their circle by l**2 / 8 r at most.
    atol = (2 * np.pi * 0.35 / 2000) ** 2 / 8 / 0.12
    np.testing.assert_allclose(level[near], distance[near], rtol=0, atol=atol)
    np.testing.assert_array_equal((level < 0)[~near], (distance < 0)[~near])


def test_the_level_of_a_part_is_that_part_of_the_level():
    polygons = Polygons(OUTER, HOLES)
    whole = polygons.level(GRID, WHOLE)
    for part in ((slice(13, 57), slice(40, 99)), (slice(0, 1), slice(0, 101))):
        np.testing.assert_array_equal(polygons.level(GRID, part), whole[part])


def test_outlines_are_named_in_the_order_of_the_holes():
    names, numbers = Polygons(OUTER, HOLES).outlines(GRID, (None, None))
    assert names == ("outer", "hole1", "hole2")
    assert numbers[40, 70] == 1
    assert numbers[30, 21] == 2
    assert numbers[9, 50] == 0


def test_slanted_edges_are_of_second_order():
    """A harmonic function on a polygon; at its corners it is as smooth as elsewhere."""
    grids, errors = (40, 80, 160, 320), []
    for n in grids:
        domain = m.Domain.from_polygons(OUTER, HOLES, cells=(n, n), spacing=1 / n)
        sides = m.Dirichlet("exp(x)*sin(y)")
        field = factorised(m.Problem(domain, "laplace", sides=sides))
        y, x = np.mgrid[: n + 1, : n + 1] / n
        errors.append(np.nanmax(abs(field - np.exp(x) * np.sin(y))))
    assert np.polyfit(np.log(grids), np.log(errors), 1)[0] < -1.8, errors


@pytest.mark.parametrize(
    ("outer", "holes", "message"),
    [
        ([[0, 0], [1, 1], [1, 0], [0, 1]], [], "outer crosses itself: the edges"),
        (OUTER, [HOLES[0], [[0.65, 0.3], [0.75, 0.2], [0.75, 0.5]]], "hole1 and hole2 cross"),
        (OUTER, [[[0.95, 0.1], [0.97, 0.1], [0.97, 0.2]]], "hole1 is not inside of outer"),
        (OUTER, [[[0.2, 0.2], [0.2, 0.4]]], "hole1 has 2 corners"),
        ([[0, 0], [1, np.nan], [1, 1]], [], r"outer .* 3 corners, number 2 is \(1, nan\)"),
        (OUTER, [[[0.2, 0.2], [0.2, 0.4], [0.4, None]]], r"hole1 .* number 3 is \(0.4, nan\)"),
        ([[0, 0], [1, 0], [0.5, 0], [0, 1]], [], "outer crosses itself"),
        ([[0, 0], [1, 0], [0.5, 0]], [], "outer crosses itself"),
        (OUTER, [OUTER], "outer and hole1 cross or touch"),
        (OUTER, [OUTER[2:] + OUTER[:2]], "outer and hole1 cross or touch"),
        (OUTER, [HOLES[0], HOLES[0][::-1]], "hole1 and hole2 cross or touch"),
        (OUTER, [HOLES[1], [[0.4, 0.25], [0.5, 0.25], [0.5, 0.35]]], "hole1 and hole2 cross or"),
        (OUTER, [HOLES[1], INSIDE], "hole2 is inside of hole1, .* leave hole2 out"),
        (OUTER, [INSIDE, HOLES[0], HOLES[1]], "hole1 is inside of hole3"),
    ],
)
def test_outlines_that_cross_are_refused(outer, holes, message):
    with pytest.raises(ValueError, match=message):
        Polygons(outer, holes)


def test_a_corner_that_stands_twice_counts_once():
    twice = [corner for corner in OUTER for _ in range(2)]
    assert Polygons([*twice, OUTER[0]], HOLES) == Polygons(OUTER, HOLES)


def test_polygons_must_fit_their_cells():
    with pytest.raises(ValueError, match=r"outer reaches from \(0.1, 0.1\) to \(0.9, 0.75\)"):
        m.Domain.from_polygons(OUTER, cells=(50, 50), spacing=0.01)
    small = [[0.303, 0.303], [0.308, 0.303], [0.304, 0.307]]
    with pytest.raises(ValueError, match=r"hole1 is thinner than a cell, 0\.01"):
        m.Domain.from_polygons(OUTER, [small], cells=(100, 100), spacing=0.01)
