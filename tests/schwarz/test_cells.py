"""Cells that are no squares: second order, an independent assembly, quantities, time, files, and what is refused."""

import numpy as np
import pytest
from medium_by_cells import equations, field_and_flows

import mosaicdd as m

LENGTHS = (1.0, 3.0)
U = "sin(2*x + 0.3)*exp(y)"
DX = "2*cos(2*x + 0.3)*exp(y)"
# By name: equation, fields, and sides where not all have values. Of all, -lap u = 3 u.
CASES = {
    "poisson": ("poisson", {"f": f"3*{U}"}, None),
    "screened": ("screened-poisson", {"c": 2.0, "f": f"5*{U}"}, None),
    "tensor": ("anisotropic-diffusion", {"axx": 2.0, "axy": 0.5, "f": f"7*{U} - {DX}"}, None),
    "flow": ("advection-diffusion", {"bx": 3.0, "by": -1.0, "f": f"2*{U} + 3*{DX}"}, None),
    "flow in a medium": (
        "advection-diffusion",
        {"a": "1 + x", "bx": "y", "f": f"(1 + x)*3*{U} - {DX} + y*{DX}"},
        None,
    ),
    "sides": (
        "diffusion",
        {"a": "1 + x", "c": "y", "f": f"(1 + x)*3*{U} - {DX} + y*{U}"},
        {
            "right": m.Neumann(f"4*{DX}"),
            "top": m.Robin(2.0, f"(3 + x)*{U}"),
            "bottom": m.Neumann(f"-(1 + x)*{U}"),
            "bottom[0.5:2]": m.Robin(1.0, f"-x*{U}"),
        },
    ),
}


def solved(name, cells):
    equation, fields, sides = CASES[name]
    spacing = {"x": LENGTHS[1] / (2 * cells), "y": LENGTHS[0] / cells}
    conditions = dict.fromkeys(("left", "right", "bottom", "top"), m.Dirichlet(U)) | (sides or {})
    domain = m.Domain((cells, 2 * cells), spacing)
    solution = m.solve(m.Problem(domain, equation, fields, conditions), "exact", rtol=1e-9)
    assert solution.converged
    return solution


def off(solution):
    x, y = solution.x, solution.y[:, None]
    return abs(solution.field - np.sin(2 * x + 0.3) * np.exp(y)).max()


@pytest.mark.parametrize("name", CASES)
def test_the_largest_error_is_of_second_order(name):
    coarse, fine = off(solved(name, 32)), off(solved(name, 64))
    assert fine < 2e-3
    assert coarse / fine == pytest.approx(4, rel=0.1)


def assembled(domain, a, c, f, held, exchanged):
    """Return the solution of a medium per cell.

    ``held``: values by (axis, end); ``exchanged``: Robin's (alpha, g) by (axis, end).
    """
    steps, axes = domain.grid().steps, len(domain.cells)
    matrix, volumes = equations(a, steps)
    diagonal, b, known = c * volumes, f * volumes, np.full(volumes.shape, np.nan)
    side = {
        key: tuple(key[1] if i == key[0] else slice(None) for i in range(axes))
        for key in (*held, *exchanged)
    }
    for (axis, end), (alpha, g) in exchanged.items():
        at = side[axis, end]
        area = 2 * volumes[at] / steps[axis]
        diagonal[at] += alpha * area
        b[at] += g * area
    for key, value in held.items():
        known[side[key]] = value
    return field_and_flows(matrix, diagonal, b, known)[0]


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("cells", [(40, 72), (16, 20, 34)])
def test_media_are_those_of_an_assembly_of_their_own(cells, comm):
    rng, axes = np.random.default_rng(0), len(cells)
    domain = m.Domain(cells, (0.3, 0.1, 0.2)[-axes:])
    a, f = np.exp(rng.standard_normal(cells)), rng.standard_normal(domain.grid().nodes)
    sides = {"left": m.Dirichlet(1.0), "right": m.Robin(3.0, 2.0), "bottom": m.Neumann(0.5)}
    sides |= dict.fromkeys(("top", "front", "back")[: 2 * axes - 3], m.Neumann(0.0))
    problem = m.Problem(domain, "diffusion", {"a": a, "c": 0.7, "f": f}, sides)
    solution = m.solve(problem, ranks=comm, rtol=1e-11)
    assert solution.converged
    held, exchanged = {(axes - 1, 0): 1.0}, {(axes - 1, -1): (3.0, 2.0), (axes - 2, 0): (0.0, 0.5)}
    expected = assembled(domain, a, 0.7, f, held, exchanged)
    assert abs(solution.gather() - expected).max() < 1e-9 * np.ptp(expected)


def test_equal_sides_are_one_spacing():
    domain = m.Domain((32, 48), (0.1, 0.1))
    assert domain == m.Domain((32, 48), 0.1)
    assert not domain.grid().aspect


