"""Masks and arrays with names and coordinates of axes: the same wherever they are given."""

import numpy as np
import pytest
import torch

import mosaicdd as m

xarray = pytest.importorskip("xarray")

H = 0.5
Y, X = (H * np.arange(n) for n in (13, 13))
MASK = np.zeros((13, 13), bool)
MASK[2:5, 6:12] = True
YC, XC = Y[:-1] + H / 2, X[:-1] + H / 2


def labelled(values, dims=("y", "x"), **coords):
    return xarray.DataArray(values, dims=dims, coords=coords)


# The same place, in other ways.
WAYS = {
    "plain": lambda mask: mask,
    "numbers": lambda mask: mask.astype(int),
    "floats": lambda mask: mask.astype(float),
    "lists": lambda mask: mask.tolist(),
    "torch": torch.from_numpy,
    "torch numbers": lambda mask: torch.from_numpy(mask).to(torch.bfloat16),
    "labelled": lambda mask: labelled(mask, y=Y, x=X),
    "upside down": lambda mask: labelled(mask[::-1], y=Y[::-1], x=X),
    "transposed": lambda mask: labelled(mask.T, ("x", "y"), y=Y, x=X),
    "turned": lambda mask: labelled(
        mask.T[::-1, ::-1].astype(int), ("x", "y"), y=Y[::-1], x=X[::-1]
    ),
    "masked nowhere": np.ma.array,
}


def held_at(where):
    sides = {name: m.Neumann(0.0) for name in ("left", "right", "bottom", "top")}
    sides["pole"] = m.Held(where, 2.0)
    problem = m.Problem(m.Domain((12, 12), H), "diffusion", {"c": 1.0}, sides)
    return np.isclose(m.solve(problem).field, 2.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_held_is_where_a_mask_says(way):
    np.testing.assert_array_equal(held_at(WAYS[way](MASK)), MASK)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "lists"])
def test_a_domain_is_where_a_mask_says(way):
    mask = ~MASK
    domain = m.Domain.from_mask(WAYS[way](mask), H)
    field = m.solve(m.Problem(domain, "poisson", {"f": 1.0})).field
    np.testing.assert_array_equal(np.isfinite(field), mask)


@pytest.mark.parametrize("way", WAYS)
def test_a_region_is_where_a_mask_says(way):
    f = np.arange(169.0).reshape(13, 13)
    solution = m.solve(m.Problem(m.Domain((12, 12), H), "poisson", {"f": f}))
    assert solution.mean(WAYS[way](MASK)) == pytest.approx(solution.field[MASK].mean())


@pytest.mark.parametrize("turned", [False, True])
def test_voxels_heed_names_and_coordinates(turned):
    voxels = np.random.default_rng(0).random((6, 8, 10)) < 0.8
    z, y, x = (0.25 * (np.arange(n) + 0.5) for n in voxels.shape)
    given = labelled(voxels, ("z", "y", "x"), z=z, y=y, x=x)
    if turned:
        given = given.transpose("x", "z", "y").isel(z=slice(None, None, -1))
    domain = m.Domain.from_mask(given)
    assert domain == m.Domain.from_mask(voxels, 0.25, origin=(0.0, 0.0, 0.0))


