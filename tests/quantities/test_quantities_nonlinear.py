"""Flows and balances of equations that are not linear, on rectangles and boxes."""

import itertools

import numpy as np
import pytest
import torch
from medium_by_cells import volumes_of

import mosaicdd as m
from mosaicdd.problems.operators.gradient_flux import outflow

PLANE = m.Domain((64, 96), {"x": 0.025, "y": 0.05})
BOX = m.Domain((16, 24, 16), 0.1)
SIDES = {
    "left": m.Dirichlet(1.0),
    "bottom[0:0.4]": m.Dirichlet("1 - x"),
    "bottom": m.Neumann(-0.1),
    "right": m.Robin(2.0, 0.5),
    "top": m.Neumann(0.3),
}
PER_CELL = np.random.default_rng(0).uniform(0.5, 2.0, PLANE.cells)
# Sums over nodes of a field that Newton's method has to 1e-11.
SIDES_OF_OWN = {"left": m.Dirichlet(0.0), "right": m.Neumann(0.1)}
CLOSE = {"rel": 1e-7, "abs": 1e-7}
EQUATIONS = {
    "p-laplace": ({"p": 3.0, "eps": 0.1}, lambda u: 0.0),
    "minimal-surface": ({}, lambda u: 0.0),
    "quasilinear-diffusion": ({"k": lambda u: 1 + u**2}, lambda u: 0.0),
    "reaction-diffusion": ({"r": lambda u: u**3}, lambda u: u**3),
    "poisson-boltzmann": ({"a": PER_CELL, "c": 2.0}, lambda u: 2 * np.sinh(u)),
}


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("name", EQUATIONS)
def test_what_is_made_flows_out_or_is_consumed(comm, name, around, common_path):
    fields, reaction = EQUATIONS[name]
    sides = SIDES
    if around:
        sides = {"left": m.Dirichlet(1.0), "right": m.Robin(2.0, 0.5)}
        sides |= {"bottom": m.Periodic(), "top": m.Periodic()}
    f = 0.0 if name == "minimal-surface" else np.random.default_rng(1).uniform(0, 1, (65, 97))
    problem = m.Problem(PLANE, name, fields | ({} if np.isscalar(f) else {"f": f}), sides)
    output = common_path / "out.h5" if name == "p-laplace" else None
    solution = m.solve(problem, ranks=comm, rtol=1e-11, output=output)
    balance = solution.balance()
    u, volumes = solution.gather(), volumes_of(PLANE)
    assert balance.relative < 1e-8
    assert balance.sources == pytest.approx((f * volumes).sum(), **CLOSE)
    assert balance.reaction == pytest.approx((reaction(u) * volumes).sum(), **CLOSE)
    exchanged = (volumes[:, -1] / 0.0125 * (2 * u[:, -1] - 0.5)).sum()
    assert balance.flows["right"] == pytest.approx(exchanged, **CLOSE)
    if not around:
        assert balance.flows["top"] == pytest.approx(-0.3 * 2.4, **CLOSE)
        assert solution.flow("bottom[0.8:2.0]") == pytest.approx(0.1 * 1.2, **CLOSE)
    if output is not None and comm.rank == 0:
        assert m.read(output).balance().flows == pytest.approx(balance.flows, **CLOSE)


@pytest.mark.parametrize("domain", [PLANE, BOX], ids=["plane", "box"])
@pytest.mark.parametrize(
    ("name", "fields", "conducts"),
    [
        ("p-laplace", {"p": 3.0, "eps": 0.1}, lambda s: np.sqrt(s + 0.01)),
        ("minimal-surface", {}, lambda s: 1 / np.sqrt(1 + s)),
    ],
)
def test_a_linear_field_flows_by_its_slope(domain, name, fields, conducts):
    axes = len(domain.cells)
    slope = np.array([1.0, 2.0, -1.5][:axes])
    values = " + ".join(f"({s})*{letter}" for s, letter in zip(slope, "xyz", strict=False))
    solution = m.solve(m.Problem(domain, name, fields, m.Dirichlet(values)), rtol=1e-11)
    flux = -conducts(slope @ slope) * slope
    sizes = (np.array(domain.cells) * domain.grid().steps)[::-1]
    cells = np.array(domain.cells)[::-1]
    sides = [("left", "right"), ("bottom", "top"), ("back", "front")][:axes]
    for axis, (low, high) in enumerate(sides):
        # Where sides meet each has the same share of what flows, whatever flows along its axis.
        across = np.delete(cells, axis)
        area = (across - 1).prod() + (1 / 2 if axes == 2 else (across - 1).sum() / 2 + 1 / 3)
        area *= np.delete(sizes / cells, axis).prod()
        assert solution.flow(high) == pytest.approx(flux[axis] * area, **CLOSE)
        assert solution.flow(low) == pytest.approx(-flux[axis] * area, **CLOSE)
    assert solution.balance().relative < 1e-9


