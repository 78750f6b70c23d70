"""Signed distances in boxes: of second order at the outline, and the same answer everywhere."""

import numpy as np
import pytest

from mosaicdd import Dirichlet, Domain, Neumann, Problem, Robin, SolveSettings, Unsupported, solve
from mosaicdd.problems.shapes.apertures import cut_cells
from mosaicdd.solvers.references import solve_directly

TIGHT = SolveSettings(rtol=1e-11)
CENTRE = 0.5, 0.52, 0.49
GRIDS = 12, 16, 24, 36
SIDES = "given", "flux", "exchange"


def radius(x, y, z):
    return np.sqrt((x - CENTRE[0]) ** 2 + (y - CENTRE[1]) ** 2 + (z - CENTRE[2]) ** 2)


def shell(x, y, z):
    """Return the distance to a shell of radii 0.187 and 0.413."""
    return abs(radius(x, y, z) - 0.3) - 0.113


def u(x, y, z):
    """Return the manufactured solution ``exp(x / 2) sin(2 y) cos(z) + x y z``."""
    return np.exp(x / 2) * np.sin(2 * y) * np.cos(z) + x * y * z


def gradient(x, y, z):
    growing = np.exp(x / 2)
    return (
        growing * np.sin(2 * y) * np.cos(z) / 2 + y * z,
        2 * growing * np.cos(2 * y) * np.cos(z) + x * z,
        -growing * np.sin(2 * y) * np.sin(z) + x * y,
    )


def a(x, y, z):
    return 1 + x + y * y + z / 2


def f(x, y, z):
    laplacian = (0.25 - 4 - 1) * np.exp(x / 2) * np.sin(2 * y) * np.cos(z)
    ux, uy, uz = gradient(x, y, z)
    return -a(x, y, z) * laplacian - (ux + 2 * y * uy + uz / 2)


def into_the_hole(x, y, z):
    """Return the flux through a sphere, outward: towards its centre."""
    to_centre = [c - along for c, along in zip(CENTRE, (x, y, z), strict=True)]
    slope = sum(d * g for d, g in zip(to_centre, gradient(x, y, z), strict=True))
    return a(x, y, z) * slope / radius(x, y, z)


def manufactured(cells, sides):
    """Return the problem that `u` solves in a shell."""
    hole = {
        "given": Dirichlet(u),
        "flux": Neumann(into_the_hole),
        "exchange": Robin(3.0, lambda *at: into_the_hole(*at) + 3 * u(*at)),
    }[sides]
    domain = Domain.from_distance(shell, cells, 1 / min(cells))
    return Problem(domain, "diffusion", {"a": a, "f": f}, {"outer": Dirichlet(u), "hole1": hole})


@pytest.mark.ranks(1, 2, 3, 4, 6)
@pytest.mark.parametrize("sides", SIDES)
def test_ranks_have_the_answer_of_a_sparse_factorisation(sides):
    problem = manufactured((25, 24, 27), sides)
    solution = solve(problem, settings=TIGHT)
    field, residual = solution.gather(), solution.balance().relative
    assert residual < 1e-9
    if field is not None:
        np.testing.assert_allclose(field, solve_directly(problem), rtol=0, atol=1e-9)


def test_flows_between_spheres_are_of_second_order():
    """Of values 1 within and 0 around, ``4 pi a b / (b - a)`` flows through each."""
    inner, outer = 0.187, 0.413
    exact, off = 4 * np.pi * inner * outer / (outer - inner), []
    for n in GRIDS:
        domain = Domain.from_distance(shell, (n,) * 3, 1 / n)
        sides = {"outer": Dirichlet(0.0), "hole1": Dirichlet(1.0)}
        solution = solve(Problem(domain, "laplace", sides=sides), settings=TIGHT)
        assert solution.flow("outer") == pytest.approx(-solution.flow("hole1"), rel=1e-8)
        off.append(abs(solution.flow("outer") / exact - 1))
    assert -np.polyfit(np.log(GRIDS), np.log(off), 1)[0] > 1.7, off


def test_what_a_plane_cuts_is_exact():
    """The faces of each volume and the outline in it close: so do their areas, as vectors."""
    n, normal = 8, np.array([0.3, 0.5, -0.7])  # along z, y, x
    z, y, x = np.mgrid[: n + 2, : n + 2, : n + 2] - (n + 1) / 2
    steep = np.linalg.norm(normal)
    level = (normal[0] * z + normal[1] * y + normal[2] * x - 0.1) / steep
    cover, pieces = cut_cells(level, np.ones((n + 1,) * 3, bool))
    flow = np.zeros((3, n, n, n))
    for axis in range(3):
        faces, along = cover.of_edges(axis), flow[axis].swapaxes(0, axis)
        along[:-1] += faces.swapaxes(0, axis)
        along[1:] -= faces.swapaxes(0, axis)
    through = np.zeros((n, n, n))
    inner = ((pieces.nodes >= 1) & (pieces.nodes <= n)).all(axis=1)
    np.add.at(through, tuple(pieces.nodes[inner].T - 1), pieces.lengths[inner])
    inside = (slice(1, -1),) * 3
    for axis in range(3):
        out = -flow[axis] - normal[axis] / steep * through
        assert abs(out[inside]).max() < 1e-12
    whole = level[pieces.nodes[:, 0], pieces.nodes[:, 1], pieces.nodes[:, 2]]
    np.testing.assert_allclose(pieces.distances, -whole, atol=1e-12)


def test_a_cut_side_has_the_area_inside():
    """A cylinder from wall to wall, with a flux in through one: all of it comes out through the other."""
    n = 16
    domain = Domain.from_distance("hypot(x - 0.5, y - 0.5) - 0.37", (n,) * 3, 1 / n)
    # Beside the outline nodes outside have a bit of the front, where no value is given, as in the plane.
    sides = {"outline": Neumann(0.0), "back": Neumann(1.0), "front": Dirichlet("1")}
    solution = solve(Problem(domain, "laplace", sides=sides), settings=TIGHT)
    area = np.pi * 0.37**2
    assert solution.flow("back") == pytest.approx(-area, rel=0.01)
    assert solution.flow("front") == pytest.approx(area, rel=0.01)
    z = np.broadcast_to((np.arange(n + 1) / n)[:, None, None], (n + 1,) * 3)
    there = np.isfinite(solution.field)
    assert there.any()
    np.testing.assert_allclose(solution.field[there], 2 - z[there], atol=5e-3)


def test_what_is_not_there_is_refused():
    with pytest.raises(Unsupported, match="polygons are of a rectangle, and 8x8x8 cells are a box"):
        Domain.from_polygons([(0, 0), (1, 0), (0, 1)], cells=(8, 8, 8), spacing=0.2)
    with pytest.raises(ValueError, match="give its transpose"):
        Domain.from_distance(np.ones((9, 8, 7)), (6, 7, 8), 0.1)
