"""The one-level method, the paper's: what it converges to, and how slowly."""

import numpy as np
import pytest

from mosaicdd.problems.sides.boundary import Boundary

SWEEPS = pytest.mark.parametrize("sweep", ["additive", "phases"])


@SWEEPS
def test_it_converges_to_the_discrete_solution(sweep, make_lattice, make_solver, problem):
    lattice = make_lattice((8, 6))
    boundary, truth = problem(lattice)
    solution = make_solver(lattice, levels=1, sweep=sweep, rtol=1e-11, max_iterations=5000)
    solution = solution.solve(boundary)
    assert solution.status == "converged_rtol"
    # The error is at most 10 times the update (FINDINGS: 19 at 16 lattice cells, and it grows with
    # their square), in root mean square; a single node has at most sqrt(unknowns) = 34 times that.
    np.testing.assert_allclose(solution.field, truth, rtol=0, atol=34 * 10 * 1e-11)


def iterations_for_four_decimals(k, sweep, make_lattice, make_solver):
    """Count the iterations that reduce the MAE from 1e-2 to 1e-6 with K x K subdomains."""
    lattice = make_lattice((2 * k, 2 * k))
    y, x = (np.linspace(0, 1, n) for n in lattice.grid.nodes)
    # Smooth: what is left after the first iterations is the slowest mode alone.
    boundary = Boundary.of_field(np.sin(np.pi * x) * np.sinh(np.pi * y)[:, None])
    truth = make_solver(lattice, rtol=1e-12).solve(boundary).interface
    solver = make_solver(lattice, levels=1, sweep=sweep, until_mae=1e-6, max_iterations=5000)
    history = solver.solve(boundary, reference=truth).history
    return sum(mae <= 1e-2 for mae in history.mae)


@SWEEPS
def test_its_iterations_grow_with_the_square_of_the_domain(sweep, make_lattice, make_solver):
    counts = [iterations_for_four_decimals(k, sweep, make_lattice, make_solver) for k in (4, 8)]
    # 1 - spectral radius = C / K**2 (1 + O(1 / K**2)), and the count is -ln(1e4) / log(spectral radius), where
    # the logarithm adds C / (2 K**2). In a subdomain the slowest mode's curvature is about constant, so a
    # sweep takes off 2 (pi / K)**2 times the mean, by hats, of the torsion function of the unit square along
    # a centre line, which is 1 / 16: C = pi**2 / 8. Phases: 3.3, measured to two digits (1.5 %).
    constant = {"additive": np.pi**2 / 8, "phases": 3.3}[sweep]
    assert 4 * 0.84 <= counts[1] / counts[0] <= 4 * 1.16
    # At K = 8 the logarithm is 1 to 2.6 %, the next term 1 / 64, two integers 1.1 % of the smaller count.
    assert counts[1] == pytest.approx(np.log(1e4) * 64 / constant, rel=0.07)


def test_phases_take_a_third_of_the_additive_iterations(make_lattice, make_solver):
    # Each phase sees the newest values; DESIGN 3.1: 5.2e-2 / 1.6e-2 = 3.2, 3.2, 3.3.
    counts = [
        iterations_for_four_decimals(8, sweep, make_lattice, make_solver)
        for sweep in ("additive", "phases")
    ]
    assert 2.5 <= counts[0] / counts[1] <= 3.5


@SWEEPS
def test_the_result_does_not_depend_on_the_batches(sweep, make_lattice, make_solver, problem):
    lattice = make_lattice((5, 7))
    boundary, _ = problem(lattice)
    solve = {"levels": 1, "sweep": sweep, "rtol": 0.0, "max_iterations": 30}
    batched = make_solver(lattice, **solve).solve(boundary)
    for batch_subdomains in (1, 4):
        other = make_solver(lattice, batch_subdomains=batch_subdomains, **solve).solve(boundary)
        # P = 32 products in another order: 32 eps of values below 4 in each of 30 iterations.
        np.testing.assert_allclose(other.field, batched.field, rtol=0, atol=30 * 3e-14)


def test_gmres_takes_fewer_iterations_to_the_same_solution(make_lattice, make_solver, problem):
    lattice = make_lattice((12, 12))
    boundary, truth = problem(lattice)
    solve = {"levels": 1, "sweep": "additive", "rtol": 1e-10, "max_iterations": 5000}
    krylov = make_solver(lattice, accelerate="gmres", **solve).solve(boundary)
    alone = make_solver(lattice, **solve).solve(boundary)
    assert krylov.converged
    # The square root of the number of iterations, but for restarts.
    assert krylov.iterations < alone.iterations / 4
    # The error is at most 20 times the update, see above, and sqrt(unknowns) = 60.
    np.testing.assert_allclose(krylov.field, truth, rtol=0, atol=60 * 20 * 1e-10)