def test_fluxes_of_edges_lose_nothing():
    fields, _ = EQUATIONS["quasilinear-diffusion"]
    problem = m.Problem(PLANE, "quasilinear-diffusion", fields | {"f": "x*y"}, SIDES)
    solution = m.solve(problem, rtol=1e-11)
    down, across = solution.flux()
    u = solution.field
    mean = (
        1 + (u[:, 1:] ** 2 + u[:, 1:] * u[:, :-1] + u[:, :-1] ** 2) / 3
    )  # Simpson's rule, exact here
    np.testing.assert_allclose(
        across[1:-1], (mean * (u[:, :-1] - u[:, 1:]) / 0.025)[1:-1], atol=1e-9
    )
    out = 0.025 * np.diff(down, axis=0)[:, 1:-1] + 0.05 * np.diff(across, axis=1)[1:-1]
    made = np.multiply.outer(solution.y, solution.x) * 0.025 * 0.05
    np.testing.assert_allclose(out, made[1:-1, 1:-1], atol=1e-9)
    surface = m.solve(m.Problem(PLANE, "minimal-surface", None, m.Dirichlet("x")))
    with pytest.raises(m.Unsupported, match="slope across"):
        surface.flux()
    with pytest.raises(m.Unsupported, match="not linear"):
        surface.energy()


def test_what_flows_carry_is_told_from_what_diffuses():
    solution = m.solve(m.Problem(PLANE, "burgers", {"nu": 0.5}, m.Dirichlet("x")), rtol=1e-11)
    balance = solution.balance()
    assert abs(balance.carried) > 0.1
    assert balance.relative < 1e-9


def _without_divergence(u, h, a):
    return a.centre * (4 * u.centre - sum(u.neighbours)) / h**2


def _by_means_of_cells(u, h, a):
    total = outflow(u, h, torch.ones_like, a)
    for way in itertools.product((-1, 1), repeat=2):
        mean = (u.centre + u.at((way[0], 0)) + u.at((0, way[1])) + u.at(way)) / 4
        total = total + u.cell(way) * mean**3
    return total


@pytest.mark.parametrize("residual", [_without_divergence, _by_means_of_cells])
def test_what_neighbours_do_not_gain_is_told_from_what_flows_out(residual):
    """Where coefficients vary: of numbers the first one loses nothing."""
    own = m.NonlinearEquation("own", "", residual, {"a": 1.0}, self_adjoint=residual is _by_means_of_cells)  # fmt: skip
    fields = {"a": "1 + x", "f": 1.0}
    solution = m.solve(m.Problem(m.Domain((16, 24), 0.25), own, fields, SIDES_OF_OWN), rtol=1e-11)
    balance = solution.balance()
    assert abs(balance.carried) > 1e-3
    assert balance.relative < 1e-9
    assert balance.flows["right"] == pytest.approx(-0.4, **CLOSE)


@pytest.mark.parametrize("a", [2.0, "1 + x", "per node"])
def test_a_permittivity_need_not_be_per_cell(a):
    given = np.add.outer(np.zeros(17), 1 + np.linspace(0, 1.5, 25)) if a == "per node" else a
    domain, sides = m.Domain((16, 24), 1 / 16), {"left": m.Dirichlet(1.0), "right": m.Neumann(-0.1)}
    solution = m.solve(
        m.Problem(domain, "poisson-boltzmann", {"a": given, "c": 2.0}, sides), rtol=1e-11
    )
    balance = solution.balance()
    assert balance.relative < 1e-9
    reaction = (2 * np.sinh(solution.field) * volumes_of(domain)).sum()
    assert balance.reaction == pytest.approx(reaction, **CLOSE)
    assert [axis.shape for axis in solution.flux()] == [(16, 25), (17, 24)]


def test_nothing_is_left_over_where_nothing_flows():
    solution = m.solve(
        m.Problem(PLANE, "quasilinear-diffusion", {"k": "1 + u**2"}, m.Dirichlet(3.0))
    )
    assert solution.balance().relative == 0
