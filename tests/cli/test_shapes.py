"""Domains that are no rectangles, from the command line: ``solve``, its file, ``compare``, ``plot``."""

import json

import h5py
import numpy as np
import pytest

SIZE = ("--cells", "96x128", "--spacing", "0.0125")
DISK = ("--domain", "expr:hypot(x-0.6,y-0.8)-0.5501")
RING = ("--domain", "expr:abs(hypot(x-0.6,y-0.8)-0.35)-0.2")


@pytest.mark.ranks(1, 2, 3)
def test_a_file_holds_the_domain_and_nan_outside(comm, mosaicdd, common_path, strict_json):
    output = common_path / "out.h5"
    sides = ("--boundary", "expr:log(1-hypot(x-0.6,y-0.8)/0.6)", "--side", "outline=dirichlet:1")
    done = mosaicdd("solve", "-o", output, *SIZE, *DISK, *sides, "--json")
    assert done.code == 0, done.err
    report = strict_json(done.out)
    assert "nodes inside; second order at the outline" in report["domain"]
    if comm.rank == 0:
        y, x = np.mgrid[:129, :97] * 0.0125
        inside = np.hypot(x - 0.6, y - 0.8) < 0.5501
        with h5py.File(output) as file:
            np.testing.assert_array_equal(file["active"][()] == 1, inside)
            np.testing.assert_array_equal(np.isfinite(file["solution"][()]), inside)
            np.testing.assert_array_equal(file["domain/level"][()] < 0, inside)
            # Hidden nodes in ParaView have the flag 2.
            ghosts = file["VTKHDF/PointData/vtkGhostType"][()]
            np.testing.assert_array_equal(ghosts == 2, ~inside)
            # Constants are reproduced, to the default tolerance.
            np.testing.assert_allclose(file["solution"][()][inside], 1.0, atol=1e-6)


@pytest.mark.parametrize(
    "more",
    [
        ("--boundary", "expr:x*x-y*y"),
        ("--boundary", "gp:seed=3"),
        ("--boundary", "gp:seed=0", "--side", "hole1=robin:2,expr:x+y"),
        ("--side", "outer=neumann:expr:x", "--side", "hole1=dirichlet:expr:sin(y)"),
        (
            *("--boundary", "gp:seed=1", "--pde", "diffusion"),
            *("--field", "a=expr:1+x", "--field", "f=1"),
        ),
    ],
    ids=lambda more: more[1].replace(":", "-"),
)
@pytest.mark.usefixtures("quick_layout")
def test_compare_and_plot_take_the_domain_from_the_file(
    mosaicdd, tmp_path, strict_json, comm, more
):
    output = tmp_path / "out.h5"
    done = mosaicdd("solve", "-o", output, *SIZE, *RING, *more, "--rtol", "1e-10")
    assert done.code == 0, done.err
    assert "second order at the outline" in done.out
    done = mosaicdd("compare", output, "--reference", "direct", "--json")
    assert done.code == 0, done.err
    assert strict_json(done.out)["max_error"] < 1e-8
    if "neumann" in str(more):
        done = mosaicdd("plot", output, "--reference", "direct")
        assert done.code == 0, done.err
        assert output.with_suffix(".png").stat().st_size > 10_000


def test_masks_of_nodes_of_cells_and_pictures_of_them_are_the_same(mosaicdd, tmp_path, write):
    image = pytest.importorskip("PIL.Image")
    cells = np.zeros((128, 96), bool)
    cells[10:100, 8:80], cells[40:60, 30:50] = True, False
    nodes = np.zeros((129, 97), bool)
    nodes[11:100, 9:80], nodes[40:61, 30:51] = True, False
    write("nodes.npy", nodes)
    write("cells.npy", cells.astype(np.uint8))
    write("raster.npy", np.where(cells, 0.7, np.nan))
    image.fromarray((cells[::-1] * 255).astype(np.uint8)).save(tmp_path / "cells.png")
    fields = []
    for name in ("nodes.npy", "cells.npy", "raster.npy", "cells.png"):
        output = tmp_path / "out.h5"
        arguments = ("--domain", tmp_path / name, "--boundary", "expr:x*y")
        done = mosaicdd("solve", "-o", output, *SIZE, *arguments)
        assert done.code == 0, done.err
        order = "staircase, first order" if name == "nodes.npy" else "second order at the outline"
        assert order in done.out
        with h5py.File(output) as file:
            fields.append(file["solution"][()])
    np.testing.assert_array_equal(np.isfinite(fields[0]), nodes)
    for other in fields[1:]:  # which have values on the outline, too
        np.testing.assert_array_equal(other, fields[1])
        np.testing.assert_array_equal(other[nodes], fields[0][nodes])
        assert np.isfinite(other).sum() > nodes.sum()


