"""Solution files of boxes: where values lie, several problems, and what VTK's own reader shows."""

import h5py
import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.window import Window
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.report.stored import read_all
from mosaicdd.storage.solution_writer import writing_solutions

GRID = Grid((6, 8, 10), 0.25)
WINDOW = Window((1, 2, 3), (5, 9, 8))


@pytest.fixture
def stored(tmp_path):
    """Return a function that writes random fields of so many problems: the file, and the fields."""

    def make(problems=1, window=None, fields=None):
        rng = np.random.default_rng(0)
        values = rng.standard_normal((problems, *(window or Window.whole(GRID)).shape))
        boundaries = [Boundary.of_field(rng.standard_normal(GRID.nodes)) for _ in range(problems)]
        path = tmp_path / "out.h5"
        with writing_solutions(
            path, GRID, boundaries, "float64", window=window, fields=fields
        ) as writer:
            writer.write("solution", values, (slice(0, problems), *[slice(None)] * 3))
            results = [{"iterations": 0}] * problems
            writer.describe({"pde": "diffusion", "problems": results}, [{"update": []}] * problems)
        return path, values

    return make


@pytest.mark.parametrize("window", [None, WINDOW], ids=["whole", "window"])
def test_names_and_places_stand_in_the_file(window, stored):
    path, (field,) = stored(window=window)
    with h5py.File(path) as file:
        solution = file["solution"]
        assert [axis.label for axis in solution.dims] == ["z", "y", "x"]
        assert solution.attrs["spacing"].tolist() == [0.25] * 3
        first = (window or Window.whole(GRID)).start
        np.testing.assert_array_equal(solution.attrs["origin"], np.multiply(first, 0.25))
    read = m.read(path)
    assert (read.grid, read.window) == (GRID, window or Window.whole(GRID))
    for axis, letter in enumerate("zyx"):
        along = np.arange(field.shape[axis]) * 0.25 + first[axis] * 0.25
        np.testing.assert_array_equal(read.coordinates(axis), along)
        for index in (0, 3, -1):
            np.testing.assert_array_equal(read.plane(axis, index), np.take(field, index, axis))
        array = pytest.importorskip("xarray") and read.to_xarray()
        np.testing.assert_array_equal(array.coords[letter], along)
    assert array.dims == ("z", "y", "x")


def test_each_of_several_problems_has_its_field_and_sides(stored):
    shared, own = np.ones((6, 8, 10)), np.arange(2 * 7 * 9 * 11.0).reshape(2, 7, 9, 11)
    path, values = stored(2, fields={"a": shared, "f": own, "c": np.array([1.0, 2.0])})
    for number, (solution, field) in enumerate(zip(read_all(path), values, strict=True)):
        np.testing.assert_array_equal(solution.field, field)
        np.testing.assert_array_equal(solution.plane(1, 4), field[:, 4])
        np.testing.assert_array_equal(np.concatenate(list(solution.rows(3))), field)
        assert solution.numbers == {"c": number + 1.0}
        np.testing.assert_array_equal(solution.fields["f"], own[number])
        assert solution.fields["a"].shape == shared.shape
        assert solution.boundary.named["back"].shape == (9, 11)


def test_what_is_saved_is_read_and_solved_again(tmp_path):
    sides = {"front": m.Neumann("x*y"), "left": m.Dirichlet("y + z")}
    a = np.exp(np.random.default_rng(1).normal(size=GRID.shape))
    problem = m.Problem(m.Domain(GRID.shape, 0.25), "diffusion", {"a": a, "f": "x"}, sides)
    solution = m.solve(problem, rtol=1e-11)
    for number, what in enumerate((solution, m.read)):
        path = tmp_path / f"{number}.h5"
        if what is solution:
            solution.save(path)
        else:
            m.solve(problem, rtol=1e-11, output=path)
        read = m.read(path)
        np.testing.assert_array_equal(read.field, solution.field)
        assert read.compare(solution).max_error == 0
    again = m.solve(read.problem, rtol=1e-11)
    np.testing.assert_allclose(again.field, solution.field, atol=1e-9)
    labelled = read.to_xarray().isel(z=slice(None, None, -1)).transpose("x", "z", "y")
    source = m.Problem(m.Domain(GRID.shape, 0.25), "poisson", {"f": labelled}).source
    part = tuple(slice(0, nodes) for nodes in GRID.nodes)
    np.testing.assert_array_equal(source.sample(GRID, part)[0], read.field)


@pytest.mark.parametrize("window", [None, WINDOW], ids=["whole", "window"])
def test_vtk_shows_a_box(window, stored):
    image, (values,) = _shown(stored(window=window)), stored(window=window)[1]
    assert image.GetSpacing() == (0.25, 0.25, 0.25)
    first = (window or Window.whole(GRID)).start
    assert image.GetOrigin() == tuple(0.25 * n for n in reversed(first))
    np.testing.assert_array_equal(_values(image), values)


def test_vtk_shows_several_boxes_one_after_another(stored):
    written = stored(3)
    for number, values in enumerate(written[1]):
        np.testing.assert_array_equal(_values(_shown(written, number)), values)


def _shown(written, step=0):
    """Return VTK's image of a file."""
    pytest.importorskip("vtkmodules")
    from vtkmodules.vtkIOHDF import vtkHDFReader

    reader = vtkHDFReader()
    reader.SetFileName(str(written[0]))
    reader.SetStep(step)
    reader.Update()
    return reader.GetOutput()


def _values(image):
    from vtkmodules.util.numpy_support import vtk_to_numpy

    values = vtk_to_numpy(image.GetPointData().GetArray("solution"))
    return values.reshape(image.GetDimensions()[::-1])
