"""Solution files in VTK's own reader: what ParaView shows."""

import numpy as np
import pytest

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.window import Window
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.storage.shards import complete_shard, shard_folder, writing_shard
from mosaicdd.storage.solution_writer import writing_solutions

pytest.importorskip("vtkmodules")
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkIOHDF import vtkHDFReader

EVERYTHING = (slice(None), slice(None))


def write(path, grid, field, *, window=None, shards=0, dtype="float64"):
    """Write a field in one file, or in as many shards, each of some rows."""
    parts = None
    if shards:
        parts = []
        for rank, rows in enumerate(np.array_split(np.arange(len(field)), shards)):
            place = slice(int(rows[0]), int(rows[-1]) + 1), slice(0, field.shape[1])
            shard = shard_folder(path) / f"00-{rank:04d}.h5"
            with writing_shard(shard, field[place].shape, dtype) as writer:
                writer.write("solution", field[place], EVERYTHING)
            parts.append(complete_shard(shard, place))
    boundary = Boundary.of_field(np.zeros(grid.nodes))
    with writing_solutions(path, grid, [boundary], dtype, window=window, shards=parts) as writer:
        if not shards:
            writer.write("solution", field, EVERYTHING)
        writer.describe({}, [{"update": []}])


def read(path):
    """Return VTK's image and its values, rows from the bottom."""
    reader = vtkHDFReader()
    reader.SetFileName(str(path))
    reader.Update()
    image = reader.GetOutput()
    nx, ny, nz = image.GetDimensions()
    assert nz == 1
    values = image.GetPointData().GetArray("solution")
    assert values is not None
    return image, vtk_to_numpy(values).reshape(ny, nx)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shards", [0, 3])
@pytest.mark.parametrize("window", [None, Window((3, 5), (10, 12))], ids=["whole", "window"])
def test_vtk_shows_the_values_where_they_belong(window, shards, dtype, tmp_path):
    grid = Grid((16, 24), 0.125)
    window_shape = (window or Window.whole(grid)).shape
    field = np.random.default_rng(0).standard_normal(window_shape)
    path = tmp_path / "out.h5"
    write(path, grid, field, window=window, shards=shards, dtype=dtype)
    image, values = read(path)
    assert image.GetDimensions() == (*window_shape[::-1], 1)
    assert image.GetSpacing()[:2] == (0.125, 0.125)
    x, y = (0.0, 0.0) if window is None else (5 * 0.125, 3 * 0.125)
    assert image.GetOrigin() == (x, y, 0.0)
    np.testing.assert_array_equal(values, field.astype(dtype))


def test_the_papers_domain_opens_with_the_right_spacing(tmp_path):
    grid = Grid((2048, 2048), 0.5 / 32)
    field = np.add.outer(1e4 * np.arange(2049.0), np.arange(2049.0))  # another value at each node
    write(tmp_path / "out.h5", grid, field)
    image, values = read(tmp_path / "out.h5")
    assert image.GetDimensions() == (2049, 2049, 1)
    assert image.GetSpacing()[:2] == (0.015625, 0.015625)
    assert image.GetBounds() == (0.0, 32.0, 0.0, 32.0, 0.0, 0.0)
    np.testing.assert_array_equal(values, field)


def test_shards_that_were_moved_are_read_by_vtk_too(tmp_path):
    grid = Grid((16, 24), 0.125)
    field = np.random.default_rng(0).standard_normal(grid.nodes)
    (tmp_path / "before").mkdir()
    write(tmp_path / "before" / "out.h5", grid, field, shards=4)
    moved = (tmp_path / "before").rename(tmp_path / "after")
    np.testing.assert_array_equal(read(moved / "out.h5")[1], field)
