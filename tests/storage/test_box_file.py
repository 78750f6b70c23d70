"""Solution files of boxes: where values lie, several problems, what is saved and solved again."""

import h5py
import numpy as np
import pytest
from stored_fields import store

import mosaicdd as m

NODES = (7, 9, 11)
WHOLE, WINDOW = ((0, 0, 0), NODES), ((1, 2, 3), (5, 9, 8))


@pytest.mark.parametrize("window", [None, WINDOW], ids=["whole", "window"])
def test_names_and_places_stand_in_the_file(window, tmp_path):
    whole = np.random.default_rng(0).standard_normal(NODES)
    path = store(tmp_path / "out.h5", [whole], window=window)
    first, last = window or WHOLE
    field = whole[tuple(map(slice, first, last))]
    with h5py.File(path) as file:
        solution = file["solution"]
        assert [axis.label for axis in solution.dims] == ["z", "y", "x"]
        assert solution.attrs["spacing"].tolist() == [0.25] * 3
        np.testing.assert_array_equal(solution.attrs["origin"], np.multiply(first, 0.25))
    read = m.read(path)
    assert (read.grid.nodes, read.window.start, read.window.stop) == (NODES, first, last)
    for axis, letter in enumerate("zyx"):
        along = np.arange(field.shape[axis]) * 0.25 + first[axis] * 0.25
        np.testing.assert_array_equal(read.coordinates(axis), along)
        for index in (0, 3, -1):
            np.testing.assert_array_equal(read.plane(axis, index), np.take(field, index, axis))
        array = pytest.importorskip("xarray") and read.to_xarray()
        np.testing.assert_array_equal(array.coords[letter], along)
    assert array.dims == ("z", "y", "x")


def test_each_of_several_problems_has_its_field_and_sides(tmp_path):
    fields = np.random.default_rng(0).standard_normal((2, *NODES))
    shared, own = np.ones((6, 8, 10)), np.arange(2.0 * fields[0].size).reshape(2, *NODES)
    given = {"a": shared, "f": own, "c": np.array([1.0, 2.0])}
    path = store(tmp_path / "out.h5", fields, given=given)
    for number, field in enumerate(fields):
        solution = m.read(path, number)
        np.testing.assert_array_equal(solution.field, field)
        np.testing.assert_array_equal(solution.plane(1, 4), field[:, 4])
        np.testing.assert_array_equal(np.concatenate(list(solution.rows(3))), field)
        assert solution.numbers == {"c": number + 1.0}
        np.testing.assert_array_equal(solution.fields["f"], own[number])
        assert solution.fields["a"].shape == shared.shape
        assert solution.boundary.named["back"].shape == (9, 11)


def test_what_is_saved_is_read_and_solved_again(tmp_path):
    sides = {"front": m.Neumann("x*y"), "left": m.Dirichlet("y + z")}
    a = np.exp(np.random.default_rng(1).normal(size=(6, 8, 10)))
    domain = m.Domain(a.shape, 0.25)
    problem = m.Problem(domain, "diffusion", {"a": a, "f": "x"}, sides)
    solution = m.solve(problem, rtol=1e-11)
    solution.save(tmp_path / "saved.h5")
    m.solve(problem, rtol=1e-11, output=tmp_path / "written.h5")
    for name in ("saved.h5", "written.h5"):
        read = m.read(tmp_path / name)
        np.testing.assert_array_equal(read.field, solution.field)
        assert read.compare(solution).max_error == 0
    again = m.solve(read.problem, rtol=1e-11)
    np.testing.assert_allclose(again.field, solution.field, atol=1e-9)
    # Labelled values are a source, whatever the order of their axes.
    turned = read.to_xarray().isel(z=slice(None, None, -1)).transpose("x", "z", "y")
    fields = [m.solve(m.Problem(domain, "poisson", {"f": f})).field for f in (turned, read.field)]
    np.testing.assert_array_equal(*fields)
