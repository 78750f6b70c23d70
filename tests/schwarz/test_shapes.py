"""Domains that are no rectangles: orders of accuracy, iterations, and the same answer everywhere."""

import numpy as np
import pytest

from mosaicdd import Dirichlet, Domain, Neumann, Problem, Robin, SolveSettings, read, solve
from mosaicdd.solvers.references import solve_directly

TIGHT = SolveSettings(rtol=1e-11)
CENTRE = 0.5, 0.52


def disk(x, y, radius=0.41):
    return np.hypot(x - CENTRE[0], y - CENTRE[1]) - radius


def annulus(x, y):
    """Return the distance to a ring of radii 0.187 and 0.413."""
    return abs(disk(x, y, 0.3)) - 0.113


def u(x, y):
    """Return the manufactured solution ``exp(x / 2) sin(2 y) + x y``."""
    return np.exp(x / 2) * np.sin(2 * y) + x * y


def gradient(x, y):
    """Return its derivatives along x and y."""
    return np.exp(x / 2) * np.sin(2 * y) / 2 + y, 2 * np.exp(x / 2) * np.cos(2 * y) + x


def manufactured(n, distance, sides, *, varying):
    """Return the problem that `u` solves on a part of the unit square."""

    def f(x, y):
        ux, uy = gradient(x, y)
        laplacian = np.exp(x / 2) * np.sin(2 * y) * (0.25 - 4)
        slopes = (ux + 2 * y * uy) if varying else 0.0
        return -a(x, y) * laplacian - slopes

    def a(x, y):
        return 1 + x + y * y if varying else np.ones_like(x + y)

    def into_the_hole(x, y):
        """Return the flux through a circle, outward: towards its centre."""
        ux, uy = gradient(x, y)
        dx, dy = CENTRE[0] - x, CENTRE[1] - y
        return a(x, y) * (ux * dx + uy * dy) / np.hypot(dx, dy)

    known = {
        "given": Dirichlet(u),
        "flux": {"outer": Dirichlet(u), "hole1": Neumann(into_the_hole)},
        "exchange": {
            "outer": Dirichlet(u),
            "hole1": Robin(3.0, lambda x, y: into_the_hole(x, y) + 3 * u(x, y)),
        },
    }
    domain = Domain.from_distance(distance, (n, n), 1 / n)
    return Problem(domain, "diffusion", {"a": a if varying else 1.0, "f": f}, known[sides])


def ring(n):
    return abs(np.hypot(*np.mgrid[-1 : 1 : (n + 1) * 1j, -1 : 1 : (n + 1) * 1j]) - 0.7) < 0.25