def test_polygons_along_the_rectangle_have_values_in_their_corners_too(
    mosaicdd, tmp_path, write, strict_json
):
    hole = [[0.41, 0.61], [0.83, 0.61], [0.83, 1.04]]
    corners = {"outer": [[0, 0], [1.2, 0], [1.2, 1.6], [0, 1.6]], "holes": [hole]}
    output = tmp_path / "out.h5"
    given = ("--domain", write("part.json", json.dumps(corners)), "--boundary", "expr:x-2*y")
    done = mosaicdd("solve", "-o", output, *SIZE, *given, "--rtol", "1e-10")
    assert done.code == 0, done.err
    with h5py.File(output) as file:
        field = file["solution"][()]
    y, x = np.mgrid[:129, :97] * 0.0125
    inside_the_hole = (x < 0.83) & (y > 0.61) & (y - 0.61 < (x - 0.41) * 43 / 42)
    np.testing.assert_array_equal(np.isnan(field), inside_the_hole)
    np.testing.assert_allclose(field, np.where(np.isnan(field), np.nan, x - 2 * y), atol=1e-8)
    done = mosaicdd("compare", output, "--reference", "direct", "--json")
    assert strict_json(done.out)["max_error"] < 1e-8


def test_values_from_a_file_of_points(mosaicdd, tmp_path, write, strict_json):
    angles = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    x, y = 0.6 + 0.5501 * np.cos(angles), 0.8 + 0.5501 * np.sin(angles)
    points = write("points.npy", np.stack([x, y, x - y], axis=1))
    output = tmp_path / "out.h5"
    given = ("--side", f"outline=dirichlet:{points}")
    done = mosaicdd("solve", "-o", output, *SIZE, *DISK, *given)
    assert done.code == 0, done.err
    # Chords of length 0.0086 are off the circle by 0.0086**2 / 8 / 0.55 = 2e-5.
    done = mosaicdd("compare", output, "--reference", "expr:x-y", "--json")
    assert strict_json(done.out)["max_error"] < 5e-5
    done = mosaicdd("compare", output, "--reference", "direct", "--json")
    assert strict_json(done.out)["max_error"] < 1e-4


@pytest.mark.ranks(1, 2, 3)
def test_polygons_from_a_file_keep_their_names(mosaicdd, common_path, write, strict_json, comm):
    holes = [[[0.7, 0.9], [0.9, 0.95], [0.8, 1.2]], [[0.3, 0.4], [0.5, 0.4], [0.4, 0.6]]]
    outer = [[0.1, 0.1], [1.1, 0.2], [1.0, 1.4], [0.2, 1.5]]
    polygons = write("part.json", json.dumps({"outer": outer, "holes": holes}))
    output = common_path / "out.h5"
    sides = ("--side", "hole1=neumann:expr:x*y", "--side", "hole2=dirichlet:2")
    arguments = ("--domain", polygons, "--boundary", "expr:x", *sides, "--rtol", "1e-10")
    done = mosaicdd("solve", "-o", output, *SIZE, *arguments)
    assert done.code == 0, done.err
    if comm.rank == 0:
        assert "3 polygons of 10 corners" in done.out
    comm.Barrier()
    done = mosaicdd("compare", output, "--reference", "direct", "--json")
    assert done.code == 0, done.err
    if comm.rank == 0:
        assert strict_json(done.out)["max_error"] < 1e-8
