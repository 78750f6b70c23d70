"""The iteration by subdomains as a user sees it: windows, residuals, schemes, coarse nodes, sizes that are refused."""

import math
import re

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd.problems.equations.linear import tensor
from mosaicdd.schwarz.fill import InteriorReconstruction

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
SIDES = {"top": m.Dirichlet("sin(3*x)"), "left": m.Dirichlet("y*y"), "right": m.Dirichlet(1.0)}
STRONG = tensor(100.0, 0.3)
CASES = {
    "laplace": ("laplace", {}),
    "screened": ("screened-poisson", {"c": 3.0, "f": "50*sin(9*x*y)"}),
    "tensor": ("anisotropic-diffusion", {"axx": 3.0, "ayy": 2.0, "axy": 0.7, "f": "x"}),
    "flow": ("advection-diffusion", {"bx": -4.0, "by": 1.5, "f": "x - y"}),
}


def left_over(u, h, f, axx=1.0, ayy=1.0, axy=0.0, bx=0.0, by=0.0, c=0.0):
    """Return what the nine-point equations leave at inner nodes, fitted exponentially, times ``h**2``."""
    inner, here = (slice(1, -1),) * 2, np.s_[1:-1]
    x, y = (u[here, 2:], u[here, :-2]), (u[2:, here], u[:-2, here])
    axx, ayy = (a * z / np.tanh(z) for a, z in ((axx, bx * h / 2 or 1e-9), (ayy, by * h / 2 or 1e-9)))  # fmt: skip
    mixed = (u[2:, 2:] + u[:-2, :-2] - u[2:, :-2] - u[:-2, 2:]) / 4
    second = axx * (sum(x) - 2 * u[inner]) + ayy * (sum(y) - 2 * u[inner]) + 2 * axy * mixed
    first = h / 2 * (bx * (x[0] - x[1]) + by * (y[0] - y[1]))
    return h * h * (f[inner] - c * u[inner]) + second - first


@RANKS
@pytest.mark.parametrize("name", CASES)
def test_the_residual_reported_is_that_of_the_nine_point_equations(name, comm):
    pde, fields = CASES[name]
    problem = m.Problem((80, 96), pde, fields, SIDES)
    solution = m.solve(problem, "exact", ranks=comm, rtol=1e-3)
    u, h, numbers = solution.gather(), problem.domain.grid().spacing, dict(fields)
    y, x = np.meshgrid(solution.y, solution.x, indexing="ij")
    f = eval(numbers.pop("f", "0*x"), {"x": x, "y": y, "sin": np.sin})
    edges = u.copy()
    edges[1:-1, 1:-1] = 0.0
    of, driven = (np.linalg.norm(left_over(v, h, f, **numbers)) for v in (u, edges))
    assert solution.report["discrete_residual"] == pytest.approx(of / driven, rel=1e-6)


@RANKS
@pytest.mark.parametrize("local_solver", ["exact", "laplace"])
def test_a_window_is_the_part_of_the_field_and_has_no_residual(local_solver, comm):
    problem = m.Problem((160, 208), "laplace", {}, SIDES)
    whole = m.solve(problem, local_solver, ranks=comm).gather()
    extent = ((0.5, 1.25), (0.75, 2.5))
    part = m.solve(problem, local_solver, ranks=comm, window=extent)
    place = tuple(slice(round(64 * a), round(64 * b) + 1) for a, b in extent)
    # Ranks add up in another order: units in the last place of values of order 1.
    np.testing.assert_allclose(part.gather(), whole[place], rtol=0, atol=1e-12)
    assert part.report["discrete_residual"] is None


def test_the_work_of_a_window_is_that_of_its_tiles(monkeypatch):
    filled, predict = [], InteriorReconstruction._predict

    def counting(self, v, tiles, target):
        filled.append(math.prod(run.count for run in tiles))
        predict(self, v, tiles, target)

    monkeypatch.setattr(InteriorReconstruction, "_predict", counting)
    whole = m.Problem((512, 512), "laplace", {}, SIDES)
    m.solve(whole, "exact", window=((160 / 64, 192 / 64),) * 2)
    # Nodes 160 to 192 lie, 16 between lattice lines, in the lattice cells 9 to 12 and, with those around
    # them, in these: tiles of the cells 8 and 9, 10 and 11, 12 and 13.
    assert sum(filled) == 3 * 3


