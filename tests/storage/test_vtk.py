"""Solution files in VTK's own reader: what ParaView shows."""

import h5py
import numpy as np
import pytest
from stored_fields import pieces, store

pytest.importorskip("vtkmodules")
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkIOHDF import vtkHDFReader

SHAPES = {"plane": ((17, 25), ((3, 5), (10, 12))), "box": ((7, 9, 11), ((1, 2, 3), (5, 9, 8)))}


def read(path, step=0):
    """Return VTK's image and its values, rows from the bottom."""
    reader = vtkHDFReader()
    reader.SetFileName(str(path))
    reader.SetStep(step)
    reader.Update()
    image = reader.GetOutput()
    values = vtk_to_numpy(image.GetPointData().GetArray("solution"))
    return image, values.reshape(image.GetDimensions()[::-1])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shards", [0, 3])
@pytest.mark.parametrize("which", [None, 1], ids=["whole", "window"])
@pytest.mark.parametrize("axes", SHAPES)
def test_vtk_shows_the_values_where_they_belong(axes, which, shards, dtype, tmp_path):
    nodes, window = SHAPES[axes]
    field = np.random.default_rng(0).standard_normal(nodes)
    start, stop = window if which else ((0,) * len(nodes), nodes)
    part = field[tuple(map(slice, start, stop))]
    places = [(rows, *(slice(0, n) for n in part.shape[1:])) for rows in pieces(len(part), 3)]
    how = {"window": window if which else None, "places": places if shards else None}
    path = store(tmp_path / "out.h5", [field], spacing=0.125, dtype=dtype, **how)
    image, values = read(path)
    assert image.GetDimensions() == (*part.shape[::-1], 1)[:3]
    assert image.GetSpacing()[: len(nodes)] == (0.125,) * len(nodes)
    assert image.GetOrigin() == (*(0.125 * n for n in reversed(start)), 0.0)[:3]
    np.testing.assert_array_equal(values.reshape(part.shape), part.astype(dtype))
    with h5py.File(path) as file:  # without a copy
        assert file["VTKHDF/PointData/solution"] == file["solution"]


def test_vtk_shows_several_boxes_one_after_another(tmp_path):
    fields = np.random.default_rng(0).standard_normal((3, 7, 9, 11))
    path = store(tmp_path / "out.h5", fields)
    for number, values in enumerate(fields):
        np.testing.assert_array_equal(read(path, number)[1], values)


def test_the_papers_domain_opens_with_the_right_spacing(tmp_path):
    field = np.add.outer(1e4 * np.arange(2049.0), np.arange(2049.0))  # another value at each node
    image, values = read(store(tmp_path / "out.h5", [field], spacing=0.5 / 32))
    assert image.GetDimensions() == (2049, 2049, 1)
    assert image.GetSpacing()[:2] == (0.015625, 0.015625)
    assert image.GetBounds() == (0.0, 32.0, 0.0, 32.0, 0.0, 0.0)
    np.testing.assert_array_equal(values[0], field)


def test_shards_that_were_moved_are_read_by_vtk_too(tmp_path):
    field = np.random.default_rng(0).standard_normal((17, 25))
    (tmp_path / "before").mkdir()
    store(
        tmp_path / "before" / "out.h5", [field], places=[(r, slice(0, 25)) for r in pieces(17, 4)]
    )
    moved = (tmp_path / "before").rename(tmp_path / "after")
    np.testing.assert_array_equal(read(moved / "out.h5")[1][0], field)
