"""Domains by masks: the staircase of nodes, and the outline of cells, which is of second order."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd import Dirichlet, Domain, Neumann, Problem, Robin, SolveSettings, solve

TIGHT = SolveSettings(rtol=1e-11)


def corner(n):
    """Return the nodes of a square without its lower right quarter."""
    mask = np.ones((n + 1, n + 1), bool)
    mask[: n // 2, n // 2 :] = False
    return mask


def test_a_mask_of_nodes_has_values_at_these_only():
    problem = Problem(
        Domain.from_mask(corner(64)),
        "laplace",
        sides={"left": Dirichlet("y"), "outline": Neumann()},
    )
    np.testing.assert_array_equal(np.isfinite(solve(problem).field), corner(64))
    sides = {"bottom": Dirichlet("x"), "outline": Neumann()}
    problem = Problem(Domain.from_mask(corner(64)), "laplace", sides=sides)
    np.testing.assert_array_equal(np.isfinite(solve(problem).field), corner(64))


@pytest.mark.parametrize("kind", ["insulated", "flux", "exchange"])
def test_outlines_of_cells_are_of_second_order(kind):
    def u(x, y):
        if kind == "insulated":
            return np.cos(2 * np.pi * x) * np.sin(2 * np.pi * y)
        return np.exp(x) * np.cos(y)

    def flux(x, y):  # of a square within the unit square
        across = abs(x - 0.5) > abs(y - 0.5)
        along = np.where(across, np.exp(x) * np.cos(y), -np.exp(x) * np.sin(y))
        return np.where(np.where(across, x, y) > 0.5, along, -along)

    outline = {
        "insulated": Neumann(),
        "flux": Neumann(flux),
        "exchange": Robin(2.0, lambda x, y: flux(x, y) + 2 * u(x, y)),
    }[kind]
    factor = 8 * np.pi**2 + 1 if kind == "insulated" else 1.0
    errors = []
    for n in (32, 64, 128):
        cells = np.zeros((n, n), bool)
        # Without slope at 0 and 1/2 along x, at 1/4 and 3/4 along y; or in the middle.
        first = 0 if kind == "insulated" else n // 4
        cells[n // 4 : 3 * n // 4, first : first + n // 2] = True
        domain = Domain.from_mask(cells, 1 / n, per_cell=True)
        sides = {"outline": outline, "left": Neumann()}
        fields = {"c": 1.0, "f": lambda x, y: factor * u(x, y)}
        solution = solve(Problem(domain, "screened-poisson", fields, sides), settings=TIGHT)
        assert np.isfinite(solution.field).sum() == (n // 2 + 1) ** 2
        errors.append(np.nanmax(abs(solution.field - u(solution.x, solution.y[:, None]))))
    # At corners sources are of the first order, as beside every outline: h^2 log(1/h) in the largest error.
    least = 1.9 if kind == "insulated" else 1.7
    assert (np.log2(np.array(errors[:-1]) / errors[1:]) > least).all(), errors


def test_values_that_are_given_on_an_outline_of_cells_stand_in_its_corners_too():
    cells = np.zeros((40, 48), bool)
    cells[4:36, 6:40], cells[10:20, 12:30] = True, False
    problem = Problem(Domain.from_mask(cells, per_cell=True), "laplace", sides=Dirichlet("x - y"))
    field = solve(problem, settings=TIGHT).field
    corners = np.pad(cells, 1)
    closed = corners[:-1, :-1] | corners[1:, :-1] | corners[:-1, 1:] | corners[1:, 1:]
    np.testing.assert_array_equal(np.isfinite(field), closed)


def test_a_corridor_of_cells_conducts_by_its_whole_width():
    # Two cells wide, insulated: as much flows through a side as through one of a rectangle of that width.
    cells = np.zeros((48, 64), bool)
    cells[20:22] = True
    problem = Problem(
        Domain.from_mask(cells, 1.0, per_cell=True),
        "laplace",
        sides={"left": Neumann(1.0), "right": Dirichlet(0.0), "outline": Neumann()},
    )
    field = solve(problem, settings=TIGHT).field
    np.testing.assert_allclose(field[20:23], np.tile(64.0 - np.arange(65), (3, 1)), atol=1e-8)
    assert np.isnan(np.delete(field, [20, 21, 22], axis=0)).all()


@pytest.mark.parametrize("kind", [m.Neumann(1.0), m.Robin(0.5, 1.0)])
def test_a_bridge_of_one_cell_has_no_outline_in_it(kind, tmp_path):
    """Where two hollows are one cell apart, the line between their corners is inside of the domain."""
    cells = np.ones((12, 12), bool)
    cells[:4, :6], cells[5:9, 6:9] = False, False
    sides = {name: m.Dirichlet(0.0) for name in ("left", "right", "bottom", "top")}
    problem = m.Problem(m.Domain.from_mask(cells, 1.0, per_cell=True), "diffusion", {"c": 1.0}, sides | {"outline": kind})  # fmt: skip
    solution = m.solve(problem, rtol=1e-11)
    solution.save(tmp_path / "out.h5")
    for each in (solution, m.read(tmp_path / "out.h5"), m.solve(m.read(tmp_path / "out.h5").problem, rtol=1e-11)):  # fmt: skip
        np.testing.assert_allclose(each.field, solution.field, rtol=0, atol=1e-8)
        if isinstance(kind, m.Neumann):
            assert each.flow("outline") == pytest.approx(-(4 + 6 + 14), abs=1e-8)