@RANKS
def test_subdomains_with_rough_edges_are_counted_by_all_ranks_alike(comm):
    noise = np.random.default_rng(0).standard_normal(161)
    problem = m.Problem((96, 160), "laplace", {}, {"top": m.Dirichlet(noise)})
    solution = m.solve(problem, "laplace", ranks=comm)
    alone = m.solve(problem, "laplace")
    # Of the 9 subdomains beside the noise some, and none further away, where it has faded.
    assert 0 < solution.report["outside_training_range"] <= 9
    assert solution.report["outside_training_range"] == alone.report["outside_training_range"]


@pytest.mark.parametrize(("points", "most"), [(1, 16), (2, 10), (4, 7)])
def test_more_coarse_nodes_take_fewer_iterations_to_the_same_field(points, most):
    problem = m.Problem((192, 208), "laplace", {}, SIDES)
    few = m.SolveSettings(coarse_points=points, accelerate="none", rtol=1e-9)
    solution = m.solve(problem, "exact", settings=few)
    assert solution.iterations <= most
    assert solution.compare("dst").max_error < 1e-8


@pytest.mark.parametrize(
    ("pde", "fields", "settings", "expected"),
    [
        ("laplace", {}, {}, "chebyshev"),
        ("anisotropic-diffusion", {"axx": 7.0, "ayy": 7.0}, {}, "chebyshev"),
        ("screened-poisson", {"c": 50.0}, {}, "chebyshev"),
        ("advection-diffusion", {"bx": 2.0, "by": 1.0}, {}, "chebyshev"),
        ("advection-diffusion", {"bx": 100.0}, {}, "gmres"),
        ("laplace", {}, {"levels": 1, "max_iterations": 5}, "none"),
        ("laplace", {}, {"dtype": "float32", "rtol": 1e-5}, "none"),
        ("laplace", {}, {"accelerate": "none"}, "none"),
        ("laplace", {}, {"accelerate": "anderson"}, "anderson"),
        ("anisotropic-diffusion", STRONG, {}, "gmres"),
        ("anisotropic-diffusion", STRONG, {"levels": 1, "max_iterations": 5}, "none"),
        ("anisotropic-diffusion", STRONG, {"dtype": "float32", "rtol": 1e-5}, "gmres"),
        ("anisotropic-diffusion", STRONG, {"accelerate": "none"}, "none"),
    ],
)
def test_the_acceleration_by_default_depends_on_operator_and_method(pde, fields, settings, expected):  # fmt: skip
    problem = m.Problem((96, 96), pde, fields, SIDES)
    solution = m.solve(problem, "exact", settings=m.SolveSettings(**settings))
    assert solution.report["accelerate"] == expected


@pytest.mark.parametrize(
    ("cells", "nearest"),
    [((2048, 2050), [2048, 2064]), ((2040, 2048), [2032, 2048]), ((64, 33), [32, 48]), ((31, 64), [32])],
)  # fmt: skip
def test_cells_that_a_network_does_not_divide_are_refused_with_the_nearest_numbers(cells, nearest):
    with pytest.raises(ValueError, match="must be a multiple of 16") as error:
        m.solve(m.Problem(cells, "laplace"), "laplace")
    assert re.search("nearest: ([0-9, ]*);", str(error.value))[1] == ", ".join(map(str, nearest))


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        ((16, 64), {}, r"ny must be at least 32 .* got 16"),
        ((64, 64), {"coarse_points": 3}, "must divide its 16 cells"),
        ((64, 64), {"coarse_points": 0}, "must divide its 16 cells|coarse_points must be"),
    ],
)
def test_lattices_that_cannot_be_are_refused(cells, options, message):
    with pytest.raises(ValueError, match=message):
        m.solve(m.Problem(cells, "laplace"), "laplace", settings=m.SolveSettings(**options))
