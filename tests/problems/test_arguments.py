"""Which arguments a function takes: coordinates, the time, and defaults that are kept."""

import functools

import numpy as np
import pytest
import torch

import mosaicdd as m

CELLS = (8, 10)
TIME = {"dt": 0.1, "steps": 2, "settings": m.SolveSettings(rtol=1e-12), "solver_share": 0}


class Called:
    """An object that is called, with a default."""

    def __init__(self, k):
        self.k = k

    def __call__(self, x, y, k=3.0):
        return k * x


def marched(fields=None, sides=None, initial=0.0, cells=CELLS):
    problem = m.Problem(cells, "heat", fields, sides or m.Dirichlet(0.0))
    return m.march(problem, initial, **TIME).field


OF_PLACE = {
    "default": lambda x, y, k=3.0: k * x,
    "default of a coordinate": lambda x, y, z=3.0: z * x,
    "two defaults": lambda x, y, k=3.0, more=0.0: k * x + more,
    "keyword": lambda x, y, *, k=3.0: k * x,
    "partial": functools.partial(lambda x, y, k: k * x, k=3.0),
    "partial that sets the time": functools.partial(lambda x, y, t: t * x, t=3.0),
    "object": Called(1.0),
    "vectorized": np.vectorize(lambda x, y: 3.0 * x),
}
OF_TIME = {
    "last": lambda x, y, t: 30.0 * x * t,
    "another name": lambda x, y, tau: 30.0 * x * tau,
    "default": lambda x, y, t=7.0: 30.0 * x * t,
    "behind a default": lambda x, y, k=30.0, t=7.0: k * x * t,
    "keyword": lambda x, y, *, t: 30.0 * x * t,
    "vectorized": np.vectorize(lambda x, y, t: 30.0 * x * t),
    "any number": lambda *places: 30.0 * places[0] * places[2],
}
NEITHER = {
    "nothing says which": lambda *places: places[0],
    "z": lambda x, y, z: z * x,
    "t first": lambda t, y: t * y,
    "t and another": lambda x, y, k, t=0.0: k * x,
    "two more": lambda x, y, t, k: x,
    "a coordinate for k": lambda x, k=3.0: k * x,
}


@pytest.mark.parametrize("kind", OF_PLACE)
def test_a_default_is_no_time(kind):
    f = OF_PLACE[kind]
    expected = marched({"f": "3*x"})
    np.testing.assert_allclose(marched({"f": f}), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", OF_TIME)
def test_an_argument_more_or_one_named_t_is_the_time(kind):
    expected = marched({"f": "30*x*t"})
    np.testing.assert_allclose(marched({"f": OF_TIME[kind]}), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", NEITHER)
def test_what_may_be_either_is_refused(kind):
    with pytest.raises(TypeError, match="function of"):
        marched({"f": NEITHER[kind]})


def k_for(value):
    return lambda x, y, k=value: k + 0.0 * x


PLACES = {
    "a": lambda k: ({"a": k, "f": 1.0}, None),
    "s": lambda k: ({"s": k, "f": 1.0}, None),
    "c": lambda k: ({"c": k, "f": 1.0}, None),
    "values": lambda k: (None, m.Dirichlet(k)),
    "flux": lambda k: (None, {"left": m.Neumann(k)}),
    "exchange": lambda k: (None, {"left": m.Robin(k, 1.0)}),
    "held": lambda k: (None, {"pipe": m.Held("hypot(x-0.08, y-0.06) < 0.03", k)}),
    "beside wells": lambda k: ({"f": m.Wells([((0.08, 0.06), 1.0)], k)}, None),
}


@pytest.mark.parametrize("where", PLACES)
def test_everywhere_in_a_march(where):
    fields, sides = PLACES[where](k_for(4.0))
    given, expected = marched(fields, sides), marched(*PLACES[where](4.0))
    np.testing.assert_allclose(given, expected, rtol=1e-9, atol=1e-14)
    late = marched(*PLACES[where](lambda x, y, t: 4.0 + t + 0.0 * x))
    assert abs(late - expected).max() > 1e-6 * abs(expected).max()


def test_initial_values_have_no_time():
    given = marched(initial=lambda x, y, k=2.0, t=0.0: k + t + 0.0 * x)
    np.testing.assert_array_equal(given, marched(initial=2.0))
    with pytest.raises(TypeError, match="initial is of the time 0: give a function of"):
        marched(initial=lambda x, y, t: x)


def test_in_boxes_and_of_numpy():
    box = (4, 5, 6)
    given = marched({"f": lambda x, y, z, k=3.0: k * x}, cells=box)
    expected = marched({"f": "3*x"}, cells=box)
    np.testing.assert_allclose(given, expected, rtol=1e-12, atol=1e-15)
    plane = marched({"f": np.hypot}), marched({"f": "hypot(x, y)"})
    np.testing.assert_allclose(*plane, rtol=1e-12, atol=1e-15)
    with pytest.raises(TypeError, match="out would be a coordinate"):
        m.solve(m.Problem(box, "poisson", {"f": np.hypot}))
    with pytest.raises(TypeError, match="k would be a coordinate"):
        m.solve(m.Problem(CELLS, "poisson", {"f": lambda x, k=3.0: k * x}))


def test_gradients_in_time_have_the_same():
    initial = torch.zeros((CELLS[0] + 1, CELLS[1] + 1), dtype=torch.float64)
    for f in (OF_PLACE["default"], lambda x, y, t: 3.0 * x + 0.0 * t):
        problem = m.Problem(CELLS, "heat", {"f": f})
        march = m.differentiable(problem, "initial", dt=0.1, steps=2)
        fields = march(initial=initial)
        march.close()
        np.testing.assert_allclose(fields[-1].numpy(), marched({"f": "3*x"}), rtol=1e-6, atol=1e-9)


STRENGTHS = {
    "default": lambda t, q=2.0: q * t,
    "partial": functools.partial(np.interp, xp=[0.0, 1.0], fp=[0.0, 2.0]),
    "named": lambda t=5.0: 2.0 * t,
}


@pytest.mark.parametrize("kind", STRENGTHS)
def test_strengths_of_wells_are_of_the_time_alone(kind):
    place = (0.08, 0.06)
    expected = marched({"f": m.Wells([(place, "2*t")])})
    given = marched({"f": m.Wells([(place, STRENGTHS[kind])])})
    np.testing.assert_allclose(given, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("strength", [lambda q=2.0: q, lambda: 2.0, lambda x, y: x])
def test_other_strengths_are_refused(strength):
    with pytest.raises(TypeError, match="a function of the time t alone"):
        m.Wells([((0.1, 0.1), strength)])
