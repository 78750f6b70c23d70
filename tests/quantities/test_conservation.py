"""What is given at the nodes counts: what goes into control volumes flows out through the sides with given values.

The sides are insulated but for the right one, which is held at 0, and the spacing is 1. So the equations of
all active nodes add up to ``sum of V f = sum of V c u + flow``, where the flow through the right side is the
sum of ``u`` in the column before it, times the part of the face that is in the domain. The volumes ``V``
are found here by hand: of a node, the part of the square around it, a cell wide, that lies in the domain.

Where a solve ends, the 2-norm of the residual is below ``rtol`` times that of the right-hand side, so the
sum over N equations is off by at most ``rtol sqrt(N) |V f|``; `close` allows ten times that for rounding.
"""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.problems.operators.medium import medium_of

NY, NX = 24, 40
RTOL = 1e-11
TIGHT = m.SolveSettings(rtol=RTOL)
Y, X = np.mgrid[: NY + 1, : NX + 1].astype(float)


def shares(cells):
    """Return the part of the square around each node that is in some cells ``(NY, NX)``."""
    quarters = np.pad(cells, 1) / 4
    return quarters[:-1, :-1] + quarters[1:, :-1] + quarters[:-1, 1:] + quarters[1:, 1:]


def board():
    """Return cells with a hole, an edge, corners of both kinds, and a corridor of two cells."""
    cells = np.ones((NY, NX), bool)
    cells[:, :5] = cells[6:10, 10:14] = cells[:9, 20:26] = cells[11:, 20:26] = False
    return cells


def staircase():
    """Return nodes with a hole."""
    return (np.hypot(Y - 9, X - 12) > 4.2) & (X + Y > 7)


def beside_a_line(slope, at):
    """Return the volumes to the right of the line ``x = at + slope y``, each clipped from a square."""
    return np.array([[_clipped(y, x, slope, at) for x in range(NX + 1)] for y in range(NY + 1)])


def _clipped(y, x, slope, at):
    """Return the area of what of the square around a node is in the rectangle and beyond a line."""
    low, high = max(y - 0.5, 0), min(y + 0.5, NY)
    left, right = max(x - 0.5, 0), min(x + 0.5, NX)
    corners = [(low, left), (low, right), (high, right), (high, left)]
    ends, kept = [p[1] - at - slope * p[0] for p in corners], []
    for k in range(4):
        (p, d), (q, e) = ((corners[j % 4], ends[j % 4]) for j in (k, k + 1))
        if d >= 0:
            kept.append(p)
        if d * e < 0:
            kept.append(tuple(np.array(p) + d / (d - e) * (np.array(q) - p)))
    ys, xs = np.array(kept).T if kept else np.zeros((2, 1))
    return abs(np.sum(xs * np.roll(ys, -1) - ys * np.roll(xs, -1))) / 2


ALL = np.ones((NY, NX), bool)
HOLE = [[[8.3, 6.2], [14.6, 6.2], [14.6, 15.4], [8.3, 15.4]]]
AROUND = [[0.4, 0.3], [39.1, 0.3], [37.2, 23.6], [0.4, 23.6]]
TURNED = np.array([[12, 6], [17, 11], [12, 16], [7, 11.0]])

DOMAINS = {
    "a rectangle": lambda: (m.Domain((NY, NX), 1.0), shares(ALL)),
    "nodes": lambda: (m.Domain.from_mask(staircase(), 1.0), staircase() * shares(ALL)),
    "cells": lambda: (m.Domain.from_mask(board(), 1.0, per_cell=True), shares(board())),
    "a distance on nodes": lambda: (
        m.Domain.from_distance("10 - x", (NY, NX), 1.0),
        beside_a_line(0.0, 10.0),
    ),
    "a distance between nodes": lambda: (
        m.Domain.from_distance("10.3 - x", (NY, NX), 1.0),
        beside_a_line(0.0, 10.3),
    ),
    "a slanted line": lambda: (
        m.Domain.from_distance("6.3 + 0.37*y - x", (NY, NX), 1.0),
        beside_a_line(0.37, 6.3),
    ),
    "a disk": lambda: (m.Domain.from_distance("5.2 - hypot(x-12,y-11)", (NY, NX), 1.0), None),
}
POLYGONS = {
    "between nodes": (AROUND, HOLE),
    "on nodes": ([[2, 1], [38, 1], [38, 23], [2, 23]], [TURNED]),
}
NATURAL = {name: m.Neumann(0.0) for name in ("outline", "left", "bottom", "top")}


