"""CHOLMOD and hypre's multigrids, which benchmarks run: the residuals that are asked for, and what they refuse."""

import numpy as np
import peers
import pytest
import scipy.sparse
from petsc_solve import ON_GRIDS

from mosaicdd.discretisation.discrete import DirichletSystem, MediumSystem
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.conditions import Dirichlet

here = pytest.mark.skipif(peers.petsc_python() is None, reason="no Python here has petsc4py")
CELLS = (40, 56)
MEDIUM = {"a": "lognormal:seed=1,length=0.05,contrast=1e6", "f": 1.0}


@here
@pytest.mark.parametrize("method", ON_GRIDS)
def test_multigrids_for_grids_solve_on_rectangles_only(method):
    problem = Problem(CELLS, "diffusion", MEDIUM)
    system = MediumSystem(problem.operator, problem.domain.grid())
    f = np.random.default_rng(0).standard_normal((CELLS[0] + 1, CELLS[1] + 1))
    b = system.right_hand_side(np.zeros(f.shape), f)
    inner = (CELLS[0] - 1, CELLS[1] - 1)
    solved = peers.solve_by_petsc(system.matrix, b, method, symmetric=True, grid=inner)
    # What is asked for, 1e-10, times what differences lose at a contrast of 1e6 (as hypre's on this medium).
    assert np.linalg.norm(b - system.matrix @ solved.solution) < 1e-8 * np.linalg.norm(b)
    assert solved.iterations > 1
    with pytest.raises(ValueError, match=f"{method} solves for all nodes of a rectangle"):
        peers.solve_by_petsc(system.matrix, b, method, symmetric=True)


@here
@pytest.mark.parametrize("method", ON_GRIDS)
def test_multigrids_for_grids_precondition_mixed_derivatives(method):
    values = {"axx": 2.0, "ayy": 1.0, "axy": 0.7}
    problem = Problem(CELLS, "anisotropic-diffusion", values, Dirichlet("sin(3*x) + y"))
    system = DirichletSystem(problem.operator, problem.domain.grid())
    b, inner = np.ones(len(system.matrix.indptr) - 1), (CELLS[0] - 1, CELLS[1] - 1)
    assert np.diff(system.matrix.indptr).max() == 9
    solved = peers.solve_by_petsc(system.matrix, b, method, symmetric=True, grid=inner)
    # 1e-10 is asked for; the part with five points is within 1 - 0.7 / sqrt(2) and 1 + 0.7 / sqrt(2) of the whole.
    assert np.linalg.norm(b - system.matrix @ solved.solution) < 2e-10 * np.linalg.norm(b)
    assert solved.iterations < 40


@here
def test_what_petsc_cannot_do_is_said_by_one_line():
    matrix = scipy.sparse.csr_array(np.eye(2))
    with pytest.raises(RuntimeError, match=r"^cholmod: .+$"):
        peers.solve_by_petsc(matrix, np.ones(3), "cholmod", symmetric=True)


def test_without_petsc_there_is_none(monkeypatch):
    monkeypatch.setattr(peers, "petsc_python", lambda: None)
    with pytest.raises(RuntimeError, match="hypre needs petsc4py, which no Python here has"):
        peers.solve_by_petsc(None, None, "hypre", symmetric=True)
