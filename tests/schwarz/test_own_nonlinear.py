"""Nonlinear equations of the user's own: fields per cell and at nodes, cells that are no squares, and what is refused."""

import itertools

import numpy as np
import pytest
import torch

import mosaicdd as m
from mosaicdd.problems.operators.gradient_flux import outflow

TIGHT = m.SolveSettings(rtol=1e-13)
NATURAL = {"left": m.Dirichlet(1.0), "right": m.Neumann(0.3), "top": m.Robin(2.0, 0.5), "bottom": m.Neumann(0.1)}  # fmt: skip
CELLS, SQUARE = m.Domain((8, 12), 0.25), m.Domain((16, 16))


def made(residual, parameters, domain=SQUARE, fields=None, sides=None, **options):
    equation = m.NonlinearEquation("own", "F(u) = f", residual, parameters, **options)
    return m.Problem(domain, equation, fields or {}, sides or {})


def laplacian(u, h):
    return (sum(u.neighbours) - 4 * u.centre) / h**2


def squared(u, h, c):
    return c.centre**2 * u.centre - laplacian(u, h)


def shared(u, h, c, share):
    return (1 - share.centre) * squared(u, h, c) - share.centre * laplacian(u, h)


@pytest.mark.parametrize("share", [None, 0.5, np.full((9, 13), 0.5)], ids=["", "number", "nodes"])
def test_a_reaction_that_is_not_linear_in_a_field_is_summed_over_cells(share):
    """Also what vanishes where another field is one counts where that varies."""
    c, f = np.random.default_rng(0).uniform(0.5, 2.0, (2, 8, 12))
    own = made(squared, {"c": 1.0}, CELLS, {"c": c, "f": f}, NATURAL)
    if share is not None:
        fields = {"c": c, "f": f, "share": share}
        own = made(shared, {"c": 1.0, "share": 0.0}, CELLS, fields, NATURAL)
    reaction = c**2 if share is None else c**2 / 2
    linear = m.Problem(CELLS, "diffusion", {"c": reaction, "f": f}, NATURAL)
    fields = [m.solve(one, settings=TIGHT).field for one in (own, linear)]
    np.testing.assert_allclose(*fields, atol=1e-12)


def test_constant_cells_are_numbers():
    numbers, sides = {"nu": 0.3, "c": 0.5, "f": 2.0}, {"left": m.Dirichlet("y"), "right": m.Neumann(0.2)}  # fmt: skip
    cells = {name: np.full((20, 24), number) for name, number in numbers.items()}
    fields = [m.solve(m.Problem((20, 24), "burgers", q, sides), settings=TIGHT).field for q in (numbers, cells)]  # fmt: skip
    np.testing.assert_allclose(*fields, atol=1e-12)


def test_corners_count_that_do_not_where_a_field_is_one():
    def residual(u, h, share):
        beside = 4 * u.centre - sum(u.neighbours)
        across = (4 * u.centre - sum(u.corners)) / 2
        return (share.centre * beside + (1 - share.centre) * across) / h**2

    number, nodes = (
        m.solve(made(residual, {"share": 0.5}, fields={"share": share, "f": 1.0}), settings=TIGHT).field
        for share in (0.5, np.full((17, 17), 0.5))
    )  # fmt: skip
    np.testing.assert_allclose(nodes, number, atol=1e-12)
    sides = {"left": m.Dirichlet(1.0), "right": m.Neumann(0.0)}
    with pytest.raises(m.Unsupported, match="couples the differences"):
        m.solve(made(residual, {"share": 0.5}, fields={"share": nodes}, sides=sides))


def test_of_equations_across_cells_fields_are_at_the_nodes():
    residual = lambda u, h, c: (4 * u.centre - sum(u.corners)) * c.centre / (2 * h**2)
    with pytest.raises(ValueError, match=r"c is given per cell, \(16, 16\).*at the nodes, \(17, 17\)"):  # fmt: skip
        made(residual, {"c": 1.0}, fields={"c": np.ones((16, 16))})


