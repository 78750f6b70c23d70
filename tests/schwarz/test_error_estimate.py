"""The error estimate against the true distance to the discrete solution."""

import numpy as np
import pytest

import mosaicdd as m
from mosaicdd import Problem
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.local_solvers.loading import find_local_solver
from mosaicdd.solvers.references import solve_by_sine_transform

pytestmark = pytest.mark.ranks(1, 2, 3, 4, 6)


def true_errors(solver, solution, truth):
    """Return the error at the owned lattice nodes, and its mean square over the interface."""
    difference = solution.interface.like(solution.interface.flat - solver.reference(truth).flat)
    owned = difference.ownership().flat
    total = solver.block.lattice.unknowns
    return difference.nodes()[0], (difference.flat.square() * owned).sum().item() / total


@pytest.mark.parametrize("rtol", [1e-2, 1e-5, 1e-8])
def test_what_the_iteration_leaves_is_estimated_from_above_and_within_two(
    rtol, make_lattice, make_solver, make_ranks, problem, comm
):
    lattice = make_lattice((20, 20))
    boundary, truth = problem(lattice)
    solver = make_solver(lattice, ranks=make_ranks(), rtol=rtol)
    solution = solver.solve(boundary)
    _, mean_square = true_errors(solver, solution, truth)
    error = np.sqrt(comm.allreduce(mean_square))
    # One more iteration contracts the error to 0.25 of it, in the mean square, so its update lies
    # within 0.75 and 1.25 of the error, and the estimate is 1.5 times the update.
    assert error <= solution.error_estimate.rms <= 2 * error


def test_the_local_solver_s_own_error_is_in_it(
    make_lattice, make_solver, make_ranks, problem, changed_exact, comm
):
    def spoil(g, out):
        out += 1e-4 * (g[:, :1] - g[:, 16:17])

    lattice = make_lattice((20, 20))
    boundary, truth = problem(lattice)
    local_solver = changed_exact(lattice.subdomain, spoil, linear=True)
    solver = make_solver(lattice, ranks=make_ranks(), local_solver=local_solver)
    solution = solver.solve(boundary)
    _, mean_square = true_errors(solver, solution, truth)
    error = np.sqrt(comm.allreduce(mean_square))
    assert error > 1e4 * solution.update
    assert error <= solution.error_estimate.rms <= 2 * error


def test_errors_between_the_lines_along_the_edge_are_in_it(
    make_lattice, make_solver, make_ranks, comm
):
    lattice = make_lattice((7, 6), m=32)
    nodes = np.arange(2 * sum(lattice.grid.shape))
    peak = np.exp(-np.minimum(nodes, len(nodes) - nodes) / 2.0)  # two cells wide, at a corner
    boundary = Boundary.of_perimeter(peak, lattice.grid)
    truth = solve_by_sine_transform(Problem(boundary.shape, LAPLACE, sides=boundary))
    network = find_local_solver("laplace").as_trained()
    alone, together = (
        make_solver(lattice, ranks=ranks, local_solver=network)
        for ranks in (make_ranks(alone=True), make_ranks())
    )
    solution = alone.solve(boundary)
    inside = (solution.field.numpy() - truth)[1:-1, 1:-1]
    error = np.sqrt(np.mean(inside**2))
    # In the tiles along the edge it is the error itself; 1.5 times the interface's comes on top.
    assert solution.error_estimate.interface < error
    assert error <= solution.error_estimate.rms <= 2.5 * error
    # Rounding of the sums, relative to an error of 1e-6 in values of size 1.
    assert together.solve(boundary).error_estimate.rms == pytest.approx(
        solution.error_estimate.rms, rel=1e-6
    )


@pytest.mark.parametrize(
    ("cells", "axx", "ayy", "axy", "f"),
    [
        ((112, 176), 1.16, 1.26, -0.21, "1"),
        ((256, 256), 1.16, 1.26, -0.21, "1"),
        ((160, 128), 1.11, 1.01, -0.03, "40*where(x > 0.5, 1, 0)"),
    ],
)
def test_smooth_errors_that_the_first_exact_iteration_leaves_are_in_it(
    cells, axx, ayy, axy, f, comm
):
    """Subdomains that all err alike between the lattice nodes make an error that grows with their squared number."""
    fields = {"axx": axx, "ayy": ayy, "axy": axy, "f": f}
    problem = m.Problem(m.Domain(cells), "anisotropic-diffusion", fields, m.Dirichlet(1.0))
    by_network = m.solve(problem, ranks=comm)
    assert by_network.report["local_solver"] == "anisotropic-diffusion"
    assert by_network.converged
    difference = by_network.gather() - m.solve(problem, "exact", rtol=1e-11, ranks=comm).gather()
    error = np.sqrt(np.mean(difference[1:-1, 1:-1] ** 2))
    assert error <= by_network.error_estimate <= 4 * error
