"""Arrays of any library: what they say besides their values counts, or is refused with the way out."""

import numpy as np
import pytest
import scipy.sparse
import torch

import mosaicdd as m
from mosaicdd.problems.fields.given import real_array

GRID = m.Domain((4, 6), 0.5).grid()
WHOLE = slice(0, 5), slice(0, 7)
VALUES = np.arange(35.0).reshape(5, 7) + 1.0
Y, X = (0.5 * np.arange(n) for n in (5, 7))


def labelled(values=VALUES, dims=("y", "x"), **coords):
    return pytest.importorskip("xarray").DataArray(values, dims=dims, coords=coords)


def problem(f, **options):
    return m.Problem(m.Domain((4, 6), 0.5), "poisson", {"f": f}, **options)


def test_a_masked_value_is_one_that_is_not_finite():
    mask = np.zeros((5, 7), bool)
    mask[2, 3] = True
    values = np.ma.array(VALUES.astype(int), mask=mask)
    assert np.isnan(real_array(values, "f"))[2, 3]
    with pytest.raises(
        ValueError, match=r"field f has 1 of 35 .* not finite, the first at node \(2, 3\)"
    ):
        problem(values).source_at(GRID, WHOLE)
    np.testing.assert_array_equal(real_array(np.ma.array(VALUES), "f"), VALUES)


def test_what_is_masked_outside_of_a_domain_does_not_count():
    outside = np.zeros((65, 97), bool)
    outside[:20, :40] = True
    domain = m.Domain.from_mask(~outside, 1 / 16)
    f = np.ma.array(np.ones((65, 97)), mask=outside)
    solution = m.solve(m.Problem(domain, "poisson", {"f": f}))
    same = m.solve(m.Problem(domain, "poisson", {"f": 1.0}))
    np.testing.assert_allclose(solution.field, same.field, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("values", "way_out"),
    [
        (torch.ones(5, 7, requires_grad=True), r"requires gradients.*give values\.detach\(\)"),
        (torch.tensor(2.0, requires_grad=True), r"requires gradients.*give values\.detach\(\)"),
        (torch.eye(5, 7).to_sparse(), r"is a sparse tensor: give values\.to_dense\(\)"),
        (scipy.sparse.eye_array(5, 7), r"is a sparse matrix: give values\.toarray\(\)"),
        ([[1.0, 2.0], [3.0]], "has rows of different lengths"),
        (lambda x, y: torch.ones(5, 7, requires_grad=True), r"requires gradients"),
    ],
)
def test_what_would_lose_something_is_refused_with_the_way_out(values, way_out):
    with pytest.raises(TypeError, match=f"the field f {way_out}"):
        problem(values).source_at(GRID, WHOLE)
    if not callable(values):
        with pytest.raises(TypeError, match=f"what Dirichlet is given {way_out}"):
            m.Dirichlet(values)


def test_a_table_is_refused_with_the_way_out():
    table = pytest.importorskip("pandas").DataFrame(VALUES)
    with pytest.raises(
        TypeError, match=r"the field f is a table \(DataFrame\): give values\.to_numpy"
    ):
        problem(table)


def test_texts_and_numbers_of_numpy_s_are_texts_and_numbers():
    same = problem("x").source_at(GRID, WHOLE)
    np.testing.assert_array_equal(problem(np.str_("x")).source_at(GRID, WHOLE), same)
    sides = {"left": m.Dirichlet(np.str_("y")), "right": m.Dirichlet(np.array(2.0))}
    (edges,) = problem(np.float32(1.0), sides=sides).boundaries(GRID)
    np.testing.assert_array_equal(edges.named["left"][1:-1], Y[1:-1])
    np.testing.assert_array_equal(edges.named["right"][1:-1], 2.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32])
def test_tensors_of_few_bits_are_taken_as_they_are(dtype):
    values = torch.from_numpy(VALUES).to(dtype)  # whole numbers up to 35 have 6 bits
    np.testing.assert_array_equal(problem(values).source_at(GRID, WHOLE)[0], VALUES)


@pytest.mark.parametrize(
    "make",
    [
        lambda: labelled(),
        lambda: labelled(y=Y, x=X),
        lambda: labelled(VALUES.T, ("x", "y")),
        lambda: labelled(VALUES[::-1], y=Y[::-1] + 1e3, x=X),
        lambda: labelled(VALUES.T[::-1, ::-1], ("x", "y"), y=Y[::-1], x=X[::-1]),
        lambda: labelled(VALUES, ("dim_0", "dim_1")),
    ],
)
def test_names_and_coordinates_say_where_values_are(make):
    np.testing.assert_array_equal(problem(make()).source_at(GRID, WHOLE)[0], VALUES)


def test_a_leading_axis_of_any_name_is_of_several_problems():
    values = np.stack([VALUES, 2 * VALUES])
    many = problem(labelled(values.transpose(2, 1, 0), ("x", "y", "member")))
    assert many.problems == 2
    np.testing.assert_array_equal(many.source_at(GRID, WHOLE), values)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: labelled(dims=("lat", "lon")), TypeError, r"axes \(lat, lon\).*named y and x"),
        (lambda: labelled(dims=("y", "lon")), TypeError, r"axes \(y, lon\).*named y and x"),
        (lambda: labelled(y=Y**2), ValueError, r"coordinates along y.*evenly spaced"),
        (lambda: labelled(x=2 * X), ValueError, r"coordinates 1 apart along x.*spacing of 0\.5"),
    ],
)
def test_names_and_coordinates_that_contradict_are_refused(make, error, message):
    with pytest.raises(error, match=f"the field f has .*{message}"):
        problem(make())


def test_fields_that_begin_at_different_places_are_refused():
    a, f = labelled(1 + VALUES**2, y=Y, x=X), labelled(y=Y + 0.5, x=X)
    with pytest.raises(
        ValueError, match=r"begins at y = \S+ by the raster of a, at \S+ by that of f"
    ):
        m.Problem(
            m.Domain(GRID.shape, GRID.spacing),
            "diffusion",
            {"a": a, "f": m.Wells([((1.0, 1.0), 2.0)], f)},
        )


def test_values_on_a_side_go_along_its_coordinates():
    left = labelled(VALUES[::-1, 0], ("y",), y=Y[::-1])
    (boundary,) = problem(1.0, sides={"left": m.Dirichlet(left)}).boundaries(GRID)
    np.testing.assert_array_equal(boundary.named["left"][1:-1], VALUES[1:-1, 0])
    with pytest.raises(ValueError, match="side left has values along x"):
        problem(1.0, sides={"left": m.Dirichlet(labelled(VALUES[:, 0], ("x",)))}).boundaries(GRID)


def test_a_field_that_was_labelled_is_taken_again(tmp_path):
    pytest.importorskip("xarray")
    u = m.solve(m.Problem((64, 64), "poisson", {"f": 1.0})).to_xarray()
    again = m.solve(m.Problem((64, 64), "poisson", {"f": u}))
    same = m.solve(m.Problem((64, 64), "poisson", {"f": u.values}))
    np.testing.assert_array_equal(again.field, same.field)


def test_a_dataset_of_xarray_s_is_refused_with_the_names_in_it():
    xarray = pytest.importorskip("xarray")
    values = xarray.Dataset({"recharge": (("y", "x"), np.ones((5, 7)))})
    with pytest.raises(TypeError, match=r"the field f is a dataset .* one of them, recharge"):
        problem(values)
