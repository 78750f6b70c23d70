"""Domains that are no rectangles, from the command line: ``solve``, its file, ``compare``, ``plot``."""

import json

import h5py
import numpy as np
import pytest

SOLVE = "solve -o out.h5 --cells 96x128 --spacing 0.0125"
DISK = "--domain 'expr:hypot(x-0.6,y-0.8)-0.5501'"
RING = "--domain 'expr:abs(hypot(x-0.6,y-0.8)-0.35)-0.2'"
Y, X = np.mgrid[:129, :97] * 0.0125


@pytest.fixture
def in_file(common_path):
    """Return a function: arrays of the file that a solve has written."""

    def arrays(*names):
        with h5py.File(common_path / "out.h5") as file:
            return [file[name][()] for name in names]

    return arrays


@pytest.mark.ranks(1, 2, 3)
def test_a_file_holds_the_domain_and_nan_outside(report_of, in_file, comm):
    sides = "--boundary 'expr:log(1-hypot(x-0.6,y-0.8)/0.6)' --side outline=dirichlet:1"
    report = report_of(f"{SOLVE} {DISK} {sides}")
    assert "nodes inside; second order at the outline" in report["domain"]
    inside = np.hypot(X - 0.6, Y - 0.8) < 0.5501
    names = "active", "solution", "domain/level", "VTKHDF/PointData/vtkGhostType"
    active, field, level, ghosts = in_file(*names)
    np.testing.assert_array_equal(active == 1, inside)
    np.testing.assert_array_equal(np.isfinite(field), inside)
    np.testing.assert_array_equal(level < 0, inside)
    np.testing.assert_array_equal(ghosts == 2, ~inside)  # the flag of what ParaView hides
    # Constants are reproduced, to the default tolerance.
    np.testing.assert_allclose(field[inside], 1.0, atol=1e-6)
    comm.Barrier()


@pytest.mark.parametrize(
    "more",
    [
        "--boundary expr:x*x-y*y",
        "--boundary gp:seed=3",
        "--boundary gp:seed=0 --side hole1=robin:2,expr:x+y",
        "--side outer=neumann:expr:x --side 'hole1=dirichlet:expr:sin(y)'",
        "--boundary gp:seed=1 --pde diffusion --field a=expr:1+x --field f=1",
    ],
)
@pytest.mark.usefixtures("quick_layout")
def test_compare_and_plot_take_the_domain_from_the_file(succeed, error_of, tmp_path, more):
    assert "second order at the outline" in succeed(f"{SOLVE} {RING} {more} --rtol 1e-10")
    assert error_of("out.h5") < 1e-8
    if "neumann" in more:
        succeed("plot out.h5 --reference direct")
        assert (tmp_path / "out.png").stat().st_size > 10_000


def test_masks_of_nodes_of_cells_and_pictures_of_them_are_the_same(
    succeed, in_file, tmp_path, write
):
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
        order = "staircase, first order" if name == "nodes.npy" else "second order at the outline"
        assert order in succeed(f"{SOLVE} --domain {name} --boundary expr:x*y")
        fields += in_file("solution")
    np.testing.assert_array_equal(np.isfinite(fields[0]), nodes)
    for other in fields[1:]:  # which have values on the outline, too
        np.testing.assert_array_equal(other, fields[1])
        np.testing.assert_array_equal(other[nodes], fields[0][nodes])
        assert np.isfinite(other).sum() > nodes.sum()


def test_polygons_along_the_rectangle_have_values_in_their_corners_too(
    succeed, error_of, in_file, write
):
    hole = [[0.41, 0.61], [0.83, 0.61], [0.83, 1.04]]
    corners = {"outer": [[0, 0], [1.2, 0], [1.2, 1.6], [0, 1.6]], "holes": [hole]}
    write("part.json", json.dumps(corners))
    succeed(f"{SOLVE} --domain part.json --boundary expr:x-2*y --rtol 1e-10")
    (field,) = in_file("solution")
    inside_the_hole = (X < 0.83) & (Y > 0.61) & (Y - 0.61 < (X - 0.41) * 43 / 42)
    np.testing.assert_array_equal(np.isnan(field), inside_the_hole)
    np.testing.assert_allclose(field, np.where(np.isnan(field), np.nan, X - 2 * Y), atol=1e-8)
    assert error_of("out.h5") < 1e-8


def test_values_from_a_file_of_points(succeed, error_of, write):
    angles = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    x, y = 0.6 + 0.5501 * np.cos(angles), 0.8 + 0.5501 * np.sin(angles)
    write("points.npy", np.stack([x, y, x - y], axis=1))
    succeed(f"{SOLVE} {DISK} --side outline=dirichlet:points.npy")
    # Chords of length 0.0086 are off the circle by 0.0086**2 / 8 / 0.55 = 2e-5.
    assert error_of("out.h5", "expr:x-y") < 5e-5
    assert error_of("out.h5") < 1e-4


@pytest.mark.ranks(1, 2, 3)
def test_polygons_from_a_file_keep_their_names(succeed, error_of, write):
    holes = [[[0.7, 0.9], [0.9, 0.95], [0.8, 1.2]], [[0.3, 0.4], [0.5, 0.4], [0.4, 0.6]]]
    outer = [[0.1, 0.1], [1.1, 0.2], [1.0, 1.4], [0.2, 1.5]]
    write("part.json", json.dumps({"outer": outer, "holes": holes}))
    sides = "--boundary expr:x --side hole1=neumann:expr:x*y --side hole2=dirichlet:2"
    said = succeed(f"{SOLVE} --domain part.json {sides} --rtol 1e-10")
    assert "3 polygons of 10 corners" in said
    assert error_of("out.h5") < 1e-8