def volumes_of(problem):
    """Return the package's own volumes of the active nodes."""
    grid = problem.domain.grid()
    discretisation = Discretisation(problem, medium_of(problem.operator), grid)
    equations = discretisation.equations((slice(0, NY + 1), slice(0, NX + 1)))
    return np.where(equations.active, equations.volumes, 0.0)


def values_at_nodes(seed):
    return np.random.default_rng(seed).uniform(-1.0, 2.0, (NY + 1, NX + 1))


def solved(problem):
    """Return the values at all unknowns, those beyond the outline among them, and zero elsewhere."""
    with m.Solver(problem, "exact", settings=TIGHT, keep="unknowns") as solver:
        solution = solver()
    assert solution.status == "converged_rtol"
    return np.nan_to_num(np.asarray(solution.local))


def flow_to_the_right(u, volumes):
    """Return what flows through the right side, whose faces are as high as the volumes beside it."""
    return (u[:, -2] * volumes[:, -2]).sum()


def close(found, expected, loads):
    assert abs(found - expected) <= 10 * RTOL * np.sqrt(loads.size) * np.linalg.norm(loads)


@pytest.mark.parametrize("name", DOMAINS)
def test_all_sources_that_are_given_in_a_domain_flow_out_of_it(name):
    domain, volumes = DOMAINS[name]()
    f = values_at_nodes(0)
    problem = m.Problem(domain, "poisson", {"f": f}, NATURAL)
    own = volumes_of(problem)
    if volumes is None:
        volumes = own
    volumes[:, -1] = 0.0  # where values are given
    np.testing.assert_allclose(own, volumes, rtol=0, atol=1e-12)
    close(flow_to_the_right(solved(problem), volumes), (volumes * f).sum(), volumes * f)


@pytest.mark.parametrize("name", DOMAINS)
def test_all_reactions_that_are_given_in_a_domain_consume(name):
    domain, _ = DOMAINS[name]()
    fields = {"c": values_at_nodes(1) + 1, "f": values_at_nodes(2), "a": values_at_nodes(3) + 1.1}
    fields["a"][:, -2:] = 1.0
    problem = m.Problem(domain, "diffusion", fields, NATURAL)
    volumes, u = volumes_of(problem), solved(problem)
    loads = volumes * fields["f"]
    close(flow_to_the_right(u, volumes) + (volumes * fields["c"] * u).sum(), loads.sum(), loads)


@pytest.mark.parametrize("name", POLYGONS)
def test_polygons_with_holes_consume_what_is_given_in_them(name):
    outer, holes = POLYGONS[name]
    domain = m.Domain.from_polygons(outer, holes, cells=(NY, NX), spacing=1.0)
    fields = {"c": values_at_nodes(4) + 1.1, "f": values_at_nodes(5)}
    problem = m.Problem(domain, "diffusion", fields, NATURAL)
    volumes, u = volumes_of(problem), solved(problem)
    loads = volumes * fields["f"]
    close((volumes * fields["c"] * u).sum(), loads.sum(), loads)
    area = _area(outer) - sum(map(_area, holes))
    # In a cell, the level is cut along straight lines: only what polygons have of corners is off.
    assert abs(volumes.sum() - area) < 0.5 * (len(outer) + sum(map(len, holes)))