def corner(n):
    mask = np.ones((n + 1, n + 1), bool)
    mask[: n // 2, n // 2 :] = False
    return mask


def holes(n):
    y, x = np.mgrid[: n + 1, : n + 1] * 4 / n % 1 - 0.5
    return np.hypot(x, y) > 0.3


def maze(n):
    """Return corridors of 24 cells, one and a half of elements of 16, joined at alternate ends."""
    mask = np.ones((n + 1, n + 1), bool)
    for number, row in enumerate(range(24, n - 20, 28)):
        mask[row : row + 4, slice(0, n - 24) if number % 2 else slice(24, None)] = False
    return mask


SHAPES = {"corner": corner, "holes": holes, "ring": ring, "maze": maze}


@pytest.mark.parametrize("outline", [Dirichlet(), Neumann()], ids=["given", "insulated"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_shapes_cost_at_most_half_as_many_iterations_again_as_the_square(shape, outline):
    n = 256
    fields = {"f": np.random.default_rng(0).standard_normal((n + 1, n + 1))}
    square = solve(Problem(Domain((n, n)), "poisson", fields), "exact")
    known = {"outline": outline}
    if isinstance(outline, Neumann) and shape is ring:
        fields["c"] = 1e-3  # there is no given value
    pde = "screened-poisson" if "c" in fields else "poisson"
    solution = solve(Problem(Domain.from_mask(shape(n), 1 / 64), pde, fields, known))
    assert solution.status == "converged_rtol"
    assert solution.iterations <= 1.5 * square.iterations


@pytest.mark.ranks(1, 2, 3, 4, 6)
def test_narrow_gaps_between_holes_cost_no_iterations(as_by_one):
    # Beside some of these holes coarse functions are so small that their diagonal is rounding.
    level = "0.49 - hypot(fmod(x, 1) - 0.5, fmod(y, 1) - 0.5)"
    domain = Domain.from_distance(level, (224, 224), 6 / 224)
    problem = Problem(domain, "laplace", sides={"outline": Dirichlet("x*y")})
    iterations, distance = as_by_one(problem, 1e-9)
    assert iterations <= 14
    assert distance < 1e-9


def test_the_error_of_a_singular_corner_falls_as_the_four_thirds_power_of_the_spacing():
    angle = "where(y >= 1, arctan2(y - 1, x - 1), arctan2(y - 1, x - 1) + 2*pi)"
    text = f"hypot(x - 1, y - 1)**(2/3) * sin(2/3*({angle}))"
    errors = []
    for n in (32, 64, 128):
        cells = np.ones((n, n), bool)
        cells[: n // 2, n // 2 :] = False  # below and to the right of the corner
        domain = Domain.from_mask(cells, 2 / n, per_cell=True)
        solution = solve(Problem(domain, "laplace", sides=Dirichlet(text)), settings=TIGHT)
        y, x = solution.y[:, None], solution.x
        angles = np.arctan2(y - 1, x - 1)
        angles = np.where(y >= 1, angles, angles + 2 * np.pi)
        truth = np.hypot(x - 1, y - 1) ** (2 / 3) * np.sin(2 / 3 * angles)
        square = (solution.field - truth) ** 2
        errors.append(np.sqrt(np.nanmean(square)))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    # The 5-point difference near such a corner: 2 * 2/3; in the mean square it is reached from below.
    np.testing.assert_allclose(orders, 4 / 3, atol=0.1)


def varied(n=120):
    """Return a problem with a hole, coefficients that are nothing outside, fluxes and exchange."""
    rng = np.random.default_rng(3)
    a = np.exp(rng.standard_normal((n + 1, n + 1)))
    y, x = np.mgrid[: n + 1, : n + 1] / n
    a[annulus(x, y) >= 0] = np.nan
    fields = {"a": a, "c": 0.5, "f": rng.standard_normal((n + 1, n + 1))}
    sides = {"outer": Neumann("x - y"), "hole1": Robin(2.0, 1.0)}
    domain = Domain.from_distance(annulus, (n, n), 1 / n)
    return Problem(domain, "diffusion", fields, sides)


def masked(n=120):
    """Return a corner, insulated, with a given value and a flux on two sides."""
    sides = {"outline": Neumann(), "left": Dirichlet("y"), "bottom": Neumann(1.0)}
    return Problem(Domain.from_mask(corner(n), 1 / n), "poisson", {"f": 1.0}, sides)


def crossing(n=120):
    """Return a disk that the edge of the rectangle cuts, with a natural side."""
    domain = Domain.from_distance("hypot(x, y - 0.4) - 0.83", (n, n), 1 / n)
    sides = {"left": Neumann(), "bottom": Dirichlet("x"), "outline": Dirichlet("x")}
    return Problem(domain, "diffusion", {"a": "1 + x*x"}, sides)


PROBLEMS = {"varied": varied, "masked": masked, "crossing": crossing}


@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_fields_are_those_of_a_direct_solver(make):
    problem = make()
    solution, reference = solve(problem, settings=TIGHT), solve_directly(problem)
    np.testing.assert_allclose(solution.field, reference, rtol=0, atol=1e-9)
    assert solution.report["discrete_residual"] <= 1e-11
    comparison = solution.compare("direct")
    assert comparison.max_error < 1e-9
    rough = solve(problem, settings=SolveSettings(rtol=1e-4))
    rms = np.sqrt(np.nanmean((rough.field - reference) ** 2))
    assert 1 <= rough.error_estimate / rms <= 30


@pytest.mark.ranks(2, 3, 4, 6)
@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_all_numbers_of_ranks_give_the_same(alone_and_together, make):
    problem = make()
    alone, together = alone_and_together(solve, problem, settings=TIGHT)
    assert abs(together.iterations - alone.iterations) <= 1
    scale = np.nanmax(abs(alone.field))
    np.testing.assert_allclose(together.gather(), alone.field, rtol=0, atol=1e-10 * scale)
    assert together.report["domain"] == alone.report["domain"]


def test_without_a_given_value_the_mean_is_zero():
    sides = {"outer": Neumann("x - 0.5"), "hole1": Neumann()}
    domain = Domain.from_distance(annulus, (64, 64), 1 / 64)
    problem = Problem(domain, "laplace", sides=sides)
    solution = solve(problem, settings=TIGHT)
    np.testing.assert_allclose(solution.field, solve_directly(problem), rtol=0, atol=1e-9)
    assert solution.report["imbalance"] < 1e-3


def test_functions_one_of_each_problem_give_the_outline_of_several_at_once(tmp_path):
    # As the channels of a picture: harmonic, so each is its own solution, on the sides and on the outline.
    channels = [lambda x, y: x * x - y * y, "x - 2*y", lambda x, y: x * y]
    known = [lambda x, y: x * x - y * y, lambda x, y: x - 2 * y, lambda x, y: x * y]
    domain = Domain.from_distance("0.2 - hypot(x - 0.5, y - 0.5)", (64, 64), 1 / 64)
    problem = Problem(domain, "laplace", sides=Dirichlet(channels))
    solution = solve(
        problem, settings=SolveSettings(rtol=1e-11, batch=2), output=tmp_path / "out.h5"
    )
    assert solution.problems == 3
    for number, (one, truth) in enumerate(zip(solution.each(), known, strict=True)):
        np.testing.assert_allclose(
            one.field, solve_directly(problem, number=number), rtol=0, atol=1e-9
        )
        # Gibou's outline of a quadratic is off by h^2 u_xx / 4 at most, u_xx = 2.
        error = np.nanmax(abs(one.field - truth(solution.x, solution.y[:, None])))
        assert error < (1e-9 if number else (1 / 64) ** 2 / 2)
        again = read(tmp_path / "out.h5", number)
        np.testing.assert_array_equal(again.field, one.field)
        assert again.compare("direct").max_error < 1e-9


@pytest.mark.ranks(1, 4)
def test_a_window_is_the_part_of_the_field(in_window):
    fields = in_window(varied(90), ((0.3, 0.8), (0.0, 0.5)))
    np.testing.assert_array_equal(*fields)


def test_values_at_points_are_nan_outside():
    problem = manufactured(128, disk, "given", varying=False)
    solution = solve(problem, settings=TIGHT)
    angles = np.linspace(0, 6, 50)
    inside, outside = (
        np.stack([CENTRE[0] + r * np.cos(angles), CENTRE[1] + r * np.sin(angles)], axis=1)
        for r in (0.405, 0.415)
    )
    assert np.isnan(solution.at(outside)).all()
    # Beside the outline only some of a cell's nodes count: of first order, h |grad u| = 0.02.
    assert abs(solution.at(inside) - u(*inside.T)).max() < 0.02
    middle = solution.at([CENTRE])
    assert abs(middle - u(*CENTRE)) < 1e-4


@pytest.mark.parametrize("outline", [Dirichlet("x"), Neumann(0.1)], ids=["given", "natural"])
def test_the_sea_beside_a_coast_with_a_hundred_islands(outline):
    sample = pytest.importorskip("matplotlib.cbook").get_sample_data("topobathy.npz")
    level = np.asarray(sample["topo"], float) / 1000
    domain = Domain.from_distance(level, tuple(n - 1 for n in level.shape), 0.1)
    sides = {"outline": outline, "left": Dirichlet()}
    problem = Problem(domain, "poisson", {"f": 1.0}, sides)
    solution, reference = solve(problem, settings=TIGHT), solve_directly(problem)
    scale = np.nanmax(abs(reference))
    np.testing.assert_allclose(solution.field, reference, rtol=0, atol=1e-7 * scale)
    # Islands of single nodes, and sounds between them: still few iterations.
    assert solution.iterations <= 20


def test_a_residual_is_not_small_because_an_outline_is_near_a_node():
    # Holes of all distances to the nodes: the nearest ties are some thousand times the others.
    domain = Domain.from_distance("0.31-hypot(fmod(x,1)-0.503,fmod(y,1)-0.497)", (256, 256), 1 / 64)
    problem = Problem(domain, "laplace", sides=Dirichlet("sin(3*x)*cosh(y)"))
    solution = solve(problem, settings=SolveSettings(rtol=1e-8))
    exact = solve_directly(problem)
    error = np.nanmax(np.abs(solution.field - exact)) / np.nanmax(np.abs(exact))
    assert error < 2e-8
