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
    ("arguments", "missing"),
    [
        (ENDS, "bottom, top"),
        ((*ENDS, "--side", "top[0:0.5]=neumann:0"), "bottom, the rest of top"),
        (
            (
                *ENDS,
                *INSULATED[:2],
                "--side",
                "bottom[0:0.4]=neumann:0",
                "--side",
                "bottom[0.5:]=neumann:0",
            ),
            "the rest of bottom",
        ),
        (("--pde", "laplace"), "left, right, bottom, top"),
        (("--pde", "poisson", "--field", "f=1"), "left, right, bottom, top"),
        (("--pde", "heat", "--steps", "1", "--dt", "0.1"), "left, right, bottom, top"),
        (("--domain", "expr:hypot(x-0.5,y-0.5)-0.3", *ENDS), "outer"),
        (
            ("--domain", "expr:abs(hypot(x-0.5,y-0.5)-0.3)-0.1", "--side", "outer=neumann:0"),
            "hole1",
        ),
    ],
)
def test_else_something_must_be_said_of_every_side(arguments, missing, mosaicdd, tmp_path):
    ended = mosaicdd(*SOLVE, "-o", tmp_path / "out.h5", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert f"nothing is said of the sides {missing}: give their values by --boundary" in ended.err
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--boundary", "sin(x)"),
            "--boundary: 'sin(x)' is no file; a formula is written 'expr:sin(x)'",
        ),
        (("--boundary", "no.h5"), "--boundary: no.h5: the boundary file is missing"),
        (
            ("--boundary", "expr:x^2"),
            "--boundary: expression 'x^2': ^ is not allowed (a power is **)",
        ),
        (("--boundary", "expr:np.sin(x)"), "'np.sin(x)': np.sin is not allowed (write sin)"),
        (("--boundary", "expr:sine(x)"), "sine is not allowed (did you mean 'sin'?)"),
        (("--spacing", "0"), "--spacing: the grid spacing must be positive and finite, got 0.0"),
        (("--pde", "posson"), "unknown pde 'posson' (did you mean 'poisson'?)"),
        (("--field", "f=x*y"), "--field: 'x*y' is no file; a formula is written 'expr:x*y'"),
        (("--side", "lft=dirichlet:1"), "unknown side 'lft' (did you mean 'left'?)"),
        (("--side", "left=dirichlt:1"), "unknown condition 'dirichlt' (did you mean 'dirichlet'?)"),
        (("--local-solver", "laplce"), "nor a shipped model (did you mean 'laplace'?)"),
        (
            ("--pde", "anisotropic-diffusion", "--field", "axxx=1"),
            "has no field 'axxx' (did you mean 'axx'?)",
        ),
        (
            ("--pde", "diffusion", "--field", "a=expr:1+t"),
            "the field a: expression '1+t': t is not allowed (the time: fields and values on sides may",
        ),
    ],
)
def test_a_mistake_is_named_with_what_was_meant(arguments, message, mosaicdd, tmp_path):
    ended = mosaicdd(*SOLVE, "--boundary", "0", "-o", tmp_path / "out.h5", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert message in ended.err
    assert not list(tmp_path.iterdir())
