"""Equations of a line and of a box with all kinds of sides, against Kronecker sums of lines."""

from types import SimpleNamespace

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.discretisation.discrete import GlobalSystem
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.periodic import PeriodicPadding
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.shapes.outline import rectangle_outline, side_names
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.problems.sides.sides import Sides

H = 0.25
BOX = Grid((4, 5, 6), H)
ROUNDING = 1e-12  # of some 50 operations on numbers below 100


def problem_of(axes, sides, f=None, **fields):
    """Return what a discretisation asks of a problem; domains have two axes as yet."""
    fields = {name: Field(name, values, axes) for name, values in fields.items()}
    return SimpleNamespace(
        operator=Medium({"a": Field("a", 1.0, axes)} | fields),
        conditions=Sides(sides, axes=axes),
        pieces=rectangle_outline,
        domain=SimpleNamespace(shape=None),
        problems=1,
        source=None if f is None else Field("f", f, axes),
    )


def solved(grid, problem):
    system = GlobalSystem(problem, grid)
    return system.field(system.solve(system.right_hand_side))


def line(cells, low, high):
    """Return the matrix of a line with natural ends, ``a du/dn + alpha u``, and the lengths of its nodes."""
    matrix = 2 * np.eye(cells + 1) - np.eye(cells + 1, k=1) - np.eye(cells + 1, k=-1)
    matrix[0, 0], matrix[-1, -1] = 1 + H * low, 1 + H * high
    lengths = np.ones(cells + 1)
    lengths[[0, -1]] = 0.5
    return matrix, lengths


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_natural_sides_make_a_kronecker_sum_of_lines_and_lengths(axes):
    grid = Grid(BOX.shape[-axes:], H)
    alphas = {name: 1.0 + number for number, name in enumerate(side_names(axes))}
    sides = {name: m.Robin(alpha) for name, alpha in alphas.items()}
    found = GlobalSystem(problem_of(axes, sides, c=3.0), grid).matrix.toarray()
    ends = {side: alphas[name] for name, side in side_names(axes).items()}
    lines, lengths = zip(
        *(line(n, ends[axis, 0], ends[axis, 1]) for axis, n in enumerate(grid.shape)), strict=True
    )

    def kronecker(parts):
        product = np.eye(1)
        for part in parts:
            product = np.kron(product, part)
        return product

    diagonal = [np.diag(values) for values in lengths]
    expected = H**2 * 3.0 * kronecker(diagonal)
    for axis in range(axes):
        expected += kronecker([*diagonal[:axis], lines[axis], *diagonal[axis + 1 :]])
    np.testing.assert_allclose(found, expected, atol=ROUNDING)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_linear_solution_is_met_by_all_kinds_of_sides(axes):
    """``u = 1 + x + 2 y + 3 z``: linear functions solve the discrete equations exactly."""
    grid = Grid(BOX.shape[-axes:], H)
    letters = "xyz"[:axes]
    u = "1 + " + " + ".join(f"{n + 1}*{letter}" for n, letter in enumerate(letters))
    sides = {name: m.Dirichlet(u) for name in side_names(axes)}
    sides["right"] = m.Neumann(1.0)
    if axes > 1:
        sides["top"] = m.Robin(2.0, f"2 + 2*({u})")
    if axes > 2:
        sides["back"] = m.Robin(1.0, f"-3 + {u}")  # outwards is against z
    expected = Field("u", u, axes).sample(grid, tuple(slice(0, n) for n in grid.nodes))[0]
    np.testing.assert_allclose(
        solved(grid, problem_of(axes, sides)), expected, rtol=0, atol=100 * ROUNDING
    )


def test_a_box_may_come_round():
    """The discrete eigenfunction ``sin(2 pi z)`` of a box that comes round along z, natural along y."""
    grid = Grid((8, 3, 4), 1 / 8)
    sides = {name: m.Neumann() for name in ("left", "right", "bottom", "top")}
    sides |= {"back": m.Periodic(), "front": m.Periodic()}
    value = 2 * (1 - np.cos(2 * np.pi / 8)) * 64 + 1.0
    found = solved(grid, problem_of(3, sides, f=lambda x, y, z: np.sin(2 * np.pi * z), c=1.0))
    z = np.arange(9) / 8
    expected = np.broadcast_to(np.sin(2 * np.pi * z)[:, None, None] / value, grid.nodes)
    np.testing.assert_allclose(found, expected, atol=ROUNDING)


