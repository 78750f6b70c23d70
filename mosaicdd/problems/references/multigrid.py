"""Algebraic multigrid for the discrete equation: pyAMG, with its residual checked.

One hierarchy serves any number of right-hand sides: the datasets keep one for all samples, the
reference of a large problem builds one for a single solve.
"""

import logging

import numpy as np

from mosaicdd.problems.discretisation.discrete import DirichletSystem, MediumSystem
from mosaicdd.problems.discretisation.outline_system import OutlineSystem
from mosaicdd.problems.references.newton_reference import StepSystem

logger = logging.getLogger(__name__)


class MultigridSolver:
    """Solve ``A u = b`` by a Krylov method preconditioned by Ruge-Stueben multigrid.

    Conjugate gradients where ``A`` is self-adjoint, else GMRES.

    Parameters
    ----------
    system
        Whose matrix is ``(n, n)``.
    tolerance
        Relative residual ``|b - A u| / |b|`` that each solution must reach.
    max_iterations
        Of one solve.

    Attributes
    ----------
    iterations
        Iterations of the last solve.
    """

    def __init__(
        self,
        system: DirichletSystem | MediumSystem | OutlineSystem | StepSystem,
        tolerance: float = 1e-10,
        max_iterations: int = 100,
    ):
        if not 0 < tolerance < 1:
            raise ValueError(f"the multigrid tolerance must lie between 0 and 1, got {tolerance}")
        self.matrix = system.matrix
        self.tolerance = tolerance
        self.max_iterations = max_iterations
        self.iterations = 0
        self._krylov = "cg" if system.operator.self_adjoint else "fgmres"
        import pyamg  # here: no solve needs it

        self._hierarchy = pyamg.ruge_stuben_solver(self.matrix)

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Solve for one right-hand side ``(n,)``.

        Raises
        ------
        RuntimeError
            If the relative residual, computed anew, stays above the tolerance.
        """
        self.iterations = 0
        norm = np.linalg.norm(b)
        u = np.zeros_like(b, dtype=float)
        if norm == 0:
            return u
        # The solver tests a residual that it updates; a second round closes the gap to the true one.
        for _ in range(3):
            steps: list[float] = []
            u = self._hierarchy.solve(
                b,
                x0=u,
                tol=0.5 * self.tolerance,
                maxiter=self.max_iterations,
                accel=self._krylov,
                residuals=steps,
            )
            self.iterations += len(steps) - 1
            residual = np.linalg.norm(b - self.matrix @ u) / norm
            if residual <= self.tolerance:
                logger.debug("multigrid reached a relative residual of %.1e", residual)
                return u
        raise RuntimeError(
            f"multigrid stopped at a relative residual of {residual:.1e} where {self.tolerance:.1e} "
            "was asked for; raise max_iterations"
        )
