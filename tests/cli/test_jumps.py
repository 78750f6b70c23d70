"""Periodic sides with a jump from the command line, in files, pages and of what they are asked."""

import json

import h5py
import numpy as np
import pytest

import mosaicdd as m

SIDES = ("--side", "left=periodic:1.5", "--side", "right=periodic:1.5")
INSULATED = ("--side", "bottom=neumann:0", "--side", "top=neumann:0")
SOLVE = ("solve", "--json", "--cells", "72x46", "--pde", "diffusion", "--rtol", "1e-11")
FIELD = ("--field", "a=expr:1.5+sin(2*pi*x/1.125)*cos(9*y)")


@pytest.mark.ranks(1, 2)
def test_a_jump_is_in_the_file_and_what_it_is_asked(mosaicdd, common_path, comm):
    path = common_path / "out.h5"
    ended = mosaicdd(*SOLVE, *FIELD, *SIDES, *INSULATED, "-o", path)
    assert ended.code == 0, ended.err
    ended = mosaicdd("compare", path, "--reference", "direct", "--json")
    assert json.loads(ended.out)["max_error"] < 1e-8
    if comm.rank == 0:
        read = m.read(path)
        u = read.field
        np.testing.assert_allclose(u[:, -1] - u[:, 0], 1.5, rtol=0, atol=1e-10)
        (condition,) = {part.condition for part in read.sides.parts if part.name == "left"}
        assert condition == m.Periodic(1.5)
        assert read.flow("left") == pytest.approx(-read.flow("right"), rel=1e-8)
        assert abs(read.balance().left_over) < 1e-8
        slope = read.gradient()[1]
        across = (u[:, 1] + 1.5 - u[:, -2]) * 32
        np.testing.assert_allclose(slope[:, 0], across, rtol=0, atol=1e-8)
        with h5py.File(path) as file:
            assert set(np.unique(file["sides/right"][()])) == {1.5}
    comm.Barrier()
    ended = mosaicdd("quantities", path, "--flow", "right", "--json")
    assert ended.code == 0, ended.err


def test_the_page_tells_the_jump(mosaicdd, tmp_path):
    path = tmp_path / "out.h5"
    mosaicdd(*SOLVE, *SIDES, *INSULATED, "-o", path)
    ended = mosaicdd("report", path, "-o", tmp_path / "page.html")
    assert ended.code == 0, ended.err
    assert "left periodic 1.5" in (tmp_path / "page.html").read_text()
