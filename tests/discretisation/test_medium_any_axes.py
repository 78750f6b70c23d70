"""Media along a line, in the plane and in space: hand-computed means, and Kronecker products of lines."""

import numpy as np
import pytest
import scipy.sparse

import mosaicdd as m
from mosaicdd.discretisation.discrete import MediumSystem
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.operators.medium import Medium, medium_of

BOX = Grid((4, 5, 6), 0.25)
ROUNDING = 1e-13  # of sums of at most 8 numbers, beside the largest


def medium(axes, **fields):
    return Medium({name: Field(name, values, axes) for name, values in fields.items()})


def whole(grid):
    return tuple(slice(0, nodes) for nodes in grid.nodes)


def positive(shape):
    return np.exp(np.random.default_rng(0).standard_normal(shape))


def test_conductances_from_nodes_of_a_line_are_harmonic_means():
    grid, a = Grid((6,), 0.5), positive(7)
    (along,) = medium(1, a=a).conductances(grid, whole(grid)).along
    np.testing.assert_allclose(along, 2 / (1 / a[1:] + 1 / a[:-1]), rtol=ROUNDING)


def test_conductances_from_cells_of_a_line_are_those_of_the_cells():
    grid, a = Grid((6,), 0.5), positive(6)
    (along,) = medium(1, a=a).conductances(grid, whole(grid)).along
    np.testing.assert_array_equal(along, a)


def test_conductances_from_nodes_of_a_box_are_harmonic_means():
    a = positive(BOX.nodes)
    along = medium(3, a=a).conductances(BOX, whole(BOX)).along
    for axis, high in enumerate([(2, 2, 3), (1, 3, 3), (1, 2, 4)]):
        expected = 2 / (1 / a[1, 2, 3] + 1 / a[high])
        assert along[axis][1, 2, 3] == pytest.approx(expected, rel=ROUNDING)


def test_conductances_from_cells_of_a_box_are_means_of_the_four_around():
    a = positive(BOX.shape)
    along = medium(3, a=a).conductances(BOX, whole(BOX)).along
    assert along[0][1, 2, 3] == pytest.approx(a[1, 1:3, 2:4].mean(), rel=ROUNDING)
    assert along[1][1, 2, 3] == pytest.approx(a[0:2, 2, 2:4].mean(), rel=ROUNDING)
    assert along[2][1, 2, 3] == pytest.approx(a[0:2, 1:3, 3].mean(), rel=ROUNDING)
    assert along[2][0, 2, 3] == pytest.approx(a[0, 1:3, 3].sum() / 4, rel=ROUNDING)  # on a side
    assert along[2][0, 0, 3] == pytest.approx(a[0, 0, 3] / 4, rel=ROUNDING)  # on an edge


@pytest.mark.parametrize("shape", [BOX.nodes, BOX.shape], ids=["nodes", "cells"])
def test_a_part_of_a_box_has_the_conductances_of_the_whole(shape):
    fields = {"a": positive(shape), "c": "x*y + z", "bz": "9*y", "bx": "x"}
    place = slice(0, 3), slice(2, 6), slice(1, 4)
    part = medium(3, **fields).conductances(BOX, place)
    for values, expected in zip(
        part.arrays(),
        medium(3, **fields).conductances(BOX, whole(BOX)).part(*place).arrays(),
        strict=True,
    ):
        np.testing.assert_allclose(values, expected, rtol=ROUNDING, atol=ROUNDING)


def kronecker(parts):
    product = np.eye(1)
    for part in parts:
        product = scipy.sparse.kron(product, part)
    return product


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_coefficients_that_vary_along_their_own_axis_make_a_sum_of_kronecker_products(axes):
    """A tensor ``diag(azz(z), ayy(y), axx(x))`` with a velocity and a reaction of the same kind."""
    letters = "zyx"[-axes:]
    grid = Grid(BOX.shape[-axes:], BOX.spacing)
    fields = {f"a{letter}{letter}": f"exp({letter}) + 1" for letter in letters}
    fields |= {f"b{letter}": f"{letter}*9 - 3" for letter in letters}
    found = MediumSystem(medium(axes, c=float(axes), **fields), grid).matrix
    eyes = [np.eye(n - 1) for n in grid.shape]
    expected = 0
    for axis, cells in enumerate(grid.shape):
        line = MediumSystem(
            medium(1, a="exp(x) + 1", bx="x*9 - 3", c=1.0), Grid((cells,), grid.spacing)
        ).matrix
        expected = expected + kronecker([*eyes[:axis], line, *eyes[axis + 1 :]])
    np.testing.assert_allclose(found.toarray(), expected.toarray(), atol=ROUNDING * 40)


