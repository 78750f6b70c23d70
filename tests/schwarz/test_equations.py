"""Every equation through the whole engine: exact, of second order, in few iterations, on any ranks."""

import numpy as np
import pytest

from mosaicdd import Dirichlet, Domain, Problem
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.equations.linear import tensor
from mosaicdd.schwarz.block import Lattice
from mosaicdd.schwarz.local_solvers.exact import Exact, ExactSolver
from mosaicdd.solvers.references import solve_directly

RANKS = pytest.mark.ranks(1, 2, 3, 4, 6)
CASES = {
    "laplace": ("laplace", {}),
    "poisson": ("poisson", {}),
    "screened": ("screened-poisson", {"c": 30.0}),
    "anisotropic 10": ("anisotropic-diffusion", tensor(10.0, 0.7)),
    "anisotropic 100": ("anisotropic-diffusion", tensor(100.0, 0.0)),
    "flow": ("advection-diffusion", {"bx": 3.0, "by": -2.0}),
    "strong flow": ("advection-diffusion", {"bx": 110.0, "by": 60.0}),
}
ON_RANKS = (
    "poisson",
    "anisotropic 100",
    "strong flow",
)  # the least and the most of symmetry and coupling
FEW = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ON_RANKS else pytest.mark.nightly) for name in CASES],
)
# Iterations to 1e-7: 12 by the two-level cycle, 15 for flows, 30 for an anisotropy of 100.
MOST = {"flow": 15, "strong flow": 15, "anisotropic 100": 30}


def rough(x, y):
    """Return a source with steps."""
    return 20 * np.sign(np.sin(3 * x) * np.cos(5 * y)) + x


def case(name, cells):
    """Return a problem with uneven data on all sides, and a source where there is one."""
    pde, fields = CASES[name]
    source = {} if pde == "laplace" else {"f": rough}
    sides = {"top": Dirichlet("sin(3*x)"), "left": Dirichlet("y*y"), "right": Dirichlet(1.0)}
    return Problem(cells, pde, fields | source, sides)


def bound(problem, spacing=None, cells=32):
    """Return the lattice of a problem and the exact local solver bound to it."""
    grid = problem.domain.grid(spacing)
    solver = Exact(cells).bind(problem, grid)
    return Lattice(grid, solver.subdomain), solver


@RANKS
@FEW
def test_the_exact_local_solver_reproduces_the_direct_solution_on_any_number_of_ranks(
    name, by_one, make_solver, make_ranks, all_dims
):
    problem = case(name, (64, 80))
    lattice, solver = bound(problem, cells=16)
    truth = by_one(solve_directly, problem, lattice.grid)
    boundaries = problem.boundaries(lattice.grid)
    engine = make_solver(lattice, local_solver=solver, rtol=1e-12)
    alone = by_one(engine.solve, boundaries[0])
    # The iteration ends at a relative update of 1e-12, its contraction is 0.8 at most.
    np.testing.assert_allclose(alone.field, truth, rtol=0, atol=1e-11 * abs(truth).max())
    for ranks in map(make_ranks, all_dims if alone.iterations else ()):
        several = make_solver(lattice, local_solver=solver, ranks=ranks, rtol=1e-12)
        solution = several.solve(boundaries[0])
        assert abs(solution.iterations - alone.iterations) <= 1
        part = truth[solution.place]
        np.testing.assert_allclose(solution.field, part, rtol=0, atol=1e-11 * abs(truth).max())


@pytest.mark.parametrize("name", CASES)
def test_iterations_are_few_and_do_not_grow_with_the_domain(name, make_solver):
    counts = []
    for side in (256, 1024 if name in ON_RANKS else 512):
        problem = case(name, (side, side))
        lattice, solver = bound(problem)
        engine = make_solver(lattice, local_solver=solver, rtol=1e-7)
        solution = engine.solve(problem.boundaries(lattice.grid)[0])
        assert solution.status == "converged_rtol"
        counts.append(solution.iterations)
    assert max(counts) <= MOST.get(name, 12)
    assert max(counts) - min(counts) <= 2


@FEW
def test_the_error_estimate_covers_the_error(name, make_solver):
    problem = case(name, (256, 256))
    lattice, solver = bound(problem)
    truth = solve_directly(problem, lattice.grid)
    for rtol in (1e-2, 1e-4, 1e-6):
        engine = make_solver(lattice, local_solver=solver, rtol=rtol)
        solution = engine.solve(problem.boundaries(lattice.grid)[0])
        error = np.sqrt(np.mean((solution.field.numpy() - truth) ** 2))
        assert error <= solution.error_estimate.rms <= 20 * error


def manufactured(name):
    """Return a smooth solution, and the source that it has."""
    pde, fields = CASES[name]
    a, b = 2.1, 1.3

    def solution(x, y):
        if pde == "laplace":
            return np.exp(x) * np.sin(y)
        return np.sin(a * x + 0.3) * np.cos(b * y) + x * y

    def source(x, y):
        s, c = np.sin(a * x + 0.3), np.cos(a * x + 0.3)
        t, d = np.sin(b * y), np.cos(b * y)
        axx, ayy, axy = (fields.get(n, v) for n, v in (("axx", 1.0), ("ayy", 1.0), ("axy", 0.0)))
        diffusion = axx * a * a * s * d + ayy * b * b * s * d - 2 * axy * (1 - a * b * c * t)
        flow = fields.get("bx", 0.0) * (a * c * d + y) + fields.get("by", 0.0) * (x - b * s * t)
        return diffusion + flow + fields.get("c", 0.0) * solution(x, y)

    return solution, ({} if pde == "laplace" else {"f": source})


@pytest.mark.parametrize("name", CASES)
def test_the_error_falls_with_the_square_of_the_spacing(name, make_solver):
    solution, source = manufactured(name)
    pde, fields = CASES[name]
    errors = []
    # On the coarsest grid a strong flow has a cell Peclet number of 4.
    for side in (128, 256) if name == "strong flow" else (64, 128):
        domain = Domain((side, side), spacing=2.0 / side)
        problem = Problem(domain, pde, fields | source, Dirichlet(solution))
        lattice, solver = bound(problem, cells=8)
        found = make_solver(lattice, local_solver=solver).solve(problem.boundaries(lattice.grid)[0])
        along = np.linspace(0.0, 2.0, side + 1)
        errors.append(np.abs(found.field.numpy() - solution(along, along[:, None])).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    # Of h^2 with a next term of h^4.
    assert orders[-1] > (1.7 if name == "strong flow" else 1.9)


@pytest.mark.parametrize(
    ("cells", "axx", "points"),
    [((64, 512), 2000.0, None), ((160, 224), 2000.0, None), ((160, 224), 90.0, 1)],
)
def test_the_error_estimate_covers_slow_iterations_too(cells, axx, points, make_solver):
    data = Dirichlet(lambda x, y: np.sin(3 * x) + np.cos(7 * y) * x)
    problem = Problem(cells, "anisotropic-diffusion", {"axx": axx}, data)
    lattice = Lattice(problem.domain.grid(), Subdomain())
    solver = ExactSolver(problem.operator, lattice.subdomain)  # also where media would be faster
    truth = solve_directly(problem, lattice.grid)
    for rtol in (1e-3, 1e-7):
        engine = make_solver(lattice, local_solver=solver, rtol=rtol, coarse_points=points)
        solution = engine.solve(problem.boundaries(lattice.grid)[0])
        error = np.sqrt(np.mean((solution.field.numpy() - truth) ** 2))
        assert error <= solution.error_estimate.rms <= 10 * error
