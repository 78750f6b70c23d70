"""Multigrid against the sparse factorisation."""

import numpy as np
import pytest

from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.equations.linear import LAPLACE
from mosaicdd.solvers.references import MultigridSolver


def random_problem(shape, seed=0):
    system = DirichletSystem(LAPLACE.at(), Grid(shape, 1.0))
    field = np.random.default_rng(seed).standard_normal((shape[0] + 1, shape[1] + 1))
    return system, system.right_hand_side(field)


def test_multigrid_equals_the_factorisation():
    system, b = random_problem((32, 48))
    # |A^-1| <= 1 / lambda_min = 48**2 / (2 pi**2) = 117, |b| = 13: 1e-10 * 117 * 13 = 1.5e-7 is the
    # guarantee; random data spread the residual over all modes and reach far below.
    np.testing.assert_allclose(MultigridSolver(system).solve(b), system.solve(b), atol=1e-9)


def test_the_residual_reaches_the_tolerance():
    system, b = random_problem((64, 64))
    for tolerance in (1e-4, 1e-10):
        u = MultigridSolver(system, tolerance).solve(b)
        assert np.linalg.norm(b - system.matrix @ u) <= tolerance * np.linalg.norm(b)


def test_zero_data_gives_zero():
    system, b = random_problem((8, 8))
    assert not MultigridSolver(system).solve(np.zeros_like(b)).any()


def test_a_residual_above_the_tolerance_raises():
    system, b = random_problem((64, 64))
    with pytest.raises(RuntimeError, match="relative residual"):
        MultigridSolver(system, max_iterations=1).solve(b)