def test_coordinates_of_a_mask_say_the_spacing_and_the_place():
    cells = labelled(~MASK[:12, :12], y=500.0 + 3.0 * (np.arange(12) + 0.5), x=XC)
    domain = m.Domain.from_mask(cells, per_cell=True)
    assert domain.grid().steps == (3.0, H)
    assert domain.origin == (0.0, 500.0)
    distance = labelled(np.hypot(X - 3.0, Y[:, None] - 3.0) - 2.0, y=Y + 7.0, x=X)
    domain = m.Domain.from_distance(distance, (12, 12))
    assert domain.grid().steps == (H, H)
    assert domain.origin == (0.0, 7.0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: m.Domain.from_mask(labelled(MASK, y=2 * Y, x=X), H), ValueError, r"the mask has coordinates 1 apart along y, the grid has a spacing of 0\.5"),
        (lambda: m.Domain.from_mask(labelled(MASK, y=2 * Y)), ValueError, "no two coordinates along x, .*: give the spacing"),
        (lambda: m.Domain.from_mask(labelled(MASK, y=Y, x=X), H, origin=(1.0, 0.0)), ValueError, "begins at x = 1 by its origin, at 0 by the raster of the mask"),
        (lambda: m.Domain.from_distance(labelled(MASK - 0.5, y=2 * Y, x=X), (12, 12), H), ValueError, "the field domain has coordinates 1 apart along y"),
        (lambda: held_at(labelled(MASK, y=2 * Y, x=X)), ValueError, "mask of what is held has coordinates 1 apart along y"),
        (lambda: held_at(labelled(MASK, y=Y + 4, x=X)), ValueError, "mask of what is held begins at y = 4 by its coordinates, the domain at 0"),
        (lambda: held_at(np.ma.array(MASK, mask=MASK)), ValueError, r"masked at 18 of 169 places: give its filled\(False\)"),
        (lambda: m.Domain.from_mask(np.ma.array(MASK, mask=MASK), H), ValueError, "the mask is masked at 18 of 169"),
        (lambda: m.Domain.from_mask(np.ma.array(np.ones((4, 4, 4), bool), mask=np.eye(4, dtype=bool) * np.ones((4, 1, 1), bool))), ValueError, "the mask is masked at 16 of 64"),
        (lambda: m.Domain.from_mask(255 * MASK.astype(np.uint8), H), ValueError, "the mask is true or false, got values from 0 to 255: give mask=values > threshold"),
        (lambda: m.Domain.from_mask(np.full((16, 20, 3), 200, np.uint8), H), ValueError, r"picture in colours.* picture\[\.\.\., :3\]\.mean"),
        (lambda: held_at(labelled(MASK, ("lat", "lon"))), TypeError, r"axes \(lat, lon\)"),
        (lambda: held_at(2 * MASK.astype(int)), ValueError, r"values are held along points.* got numbers of the shape \(13, 13\)"),
        (lambda: held_at(np.zeros((4, 5, 6))), ValueError, r"the mask of what is held has the shape \(4, 5, 6\)"),
    ],
)  # fmt: skip
def test_what_contradicts_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_region_and_a_weight_elsewhere_are_refused():
    solution = m.solve(m.Problem(m.Domain((12, 12), H), "poisson", {"f": 1.0}))
    with pytest.raises(ValueError, match=r"the region has coordinates 1 apart along y"):
        solution.mean(labelled(MASK, y=2 * Y, x=X))
    with pytest.raises(ValueError, match=r"the region is true or false, got values from 0 to 2"):
        solution.mean(2 * MASK.astype(int))
    with pytest.raises(ValueError, match=r"dJ_du has coordinates 1 apart along y"):
        m.adjoint(solution, labelled(MASK * 1.0, y=2 * Y, x=X))
    turned = m.adjoint(solution, labelled(1.0 * MASK.T[:, ::-1], ("x", "y"), y=Y[::-1], x=X))
    np.testing.assert_allclose(turned["f"], m.adjoint(solution, 1.0 * MASK)["f"], atol=1e-12)


@pytest.mark.parametrize(
    "turn",
    [lambda u: u, lambda u: u.T, lambda u: u[::-1], lambda u: u.transpose("x", "y")[:, ::-1]],
)
def test_a_comparison_orients_what_is_labelled(turn):
    f = np.arange(169.0).reshape(13, 13)
    solution = m.solve(m.Problem(m.Domain((12, 12), H), "poisson", {"f": f}))
    wrong = solution.to_xarray().copy()
    wrong[3, 7] += 0.25
    assert m.compare(solution, turn(wrong)).max_error == pytest.approx(0.25)
    moved = wrong.assign_coords(y=Y + 1.0)
    with pytest.raises(ValueError, match="coordinates from 1 to 7 along y, the solution from 0 to 6"):  # fmt: skip
        m.compare(solution, moved)


def test_a_series_is_compared_with_its_own_time(tmp_path):
    path = tmp_path / "out.h5"
    series = m.march(m.Problem(m.Domain((12, 12), H), "heat", {"f": 1.0}), 0.0, dt=0.1, steps=3, output=path)  # fmt: skip
    every = series.to_xarray()
    for frame in range(4):
        assert m.compare(m.read(path, frame=frame), every).max_error == 0.0
    with pytest.raises(ValueError, match=r"the reference holds no field of time 0\.3"):
        m.compare(m.read(path), every[:3])


def test_values_on_a_side_have_its_coordinates():
    left = labelled(Y**2, ("y",), y=Y + 2.0)
    with pytest.raises(ValueError, match="side left begins at y = 2 by its coordinates, the domain at 0"):  # fmt: skip
        m.solve(m.Problem(m.Domain((12, 12), H), "poisson", {"f": 1.0}, {"left": m.Dirichlet(left)}))  # fmt: skip


def test_a_masked_point_is_no_place():
    solution = m.solve(m.Problem(m.Domain((12, 12), H), "poisson", {"f": 1.0}))
    points = np.ma.array([[1.0, 1.0], [2.0, 2.0]], mask=[[False, False], [True, False]])
    with pytest.raises(ValueError, match=r"1 of 2 points lie outside .* \(nan, 2\)"):
        solution.at(points)