@pytest.mark.parametrize("name", ["a rectangle", "cells", "a distance between nodes"])
def test_between_periodic_sides_each_counts_with_what_is_given_on_it(name):
    domain, volumes = DOMAINS[name]()
    f = values_at_nodes(19)
    around = {"bottom": m.Periodic(), "top": m.Periodic()}
    problem = m.Problem(domain, "poisson", {"f": f}, NATURAL | around)
    volumes[:, -1] = 0.0
    u = np.nan_to_num(m.solve(problem, settings=TIGHT).field)
    close(flow_to_the_right(u, volumes), (volumes * f).sum(), volumes * f)


def _area(corners):
    x, y = np.array(corners, float).T
    return abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))) / 2


def through_edges(u, inside, theta):
    """Return what flows from the nodes inside to a 0 after ``theta`` of an edge, along both axes."""
    faces = [np.ones((NY, NX + 1)), np.ones((NY + 1, NX))]
    faces[0][:, [0, -1]] = faces[1][[0, -1]] = 0.5
    total = 0.0
    for axis, face in enumerate(faces):
        low, high = (np.moveaxis(inside, axis, 0)[one] for one in (np.s_[:-1], np.s_[1:]))
        below, above = (np.moveaxis(u, axis, 0)[one] for one in (np.s_[:-1], np.s_[1:]))
        ends = np.where(low & ~high, below, 0.0) + np.where(high & ~low, above, 0.0)
        total += (np.moveaxis(face, axis, 0) * ends / theta).sum()
    return total


def with_no_other_cell_around(cells):
    padded = np.pad(cells, 1, mode="edge")
    return padded[:-1, :-1] & padded[1:, :-1] & padded[:-1, 1:] & padded[1:, 1:]


@pytest.mark.parametrize(
    ("name", "inside", "theta"),
    [
        ("nodes", staircase(), 1.0),
        ("cells", with_no_other_cell_around(board()), 1.0),
        ("a distance between nodes", X > 10.3, 0.7),  # from column 11 on
    ],
    ids=["nodes", "cells", "distance"],
)
def test_what_flows_out_through_an_outline_with_values_is_what_is_given_inside(name, inside, theta):
    # Volumes of the nodes inside are whole then, and an edge that the outline cuts ends there.
    domain, _ = DOMAINS[name]()
    f, whole = values_at_nodes(6), shares(ALL)
    whole[:, -1] = 0.0
    problem = m.Problem(domain, "poisson", {"f": f}, NATURAL | {"outline": m.Dirichlet(0.0)})
    loads, u = whole * inside * f, solved(problem)
    flow = flow_to_the_right(u, inside * whole) + through_edges(u, inside, theta)
    close(flow, loads.sum(), loads)


@pytest.mark.parametrize(("column", "flow"), [(20, 32.0), (21, 64.0), (22, 64.0)])
def test_a_heater_in_the_outline_of_a_board_heats_by_half(column, flow):
    # The board begins in column 20, where half a cell of each node is in it; 64 cells, insulated above and below.
    cells = np.ones((64, 96), bool)
    cells[:, :20] = False
    domain = m.Domain.from_mask(cells, 1.0, per_cell=True)
    f = np.zeros((65, 97))
    f[:, column] = 1.0
    u = m.solve(m.Problem(domain, "poisson", {"f": f}, NATURAL), settings=TIGHT).field
    heights = np.ones(65)
    heights[[0, -1]] = 0.5
    close(((u[:, 70] - u[:, 71]) * heights).sum(), flow, f)


@pytest.mark.parametrize("name", ["cells", "a distance on nodes"])
def test_where_nothing_is_given_on_an_outline_sources_are_as_beside_it(name):
    domain, volumes = DOMAINS[name]()
    f = np.where(volumes > 0.99 * shares(ALL), 1.0, np.nan)
    uniform, given = (
        m.solve(m.Problem(domain, "poisson", {"f": one}, NATURAL), settings=TIGHT).field
        for one in (1.0, f)
    )
    np.testing.assert_allclose(given, uniform, rtol=0, atol=1e-9 * np.nanmax(uniform))


