"""What must be said of a problem on the command line, and what is said of mistakes."""

import numpy as np
import pytest

from mosaicdd import read

SOLVE = ("solve", "--cells", "64x64", "--local-solver", "exact")
ENDS = ("--side", "left=dirichlet:1", "--side", "right=dirichlet:1")
INSULATED = ("--side", "top=neumann:0", "--side", "bottom=neumann:0")


def test_the_boundary_is_random_where_nothing_is_said_of_the_problem_and_named(mosaicdd, tmp_path):
    ended = mosaicdd(*SOLVE, "-o", tmp_path / "out.h5")
    assert ended.code == 0
    assert ended.out.splitlines()[0].endswith(", boundary gp:seed=0")


@pytest.mark.parametrize(
    "parts",
    [
        ("top[0:0.3]", "top[0.3:0.6]", "top[0.6:]"),
        ("top[:0.51]", "top[0.51:]"),
        ("top[0.2:0.7]", "top[0:0.2]", "top[0.7:1]"),
    ],
)
def test_parts_that_cover_a_side_are_all_of_it(parts, mosaicdd, tmp_path):
    top = [word for part in parts for word in ("--side", f"{part}=neumann:1")]
    fields = []
    for more in (top, ["--side", "top=neumann:1"]):
        output = tmp_path / f"{len(more)}.h5"
        ended = mosaicdd(*SOLVE, "-o", output, *ENDS, *more, "--side", "bottom=neumann:0")
        assert ended.code == 0, ended.err
        fields.append(read(output).field)
    np.testing.assert_allclose(fields[0], fields[1], rtol=0, atol=1e-6)


def test_parts_that_cover_a_side_of_a_box_are_all_of_it(mosaicdd, tmp_path):
    sides = [f"{name}=neumann:0" for name in ("left", "right", "back", "front", "top[0:0.5, :]")]
    sides += ["top[0.5:, 0:0.1]=neumann:0", "top[0.5:, 0.1:]=neumann:0", "bottom=dirichlet:1"]
    given = [word for side in sides for word in ("--side", side)]
    command = "solve", "--cells", "16x16x16", "--spacing", "0.0625", "--pde", "diffusion"
    ended = mosaicdd(*command, "-o", tmp_path / "out.h5", *given)
    assert ended.code == 0, ended.err
    np.testing.assert_allclose(read(tmp_path / "out.h5").field, 1.0, rtol=0, atol=1e-6)
    ended = mosaicdd(*command, "-o", tmp_path / "out.h5", *given[:-4], *given[-2:])
    assert (ended.code, "the rest of top" in ended.err) == (2, True)


@pytest.mark.parametrize("more", [INSULATED, ("--boundary", "1"), ("--boundary", "expr:1")])
def test_sides_all_round_need_no_boundary_and_a_number_is_one(more, mosaicdd, tmp_path):
    ended = mosaicdd(*SOLVE, "-o", tmp_path / "out.h5", *ENDS, *more)
    assert ended.code == 0, ended.err
    # Constants are solved to the relative update of 1e-7 that is asked for; it sums up over 10 iterations.
    np.testing.assert_allclose(read(tmp_path / "out.h5").field, 1.0, atol=1e-6)