@pytest.mark.parametrize(
    ("c", "values", "says"),
    [
        (1.0, 2.0 * np.ones((16, 16)), "has a reaction.*give it at the nodes"),
        (0.0, 2.0 * np.ones((17, 17)), r"give it as a number, or per cell, \(16, 16\)"),
    ],
)
def test_a_factor_of_cells_multiplies_no_reaction_and_is_per_cell(c, values, says):
    def residual(u, h, c):
        cells = sum(u.cell(corner) for corner in itertools.product((-1, 1), repeat=2)) / 4
        return outflow(u, h, lambda squared: 1 + squared) + c.centre * cells * u.centre**3

    with pytest.raises(m.Unsupported, match=says):
        made(residual, {"c": 0.0}, fields={"a": values, "c": c}, diffusion="a")
    fields = [
        m.solve(made(residual, {"c": 0.0}, fields={"a": a, "f": 1.0}, diffusion="a"), settings=TIGHT).field
        for a in (2.0, np.full((16, 16), 2.0))
    ]  # fmt: skip
    np.testing.assert_allclose(*fields, atol=1e-12)


@pytest.mark.parametrize(("name", "fields"), [("allen-cahn", ("eps", "c")), ("p-laplace", ("a",))])
def test_values_of_the_wrong_sign_are_told_by_their_cells(name, fields):
    wrong = np.ones((16, 16))
    wrong[3, 4] = -0.1  # beside others the mean is positive
    for field in fields:
        with pytest.raises(ValueError, match=rf"{field} must be .*-0.1 at cell \(3, 4\)"):
            m.solve(m.Problem((16, 16), name, {field: wrong}))


STRETCHED = m.Domain((12, 16), (25.0, 10.0))


def test_cells_need_be_no_squares_where_neighbours_count_one_by_one():
    def residual(u, h, c):
        return c.centre * torch.sinh(u.centre) - laplacian(u, h)

    fields = {"c": 1e-3, "f": "sin(x/50)"}
    shipped = m.Problem(STRETCHED, "poisson-boltzmann", fields)
    one, other = (m.solve(p, rtol=1e-12).field for p in (made(residual, {"c": 1.0}, STRETCHED, fields), shipped))  # fmt: skip
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)


def _of_nine(u, h, c):
    beside, corners = sum(u.neighbours), sum(u.corners)
    return c.centre * u.centre**3 + (20 * u.centre - 4 * beside - corners) / (6 * h**2)


def _of_a_slope_of_the_field(u, h, c):
    return u.centre * (c.right - c.left) / (2 * h) - laplacian(u, h)


@pytest.mark.parametrize("residual", [_of_nine, _of_a_slope_of_the_field])
def test_an_equation_that_couples_axes_by_one_spacing_is_refused(residual):
    with pytest.raises(m.Unsupported, match=r"by one spacing, these cells are 10x25: give cells"):
        made(residual, {"c": 1.0}, STRETCHED)


def bratu(u, h, c):
    return -sum(v - u.centre for v in u.neighbours) / h**2 - c.centre * u.centre.exp()


def test_an_equation_says_that_it_knows_boxes():
    box = m.Domain((8, 8, 8), 0.1)
    solution = m.solve(made(bratu, {"c": 0.5}, box, axes=(2, 3)), settings=TIGHT)
    # Of the symmetric cube one eighth, insulated at its planes, has the same values.
    eighth = m.Domain((4, 4, 4), 0.1)
    natural = dict.fromkeys(("right", "top", "front"), m.Neumann(0.0))
    part = m.solve(made(bratu, {"c": 0.5}, eighth, sides=natural, axes=(2, 3)), settings=TIGHT)
    np.testing.assert_allclose(solution.field[:5, :5, :5], part.field, atol=1e-11)
    assert solution.field.max() > 0.01
    with pytest.raises(ValueError, match=r"own is solved in the plane only.*axes=\(2, 3\)"):
        made(bratu, {"c": 0.5}, box)


def test_what_is_no_derivative_of_an_energy_of_cells_is_refused_beside_natural_sides():
    residual = lambda u, h: sum((u.centre - corner) for corner in u.corners) / h**2
    with pytest.raises(m.Unsupported, match="or that are the derivative of an energy of cells"):
        made(residual, {}, sides=NATURAL, self_adjoint=True)
