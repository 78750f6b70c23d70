"""Reference solutions of the whole discrete problem, each by a method of its own."""

import logging
from collections.abc import Callable

import numpy as np

from mosaicdd.discretisation.discrete import DirichletSystem, GlobalSystem, MediumSystem
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.operators.medium import medium_of
from mosaicdd.problems.problem import Problem
from mosaicdd.solvers.references.newton_reference import StepSystem, solve_by_newton
from mosaicdd.unsupported import Unsupported

logger = logging.getLogger(__name__)


class MultigridSolver:
    """Solve ``A u = b`` by a Krylov method preconditioned by Ruge-Stueben multigrid.

    Conjugate gradients where ``A`` is self-adjoint, else GMRES. One hierarchy serves any number of right-hand sides:
    datasets keep one for all samples, the reference of a large problem builds one for a single solve.

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
        system: DirichletSystem | MediumSystem | GlobalSystem | StepSystem,
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

        `RuntimeError` if the relative residual, computed anew, stays above the tolerance.
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


System = DirichletSystem | MediumSystem | GlobalSystem | StepSystem


def solve_by_multigrid(problem: Problem, grid: Grid | None = None, number: int = 0) -> np.ndarray:
    """Solve by pyAMG to a checked relative residual of 1e-10; raise `RuntimeError` if the residual is not reached.

    ``grid``: of the problem's cells; by default its domain's own. ``number``: which of several problems. Returns the
    field, ``(ny + 1, nx + 1)``.
    """
    return solve_and_count_by_multigrid(problem, grid, number)[0]


def solve_and_count_by_multigrid(
    problem: Problem, grid: Grid | None = None, number: int = 0
) -> tuple[np.ndarray, int]:
    """Solve as `solve_by_multigrid`; return the number of iterations, too, of all of Newton's steps."""
    multigrid: list[MultigridSolver] = []

    def solve(system: System, b: np.ndarray) -> np.ndarray:
        multigrid.append(MultigridSolver(system))
        return multigrid[-1].solve(b)

    return _solved(problem, grid, number, solve), sum(solver.iterations for solver in multigrid)


def solve_directly(problem: Problem, grid: Grid | None = None, number: int = 0) -> np.ndarray:
    """Solve by a sparse LU factorisation (SuperLU); for up to some 10^6 nodes.

    Returns the field, ``(ny + 1, nx + 1)``.
    """
    return _solved(problem, grid, number, lambda system, b: system.solve(b))


def solve_by_sine_transform(
    problem: Problem, grid: Grid | None = None, number: int = 0
) -> np.ndarray:
    """Solve directly: the fast sine transform diagonalises a stencil symmetric in both axes.

    `ValueError` if the stencil of the equation is not symmetric in both axes.
    Returns the field, ``(ny + 1, nx + 1)``.
    """

    def solve(system: System, b: np.ndarray) -> np.ndarray:
        if not problem.plain:
            raise Unsupported(
                "a sine transform needs values on all sides; take the reference pyamg or direct"
            )
        operator = problem.operator
        if not operator.constant or not operator.reflective:
            raise Unsupported(
                f"the stencil of {problem.equation.name} is not symmetric in both axes, as a sine "
                "transform needs; take the reference pyamg or direct"
            )
        return DirichletSystem(operator, grid or problem.domain.grid()).solve_by_sines(b)

    return _solved(problem, grid, number, solve)


def _solved(
    problem: Problem,
    grid: Grid | None,
    number: int,
    solve: Callable[[System, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return the field of one problem, its inner nodes solved for."""
    grid = grid or problem.domain.grid()
    if not problem.operator.linear:
        return solve_by_newton(problem, grid, number, solve)
    if not problem.plain:
        everywhere = GlobalSystem(problem, grid, number)
        return everywhere.field(solve(everywhere, everywhere.right_hand_side))
    field = problem.boundaries(grid)[number].impose(np.zeros(grid.nodes))
    source = problem.source_at(grid, tuple(slice(0, nodes) for nodes in grid.nodes))
    operator = problem.operator
    f = None if source is None else source[number % len(source)]
    system: System
    if not operator.constant or len(grid.shape) != 2:
        system = MediumSystem(medium_of(operator), grid)
    else:
        system = DirichletSystem(operator, grid)
    b = system.right_hand_side(field, f)
    inner = field[(slice(1, -1),) * field.ndim]
    inner[...] = solve(system, b).reshape(inner.shape)
    return field


REFERENCES = {"pyamg": solve_by_multigrid, "dst": solve_by_sine_transform, "direct": solve_directly}


"""Reference solutions by the names of their methods."""
