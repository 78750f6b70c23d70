"""Node values that are read when they are sliced."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.discretisation.coarser import every
from mosaicdd.problems.fields.evaluated import Sliced

VALUES = np.random.default_rng(0).standard_normal((4, 5, 7))


def test_some_problems_have_their_own_values():
    some = Sliced.some(VALUES, range(1, 3))
    assert some.shape == (2, 5, 7)
    np.testing.assert_array_equal(some[..., 1:3, 2:6], VALUES[1:3, 1:3, 2:6])


def test_one_of_some_problems_is_coarsened_alone():
    np.testing.assert_array_equal(
        every(Sliced.some(VALUES, range(1, 3)), 1, 2, 2), VALUES[2, ::2, ::2]
    )


def test_one_time_has_its_own_values():
    frame = Sliced.of_time(VALUES, 3)
    assert frame.shape == (5, 7)
    for place in ((slice(1, 3), slice(2, 6)), (..., slice(1, 3), slice(2, 6))):
        np.testing.assert_array_equal(frame[place], VALUES[3, 1:3, 2:6])


def x(x, y, z=None):
    return x


SOME = {"left": m.Dirichlet(x), "right": m.Neumann(x), "top": m.Robin(1.0, x)}
DISK = m.Domain.from_distance(lambda x, y: x - 0.2, (16, 16), 1 / 16)
STEADY = {
    "rectangle": m.Problem((16, 16), "poisson", {"f": x}, m.Dirichlet(x)),
    "medium": m.Problem(m.Domain((16, 16), origin=(1.0, 1.0)), "diffusion", {"a": x, "f": x}, SOME),
    "distance": m.Problem(DISK, "poisson", {"f": x}, m.Dirichlet(x)),
    "box": m.Problem((8, 8, 8), "poisson", {"f": x}, m.Dirichlet(x)),
    "nonlinear": m.Problem((16, 16), "poisson-boltzmann", {"c": x, "f": x}, m.Dirichlet(x)),
    "held": m.Problem((16, 16), "diffusion", {"f": x}, {"p": m.Held(lambda x, y: x > 0.1, x)}),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", STEADY)
def test_a_function_may_return_one_of_its_arguments(name):
    assert m.solve(STEADY[name]).converged


@pytest.mark.filterwarnings("error")
def test_a_function_in_time_may_return_one_of_its_arguments():
    pumped = m.Wells([((0.1, 0.1), lambda t: t)])
    for f in (x, lambda x, y, t: t, pumped):
        heat = m.Problem((16, 16), "heat", {"f": f}, m.Dirichlet(lambda x, y, t: t))
        assert m.march(heat, x, dt=0.1, steps=2).status == "converged_rtol"
