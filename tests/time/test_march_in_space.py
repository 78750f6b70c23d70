"""Marches on boxes: orders in time and space, a sparse factorisation's steps, ranks, files and what is refused."""

import numpy as np
import pytest
from interrupted_marches import interrupted

import mosaicdd as m

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
TIGHT = {"settings": m.SolveSettings(rtol=1e-11), "solver_share": 0}
CELLS, H = (16, 18, 24), 0.05


def places(cells, h):
    """Return the coordinates x, y and z of the nodes, which broadcast."""
    z, y, x = np.meshgrid(*(np.arange(n + 1) * h for n in cells), indexing="ij", sparse=True)
    return x, y, z


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("bdf2", 2)])
def test_the_error_falls_with_the_order_in_the_step(method, order):
    # As `Manufactured` of test_march: an eigenvector of the grid's own Laplacian, and what is harmonic.
    n, h = 16, 0.25
    value = 3 * (2 * np.sin(np.pi * h / 8) / h) ** 2
    shape = "sin(pi*x/4)*sin(pi*y/4)*sin(pi*z/4)"
    source = f"({value}*cos(t) - 2*sin(t))*{shape} + 4*cos(2*t)*x*y*z/9"
    values = f"cos(t)*{shape} + sin(2*t)*x*y*z/9"
    problem = m.Problem(m.Domain((n,) * 3, h), "heat", {"s": 2.0, "f": source}, m.Dirichlet(values))
    x, y, z = places((n,) * 3, h)
    sines = np.sin(np.pi * x / 4) * np.sin(np.pi * y / 4) * np.sin(np.pi * z / 4)
    truth = np.cos(1.0) * sines + np.sin(2.0) * x * y * z / 9
    errors = []
    for steps in (6, 12):
        series = m.march(problem, shape, dt=1 / steps, steps=steps, method=method, **TIGHT)
        assert series.status == "converged_rtol"
        errors.append(np.sqrt(np.mean((series.field - truth) ** 2)))
    np.testing.assert_allclose(np.log2(errors[0] / errors[1]), order, atol=0.15)
    assert 0.5 * errors[1] < series.report["time_error"] < 20 * errors[1]


def test_the_error_falls_with_the_square_of_the_spacing():
    # Linear in the time, which the steps take exactly: all of the error is the grid's.
    def truth(x, y, z, t):
        return (1 + t) * np.sin(x + 2 * y) * np.exp(z)

    def a(x, y, z):
        return 1 + x * y + 0 * z

    def source(x, y, z, t):
        value, along = truth(x, y, z, t), (1 + t) * np.cos(x + 2 * y) * np.exp(z)
        return value / (1 + t) + a(x, y, z) * 4 * value - (y + 2 * x) * along

    errors = []
    for n in (16, 32):
        sides = dict.fromkeys(("left", "bottom", "top", "back"), m.Dirichlet(truth))
        sides["right"] = m.Neumann(
            lambda x, y, z, t: a(x, y, z) * (1 + t) * np.cos(x + 2 * y) * np.exp(z)
        )
        sides["front"] = m.Robin(2.0, lambda x, y, z, t: (a(x, y, z) + 2) * truth(x, y, z, t))
        problem = m.Problem(m.Domain((n,) * 3, 1 / n), "heat", {"a": a, "f": source}, sides)
        begin = lambda x, y, z: truth(x, y, z, 0.0)
        series = m.march(problem, begin, dt=0.25, steps=2, **TIGHT)
        x, y, z = places((n,) * 3, 1 / n)
        errors.append(abs(series.field - truth(x, y, z, 0.5)).max())
    assert np.log2(errors[0] / errors[1]) > 1.8, errors


def test_what_has_decayed_by_far_is_solved_to_its_own_size():
    # Steps much too long for a small cube: their errors are many times what is left.
    series = m.march(m.Problem((16, 16, 16), "heat"), 1.0, dt=0.01, steps=5)
    assert series.converged
    assert np.abs(series.field).max() < 0.02


@RANKS
def test_a_file_of_steps_is_read_again_and_gone_on_with(comm, common_path):
    problem = m.Problem(m.Domain(CELLS, H), "heat", {"f": "x*t"}, {"left": m.Dirichlet("t*z")})
    options = {"dt": 0.1, "every": 2, "ranks": comm, **TIGHT}
    whole = m.march(problem, "x*y*z", steps=4, **options)
    path = common_path / "out.h5"
    part = interrupted(problem, "x*y*z", 0.6, path, steps=4, **options)
    assert len(part.steps["time"]) == 3
    output = m.Output(path, resume=True)
    resumed = m.march(problem, "x*y*z", steps=4, output=output, **options)
    assert resumed.steps["time"].tolist() == whole.steps["time"].tolist()
    stored = m.read(path)
    assert stored.times.tolist() == [0.0, 0.2, 0.4]
    for number in range(3):
        np.testing.assert_array_equal(m.read(path, number).field, whole.gather(number))
    assert stored.to_xarray().dims == ("time", "z", "y", "x")
    np.testing.assert_array_equal(stored.plane(0, 4), whole.gather()[4])


@pytest.mark.parametrize(
    ("fields", "initial", "error", "message"),
    [
        ({"s": 0.0}, 0.0, ValueError, "heat needs s > 0, got s 0"),
        ({"s": np.ones((5, 4, 3))}, 0.0, ValueError, r"the field s has the shape \(5, 4, 3\)"),
        ({}, np.ones((4, 5, 6)), ValueError, r"initial has the shape \(4, 5, 6\)"),
        ({}, "x + w", ValueError, "w is not allowed"),
        ({"a": lambda x, y: x}, 0.0, TypeError, "a must be a function of"),
        ({"axx": 1.0, "ayy": 2.0}, 0.0, ValueError, "axx and ayy and azz instead, got axx and ayy"),
    ],
)
def test_bad_input_is_refused_with_both_numbers(fields, initial, error, message):
    with pytest.raises(error, match=message):
        m.march(m.Problem((4, 5, 6), "heat", fields), initial, dt=0.1, steps=1)