@pytest.mark.parametrize("name", ["cells", "a distance on nodes", "a slanted line", "a disk"])
def test_a_step_in_time_begins_with_all_that_is_given(name):
    # (u - u0) / dt - lap u = f is the equation of the source f + u0 / dt and the reaction 1 / dt.
    domain, _ = DOMAINS[name]()
    f, initial, dt = values_at_nodes(7), values_at_nodes(8), 0.7
    problem = m.Problem(domain, "heat", {"f": f}, NATURAL)
    series = m.march(
        problem, initial, dt=dt, steps=1, method="euler", settings=TIGHT, solver_share=0
    )
    fields = {"c": 1 / dt, "f": f + initial / dt}
    expected = m.solve(m.Problem(domain, "screened-poisson", fields, NATURAL), settings=TIGHT).field
    np.testing.assert_allclose(series.field, expected, rtol=0, atol=1e-8)


def test_an_insulated_board_keeps_its_heat():
    domain, volumes = DOMAINS["cells"]()
    initial, dt = values_at_nodes(9), 3.0
    problem = m.Problem(domain, "heat", {}, NATURAL | {"right": m.Neumann(0.0)})
    series = m.march(problem, initial, dt=dt, steps=3, settings=TIGHT, solver_share=0)
    for field in (series[0], series.field):
        close(
            (volumes * np.nan_to_num(field)).sum(), (volumes * initial).sum(), 3 * volumes * initial
        )


@pytest.mark.parametrize("name", ["cells", "a rectangle"])
def test_equations_that_are_not_linear_take_all_that_is_given(name):
    domain, volumes = DOMAINS[name]()
    fields = {"c": values_at_nodes(10) + 1, "f": values_at_nodes(11)}
    problem = m.Problem(domain, "reaction-diffusion", fields | {"r": "u**3"}, NATURAL)
    solution = m.solve(problem, settings=TIGHT)
    assert solution.status == "converged_rtol"
    u, volumes[:, -1] = np.nan_to_num(solution.field), 0.0
    loads = volumes * fields["f"]
    consumed = (volumes * (fields["c"] * u + u**3)).sum()
    close(flow_to_the_right(u, volumes) + consumed, loads.sum(), loads)


@pytest.mark.parametrize("name", ["cells", "a slanted line"])
def test_a_medium_is_the_same_by_both_kinds_of_equations(name):
    domain, _ = DOMAINS[name]()
    fields = {
        "a": values_at_nodes(12) + 1.1,
        "c": values_at_nodes(13) + 1,
        "f": values_at_nodes(14),
    }
    linear = m.solve(m.Problem(domain, "diffusion", fields, NATURAL), settings=TIGHT)
    other = m.Problem(domain, "reaction-diffusion", fields | {"r": "0*u"}, NATURAL)
    np.testing.assert_allclose(
        m.solve(other, settings=TIGHT).field, linear.field, rtol=0, atol=1e-8
    )


def test_fluxes_at_a_side_s_last_node_beyond_an_outline_count():
    # The outline ends between two nodes of the side below; of the volume around the first a fifth is inside.
    domain, volumes = DOMAINS["a distance between nodes"]()
    flux = values_at_nodes(15)[0]
    problem = m.Problem(domain, "laplace", sides=NATURAL | {"bottom": m.Neumann(flux)})
    loads = (
        np.where(X[0] < NX, 2 * volumes[0], 0.0) * flux
    )  # the lowest volumes are half as high as wide
    close(flow_to_the_right(solved(problem), volumes), loads.sum(), loads)


@pytest.mark.ranks(2, 3)
def test_all_ranks_count_the_same(alone_and_together):
    cells = np.ones((64, 80), bool)
    cells[:, :5] = cells[22:41, 30:37] = False
    rng = np.random.default_rng(16)
    fields = {name: rng.uniform(0.1, 3.0, (65, 81)) for name in ("a", "c", "f")}
    problem = m.Problem(m.Domain.from_mask(cells, 1.0, per_cell=True), "diffusion", fields, NATURAL)
    alone, together = alone_and_together(m.solve, problem, settings=TIGHT)
    np.testing.assert_allclose(together.gather(), alone.field, rtol=0, atol=1e-9)
