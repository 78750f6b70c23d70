"""Cells that are no squares, nor cubes: outlines, quantities, time, files, and what is refused."""

import numpy as np
import pytest

import mosaicdd as m

U = "exp(0.3*x)*sin(0.4*y)"
SLOPE = {"x": "0.3*exp(0.3*x)*sin(0.4*y)", "y": "0.4*exp(0.3*x)*cos(0.4*y)"}


def disc(cells):
    """Return a disc of radius 2.3 around (6, 3), on 12 by 6."""
    spacing = (6 / cells[0], 12 / cells[1])
    return m.Domain.from_distance("sqrt((x - 6)**2 + (y - 3)**2) - 2.3", cells, spacing)


def flux(alpha):
    """Return what flows in through the disc's outline, with an exchange."""
    outwards = f"(({SLOPE['x']})*(x - 6) + ({SLOPE['y']})*(y - 3))/sqrt((x - 6)**2 + (y - 3)**2)"
    return m.Robin(alpha, f"{outwards} + {alpha}*{U}") if alpha else m.Neumann(outwards)


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_what_is_linear_is_solved_to_rounding_in_a_polygon(comm):
    corners = [(1.2, 1.1), (13.1, 0.9), (12.0, 10.9), (2.3, 9.7)]
    domain = m.Domain.from_polygons(corners, cells=(72, 90), spacing=(0.5 / 3, 0.15))
    problem = m.Problem(domain, "laplace", {}, {"outline": m.Dirichlet("x + 2*y")})
    solution = m.solve(problem, rtol=1e-13, ranks=comm)
    x, y = 0.15 * np.arange(91), np.arange(73) / 6
    inside = np.isfinite(field := solution.gather())
    assert inside.sum() > 3000
    np.testing.assert_allclose(field[inside], (x + 2 * y[:, None])[inside], rtol=0, atol=1e-9)


def half_mask():
    mask = np.ones((24, 30), bool)
    mask[8:14, 10:18] = mask[:5, :7] = False
    return np.kron(mask, np.ones((3, 3), bool))


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("kind", ["distance", "mask"])
def test_stretched_cells_are_those_of_a_medium_that_conducts_otherwise_along_an_axis(kind, comm):
    # With values on outlines, or nothing through them, equations know lengths along axes only.
    cells, high, wide = (72, 90), 0.5 / 3, 2.5

    def domain(dx):
        if kind == "mask":
            return m.Domain.from_mask(half_mask(), (high, dx))
        distance = f"((x*{high / dx} - 7)**2/36 + (y - 6)**2/20 - 1)*5"
        return m.Domain.from_distance(distance, cells, (high, dx))

    def solved(dx, **medium):
        data = f"sin(x*{high / dx}) + y"
        conditions = {"outline": m.Dirichlet(data)}
        if kind == "mask":
            conditions = {"outline": m.Neumann(0.0), "left": m.Dirichlet("y"), "top": m.Robin(0.4)}
        problem = m.Problem(domain(dx), "diffusion", medium | {"f": data, "c": 0.1}, conditions)
        return m.solve(problem, rtol=1e-12, ranks=comm)

    stretched, square = solved(high * wide), solved(high, axx=wide**-2, ayy=1.0)
    assert stretched.converged
    assert stretched.iterations == square.iterations
    field = square.gather()
    np.testing.assert_allclose(
        stretched.gather(), field, rtol=0, atol=1e-10 * np.nanmax(np.abs(field))
    )


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_ranks_agree_and_nothing_is_lost(comm):
    problem = m.Problem(
        disc((72, 80)), "diffusion", {"a": "1 + x*y", "f": "x"}, {"outline": flux(1.5)}
    )
    solution = m.solve(problem, rtol=1e-11, ranks=comm)
    alone = m.solve(problem, rtol=1e-11)
    np.testing.assert_allclose(
        solution.gather(), alone.field, rtol=0, atol=1e-10 * np.nanmax(alone.field)
    )
    balance = solution.balance()
    assert balance.relative < 1e-8
    assert solution.flow("outline") == pytest.approx(balance.sources, rel=1e-8)


@pytest.mark.parametrize("spacing", [(0.01, 0.4), (0.4, 0.01), (0.1, 0.16)])
def test_polygons_are_where_they_are_in_very_flat_cells(spacing):
    """Distances are right at both ends of every edge of the grid that crosses one."""
    cells = tuple(round(4 / step) for step in spacing)
    low, high = 0.433, 3.371
    square = [(low, low), (high, low), (high, high), (low, high)]
    domain = m.Domain.from_polygons(square, cells=cells, spacing=spacing)
    grid = domain.grid()
    level = domain.shape.level(grid, tuple(slice(0, n) for n in grid.nodes))
    for along, places in zip(
        (level, level.T),
        (4 / cells[1] * np.arange(cells[1] + 1), 4 / cells[0] * np.arange(cells[0] + 1)),
        strict=True,
    ):
        line = along[len(along) // 2]
        before = np.flatnonzero((line[1:] < 0) != (line[:-1] < 0))
        p, q = line[before], line[before + 1]
        crossed = places[before] + p / (p - q) * np.diff(places)[before]
        np.testing.assert_allclose(crossed, [low, high], rtol=0, atol=1e-12)


def test_what_is_linear_is_exact_with_a_flux_through_a_slope():
    """What an outline leaves of volumes, faces and sides closes."""
    line = "2*x - 3*y"
    domain = m.Domain.from_distance("0.8*y - 0.6*x - 0.13", (40, 32), (0.05, 0.125))
    sides = {"left": m.Neumann(-2.0), "right": m.Neumann(2.0), "top": m.Dirichlet(line)}
    sides |= {"bottom": m.Dirichlet(line), "outline": m.Neumann(2 * -0.6 - 3 * 0.8)}
    solution = m.solve(m.Problem(domain, "laplace", None, sides), rtol=1e-12)
    exact = 2 * solution.x - 3 * solution.y[:, None]
    there = np.isfinite(solution.field)
    assert there.sum() > 200
    np.testing.assert_allclose(solution.field[there], exact[there], rtol=0, atol=1e-9)


@pytest.mark.parametrize("per_cell", [False, True])
def test_a_mask_is_the_same_in_any_unit_of_length(per_cell):
    mask = np.pad(half_mask(), 3)
    fields = []
    for spacing in (1e-7, 1.0, 1e7):
        domain = m.Domain.from_mask(mask, spacing, per_cell=per_cell)
        problem = m.Problem(domain, "laplace", {}, {"outline": m.Dirichlet(f"x/{spacing}")})
        fields.append(m.solve(problem, rtol=1e-11).field)
    for field in fields[::2]:
        np.testing.assert_allclose(field, fields[1], rtol=0, atol=1e-8)


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