def test_a_separable_coefficient_of_cells_makes_kronecker_products_of_lines():
    """``a(z) b(y) c(x)``: along an axis the line's operator, across it means of two cells."""
    rng = np.random.default_rng(1)
    factors = [rng.uniform(1, 2, cells) for cells in BOX.shape]
    a = np.einsum("i,j,k", *factors)
    found = MediumSystem(medium(3, a=a), BOX).matrix
    means = [np.diag((values[1:] + values[:-1]) / 2) for values in factors]
    lines = [
        MediumSystem(medium(1, a=values), Grid((len(values),), BOX.spacing)).matrix
        for values in factors
    ]
    expected = sum(kronecker([*means[:i], lines[i], *means[i + 1 :]]) for i in range(3))
    np.testing.assert_allclose(found.toarray(), expected.toarray(), atol=ROUNDING * 100)


def test_a_constant_isotropic_operator_is_a_medium_in_space():
    system = MediumSystem(medium_of(m.EllipticOperator(ayy=2.0, axx=2.0, c=4.0)), BOX)
    assert system.matrix.diagonal() == pytest.approx(6 * 2.0 + 4.0 * BOX.spacing**2)


def test_a_tensor_of_the_plane_is_refused_in_space():
    with pytest.raises(m.Unsupported, match=r"axx and ayy.* 3 axes: give a, or axx, ayy, azz"):
        medium_of(m.EllipticOperator(ayy=2.0, axx=1.0)).conductances(BOX, whole(BOX))


def test_a_mixed_derivative_beside_a_velocity_is_refused_as_a_medium():
    with pytest.raises(m.Unsupported, match=r"mixed derivative, axy 0\.5, and a velocity"):
        medium_of(m.EllipticOperator(axy=0.5, bx=1.0))


def test_values_that_are_not_positive_are_told_with_their_place_in_space():
    a = positive(BOX.nodes)
    a[2, 3, 4] = -1.0
    with pytest.raises(ValueError, match=r"1 of the 210 values .* -1 at node \(2, 3, 4\)"):
        medium(3, a=a).conductances(BOX, whole(BOX))


def test_a_function_takes_the_coordinates_from_x_on():
    """Arrays are in the order (z, y, x), coordinates in the order (x, y, z)."""
    values = Field("f", lambda x, y, z: x + 10 * y + 100 * z, axes=3).sample(BOX, whole(BOX))
    z, y, x = np.indices(BOX.nodes) * BOX.spacing
    np.testing.assert_allclose(values, [x + 10 * y + 100 * z], rtol=ROUNDING)
    text = Field("f", "x + 10*y + 100*z", axes=3).sample(BOX, whole(BOX))
    np.testing.assert_array_equal(text, values)
    with pytest.raises(TypeError, match=r"a function of \(x, y, z\), this one takes \(x, y\)"):
        Field("f", lambda x, y: x, axes=3).sample(BOX, whole(BOX))


def test_several_problems_have_values_of_one_axis_more():
    assert Field("f", np.zeros((2, *BOX.nodes)), axes=3).problems == 2
    assert Field("f", np.zeros(BOX.nodes), axes=3).problems == 1
    assert Field("f", np.zeros((2, 7)), axes=1).problems == 2
    wrong = Field("f", np.zeros((5, 6, 8)), axes=3)
    with pytest.raises(ValueError, match=r"\(5, 6, 7\) nodes \(nz \+ 1, ny \+ 1, nx \+ 1\)"):
        wrong.require_shape(BOX)


@pytest.mark.parametrize("length", [0.0, 0.6])
@pytest.mark.parametrize("axes", [1, 3])
def test_random_media_are_the_same_part_by_part(axes, length):
    grid = Grid((70, 40, 66)[-axes:], 0.25)
    field = Field("a", f"lognormal:seed=3,length={length},contrast=50", axes)
    place = tuple(slice(n // 3, n // 2) for n in grid.shape)
    everything = field.sample(grid, whole(grid))[0]
    np.testing.assert_allclose(field.sample(grid, place)[0], everything[place], rtol=1e-12)
    assert everything.std() > 0