def test_a_periodic_axis_has_its_own_length():
    length = 48 * 0.05
    wave = 2 * np.pi / length
    domain = m.Domain((32, 48), {"x": 0.05, "y": 0.02})
    sides = dict.fromkeys(("left", "right"), m.Periodic())
    problem = m.Problem(
        domain,
        "screened-poisson",
        {"c": 1.0, "f": f"cos({wave}*x)"},
        sides | dict.fromkeys(("top", "bottom"), m.Neumann(0.0)),
    )
    solution = m.solve(problem, rtol=1e-10)
    eigenvalue = 1 + (2 * np.sin(wave * 0.05 / 2) / 0.05) ** 2
    expected = np.broadcast_to(np.cos(wave * solution.x) / eigenvalue, solution.field.shape)
    np.testing.assert_allclose(solution.field, expected, atol=1e-9)


def test_quantities_are_of_the_cells_as_they_are():
    domain = m.Domain((32, 64), {"x": 0.5, "y": 0.125})  # 32 x 4
    sides = {"left": m.Dirichlet(2.0), "right": m.Neumann(3.0), "top[0:16]": m.Neumann(0.25)}
    sides |= dict.fromkeys(("top", "bottom"), m.Neumann(0.0))
    solution = m.solve(m.Problem(domain, "poisson", {"f": 0.1}, sides), rtol=1e-11)
    assert solution.flow("right") == pytest.approx(-3 * 4)
    assert solution.flow("top") == pytest.approx(-0.25 * 16)
    assert solution.flow("left") == pytest.approx(3 * 4 + 0.25 * 16 + 0.1 * 32 * 4)
    along_y, along_x = solution.flux()
    assert (along_x[1:-1, 40].sum() + along_x[[0, -1], 40].sum()) * 0.125 == pytest.approx(
        -3 * 4 - 0.1 * (32 - 20.25) * 4
    )
    assert along_y.shape == (32, 65)
    line = m.solve(m.Problem(domain, "laplace", None, m.Dirichlet("2*x - 3*y")), rtol=1e-11)
    slope_y, slope_x = line.gradient()
    np.testing.assert_allclose(slope_x, 2, rtol=1e-8)
    np.testing.assert_allclose(slope_y, -3, rtol=1e-8)
    assert line.energy() == pytest.approx((2**2 + 3**2) * 32 * 4 / 2)
    assert line.mean() == pytest.approx(2 * 16 - 3 * 2)
    assert line.integral({"x": (0, 8)}) == pytest.approx((2 * 4 - 3 * 2) * 8 * 4)
    assert line.max().place == (32.0, 0.0)
    assert line.at((4.0, 1.0)) == pytest.approx(2 * 4 - 3)
    assert line.along([(0, 0), (32, 0)])[1][-1] == pytest.approx(64)


def test_a_step_in_time_is_that_of_the_discrete_eigenfunction():
    steps, dt = (0.02, 0.05), 0.01
    domain = m.Domain((48, 32), steps)
    y, x = (np.arange(n + 1) / n for n in (48, 32))
    start = np.outer(np.sin(np.pi * y), np.sin(2 * np.pi * x))
    rate = sum(
        (2 * np.sin(k * np.pi / (2 * n)) / h) ** 2 for k, n, h in ((1, 48, 0.02), (2, 32, 0.05))
    )
    series = m.march(m.Problem(domain, "heat"), start, dt=dt, steps=2, method="euler", rtol=1e-12)
    np.testing.assert_allclose(series[-1], start / (1 + dt * rate) ** 2, atol=1e-9)
    assert series.x[-1] == pytest.approx(32 * 0.05)


def test_a_file_knows_its_cells(tmp_path):
    domain = m.Domain((32, 48), {"x": 25.0, "y": 10.0})
    problem = m.Problem(domain, "diffusion", {"a": "1 + x/1000"}, m.Dirichlet("x + y"))
    solution = m.solve(problem, output=tmp_path / "out.h5", window={"x": (100, 500)})
    stored = m.read(tmp_path / "out.h5")
    assert stored.problem.domain == domain
    np.testing.assert_array_equal(stored.x, 25.0 * np.arange(4, 21))
    np.testing.assert_array_equal(stored.y, solution.y)
    assert stored.compare("direct").max_error < 1e-3


def test_the_network_for_tensors_solves_where_that_for_squares_is_refused():
    problem = m.Problem(m.Domain((64, 64), (0.02, 0.03)), "laplace", None, m.Dirichlet("x*y"))
    assert m.solve(problem).report["local_solver"] == "exact"
    solution = m.solve(problem, "anisotropic-diffusion")
    assert (
        abs(solution.field - np.outer(solution.y, solution.x)).max() < 1e-4 * solution.field.max()
    )
    with pytest.raises(
        m.Unsupported, match=r"does not solve laplace on cells of 0\.03x0\.02; take 'exact'"
    ):
        m.solve(problem, "laplace")
