"""What must be said of a problem on the command line."""

import numpy as np
import pytest

from mosaicdd import read

SOLVE = "solve -o out.h5 --cells 64x64 --local-solver exact"
ENDS = "--side left=dirichlet:1 --side right=dirichlet:1"
BOX = "solve -o out.h5 --cells 16x16x16 --spacing 0.0625 --pde diffusion"


def sides(*values):
    return " ".join(f"--side '{value}'" for value in values)


def test_the_boundary_is_random_where_nothing_is_said_of_the_problem_and_named(succeed):
    assert succeed(SOLVE).splitlines()[0].endswith(", boundary gp:seed=0")


@pytest.mark.parametrize(
    "parts",
    [
        ("top[0:0.3]", "top[0.3:0.6]", "top[0.6:]"),
        ("top[:0.51]", "top[0.51:]"),
        ("top[0.2:0.7]", "top[0:0.2]", "top[0.7:1]"),
    ],
)
def test_parts_that_cover_a_side_are_all_of_it(parts, succeed):
    fields = []
    for top in (parts, ("top",)):
        natural = sides(*(f"{part}=neumann:1" for part in top), "bottom=neumann:0")
        succeed(f"{SOLVE} {ENDS} {natural}")
        fields.append(read("out.h5").field)
    np.testing.assert_allclose(fields[0], fields[1], rtol=0, atol=1e-6)


def test_parts_that_cover_a_side_of_a_box_are_all_of_it(succeed):
    names = "left", "right", "back", "front", "top[0:0.5, :]", "top[0.5:, 0:0.1]", "top[0.5:, 0.1:]"
    succeed(f"{BOX} {sides(*(f'{name}=neumann:0' for name in names), 'bottom=dirichlet:1')}")
    np.testing.assert_allclose(read("out.h5").field, 1.0, rtol=0, atol=1e-6)


INSULATED = sides("top=neumann:0", "bottom=neumann:0")


@pytest.mark.parametrize("more", [INSULATED, "--boundary 1", "--boundary expr:1"])
def test_sides_all_round_need_no_boundary_and_a_number_is_one(more, succeed):
    succeed(f"{SOLVE} {ENDS} {more}")
    # Constants are solved to the relative update of 1e-7 that is asked for; it sums up over 10 iterations.
    np.testing.assert_allclose(read("out.h5").field, 1.0, atol=1e-6)
