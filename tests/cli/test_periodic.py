"""Periodic sides at the command line: the file, comparisons, pictures, on any number of ranks."""

import h5py
import numpy as np
import pytest

from mosaicdd import read

PAIRS = {
    "x": ("--side", "left=periodic", "--side", "right=periodic", "--side", "top=neumann:1"),
    "xy": tuple(
        word
        for name in ("left", "right", "top", "bottom")
        for word in ("--side", f"{name}=periodic")
    ),
}
SIZE = ("--cells", "100x64", "--spacing", "0.01", "--pde", "poisson", "--boundary", "gp:seed=0")


@pytest.mark.ranks(1, 2, 3)
@pytest.mark.parametrize("axes", PAIRS)
def test_a_file_holds_both_sides_and_is_compared(comm, mosaicdd, common_path, strict_json, axes):
    output = common_path / "out.h5"
    arguments = (*SIZE, "--field", "f=expr:1e-4+sin(2*pi*x)", *PAIRS[axes], "--rtol", "1e-10")
    done = mosaicdd("solve", "-o", output, *arguments)
    assert done.code == 0, done.err
    if comm.rank == 0:
        # 1e-4 beside the mean 2 / pi of the sine's size.
        assert ("1.6e-04 of sources and fluxes were left over" in done.out) == (axes == "xy")
        stored = read(output)
        np.testing.assert_array_equal(stored.field[:, 0], stored.field[:, -1])
        assert axes == "x" or np.array_equal(stored.field[0], stored.field[-1])
        assert stored.periodic == (axes == "xy", True)
        with h5py.File(output) as file:
            assert file["sides/left"].attrs["condition"] == "Periodic"
    comm.Barrier()
    done = mosaicdd("compare", output, "--reference", "direct", "--json")
    assert done.code == 0, done.err
    if comm.rank == 0:
        assert strict_json(done.out)["max_error"] < 1e-8


@pytest.mark.usefixtures("quick_layout")
def test_a_picture_shows_the_error_on_periodic_sides(mosaicdd, tmp_path):
    output, picture = tmp_path / "out.h5", tmp_path / "out.png"
    assert mosaicdd("solve", "-o", output, *SIZE, "--field", "f=1", *PAIRS["x"]).code == 0
    assert read(output).error_map.shape == (5, 7)  # every 16th node, none of them twice
    assert mosaicdd("plot", output, "-o", picture).code == 0
    assert picture.stat().st_size > 10_000