def test_nodes_between_those_of_a_box_that_comes_round_change_nothing():
    """Lattice nodes on the last edge: conductances in series with the same sum."""
    sides = {name: m.Dirichlet(0.0) for name in ("left", "right", "bottom", "top")}
    sides |= {"back": m.Periodic(), "front": m.Periodic()}
    problem = problem_of(3, sides, a="1 + x + y", c="y")
    place = (slice(0, 7), slice(0, 6), slice(0, 7))  # the grid has 4 nodes around, the lattice 6
    at_grid = Discretisation(problem, problem.operator, BOX).equations((slice(0, 5), *place[1:]))
    of_box = Discretisation(problem, problem.operator, BOX)
    on_lattice = of_box.equations(place, (6, None, None))
    assert PeriodicPadding(place, (4, None, None), (6, None, None)).at_nodes[:, 2, 2].tolist() == [
        *[True] * 4, False, False, True
    ]  # fmt: skip
    series = 1 / (1 / on_lattice.conductances.along[0][3:6, 1:-1, 1:-1]).sum(axis=0)
    np.testing.assert_allclose(series, at_grid.conductances.along[0][3, 1:-1, 1:-1], rtol=ROUNDING)


def test_values_on_the_sides_of_a_box_become_one_boundary_with_means_where_sides_meet():
    sides = Sides({"left": m.Dirichlet(3.0), "top": m.Dirichlet("x")}, axes=3)
    (boundary,) = sides.boundaries(BOX)
    named = boundary.named
    assert named["left"][2, 2] == 3.0
    assert named["left"][2, -1] == named["top"][2, 0] == 1.5  # left 3, top x = 0
    assert named["top"][0, 2] == 0.25  # top x = 0.5, back 0
    assert named["left"][0, -1] == pytest.approx(1.0)  # left 3, top 0, back 0
    field = boundary.impose(np.full(BOX.nodes, 7.0))
    assert np.isfinite(field).all()


def test_arrays_on_the_sides_of_a_box_have_its_shape():
    values = np.random.default_rng(0).random((5, 6))  # of z and y
    (evaluated,) = (
        part
        for part in Sides({"left": m.Dirichlet(values)}, axes=3).evaluated(
            BOX, rectangle_outline(BOX)
        )
        if part.name == "left"
    )
    np.testing.assert_array_equal(evaluated.values, values[None])
    assert Sides({"left": m.Dirichlet(np.zeros((2, 5, 6)))}, axes=3).counts["the side left"] == 2
    wrong = Sides({"left": m.Dirichlet(values.T)}, axes=3)
    with pytest.raises(
        ValueError, match=r"of the shape \(6, 5\), it has \(5, 6\) nodes along z and y"
    ):
        wrong.evaluated(BOX, rectangle_outline(BOX))


def test_the_surface_that_sides_span_has_their_values_and_is_exact_for_trilinear_ones():
    places = np.ogrid[:5, :6, :7]
    random = Boundary.of_field(np.random.default_rng(0).random(BOX.nodes))
    spanned = random.at(*places)
    np.testing.assert_allclose(spanned, random.impose(spanned.copy()), atol=1e-14)
    z, y, x = places
    field = 1.0 + 2 * x - y + 0.5 * x * y + 0.1 * x * y * z - z * x
    boundary = Boundary.of_field(field)
    np.testing.assert_allclose(boundary.at(*places), field, atol=1e-13)
    at = np.array([1.5]), np.array([2.25]), np.array([3.75])
    z, y, x = at
    np.testing.assert_allclose(
        boundary.at(*at), 1.0 + 2 * x - y + 0.5 * x * y + 0.1 * x * y * z - z * x, atol=1e-13
    )


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ({"front": m.Periodic()}, "side front is periodic, the side back is not"),
        ({"behind": m.Dirichlet(1.0)}, "unknown side"),
    ],
)
def test_wrong_sides_of_a_box_are_refused(sides, message):
    with pytest.raises(ValueError, match=message):
        Sides(sides, axes=3)


def test_the_sides_of_space_are_unknown_in_the_plane():
    with pytest.raises(ValueError, match="unknown side"):
        Sides({"front": m.Dirichlet(1.0)})
