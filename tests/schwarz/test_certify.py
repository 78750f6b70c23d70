"""Certified mode: a right answer from any network."""

import math

import numpy as np
import pytest
import torch

from mosaicdd import Problem
from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.block import Lattice
from mosaicdd.schwarz.local_solvers.loading import find_local_solver
from mosaicdd.solvers.references import solve_by_sine_transform

RANKS = pytest.mark.ranks(1, 2, 4)
RTOL = 1e-10


def independent_residual(field, boundary):
    """Return ``|A u - b| / |b|`` with the assembled matrix."""
    system = DirichletSystem(LAPLACE.at(), Grid(boundary.shape, 1.0))
    b = system.right_hand_side(field)
    return np.linalg.norm(system.matrix @ field[1:-1, 1:-1].ravel() - b) / np.linalg.norm(b)


def network(change):
    """Return the shipped linear network with its weights changed."""
    solver = find_local_solver("laplace").as_trained()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in solver.network.parameters():
            noise = torch.randn(weights.shape, generator=generator)
            weights.copy_(change(weights, noise))
    return solver


NETWORKS = {
    "shipped": lambda weights, noise: weights,
    "perturbed by 10 %": lambda weights, noise: weights * (1 + 0.1 * noise),
    "of random weights": lambda weights, noise: weights.std() * noise,
    "that is not finite": lambda weights, noise: weights * torch.nan,
}


def data(kind, grid):
    """Return smooth, white-noise or discontinuous boundary data."""
    if kind == "discontinuous":
        levels = np.random.default_rng(0).standard_normal(8)
        return Boundary.of_perimeter(np.repeat(levels, 2 * sum(grid.shape) // 8), grid)
    return Boundary.of_gaussian_process(grid, noise=float(kind == "noise"))


@pytest.mark.parametrize("kind", ["smooth", "noise", "discontinuous"])
@pytest.mark.parametrize("name", NETWORKS)
def test_any_network_ends_in_a_right_answer(name, kind, make_solver):
    local_solver = network(NETWORKS[name])
    lattice = Lattice(Grid((512, 512), 0.5 / 32), local_solver.subdomain)
    boundary = data(kind, lattice.grid)
    solver = make_solver(lattice, local_solver=local_solver, rtol=1e-7, certify=RTOL)
    solution = solver.solve(boundary)
    assert solution.status == "converged_rtol"
    assert independent_residual(solution.field.numpy(), boundary) <= RTOL
    assert solution.certificate.iterations <= 20
    truth = solve_by_sine_transform(Problem(boundary.shape, LAPLACE, sides=boundary))
    error = np.sqrt(np.mean((solution.field.numpy() - truth) ** 2))
    assert error <= 1e-8  # |A^-1| |b| / sqrt(n) RTOL; a field of size 1 on 512 x 512


def test_a_better_network_saves_more_iterations(make_solver, make_lattice):
    lattice = make_lattice((16, 16), m=32)
    boundary = data("smooth", lattice.grid)
    saved = []
    for name in ("shipped", "perturbed by 10 %"):
        local_solver = network(NETWORKS[name])
        solver = make_solver(lattice, local_solver=local_solver, rtol=1e-7, certify=RTOL)
        certificate = solver.solve(boundary).certificate
        assert certificate.saved_from_zero > certificate.saved_from_coarse > 0
        saved.append(certificate.saved_from_zero)
    assert saved[0] > saved[1]


@RANKS
def test_the_certificate_does_not_depend_on_the_ranks(make_lattice, make_solver, make_ranks):
    lattice = make_lattice((9, 14), m=32)
    boundary = data("noise", lattice.grid)
    local_solver = network(NETWORKS["perturbed by 10 %"])
    serial, parallel = (
        make_solver(lattice, ranks=ranks, local_solver=local_solver, certify=RTOL).solve(boundary)
        for ranks in (make_ranks(alone=True), make_ranks())
    )
    assert parallel.certificate.iterations == serial.certificate.iterations
    assert parallel.iterations == serial.iterations
    # Both are far below 1e-10; rounding of values of size 1 is all that differs.
    np.testing.assert_allclose(parallel.field, serial.field[parallel.place], rtol=0, atol=1e-12)


def test_what_cannot_be_reached_is_refused_or_said(make_lattice, make_solver):
    lattice = make_lattice((8, 8), m=32)
    with pytest.raises(ValueError, match="float32"):
        make_solver(lattice, certify=1e-10, dtype="float32")
    with pytest.raises(ValueError, match="between 0 and 1"):
        make_solver(lattice, certify=-1.0)
    with pytest.raises(ValueError, match="below what float64 can reach"):
        make_solver(lattice, certify=1e-16)
    with pytest.raises(ValueError, match="must be below 1, got 2"):
        make_solver(lattice, rtol=2.0)
    solution = make_solver(lattice, certify=1e-15, rtol=1e-7).solve(data("smooth", lattice.grid))
    assert solution.status in ("stagnated", "diverged_max_iterations")
    assert math.isfinite(solution.discrete_residual)


@pytest.mark.parametrize("bound", [0.1, 0.5, 0.99])
def test_a_loose_bound_is_certified_too(bound, make_lattice, make_solver):
    lattice = make_lattice((8, 8), m=32)
    solution = make_solver(lattice, certify=bound).solve(data("smooth", lattice.grid))
    assert solution.status == "converged_rtol"
    assert solution.discrete_residual <= bound
