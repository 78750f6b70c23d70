"""Reference solutions of the whole discrete problem, each by a method of its own.

Newton's method on the whole grid with any linear solver: reference solutions of nonlinear equations.
"""

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from mosaicdd.axes import at
from mosaicdd.discretisation.coarser import coarser, refined_at, screening, smooth_problem
from mosaicdd.discretisation.discrete import (
    DirichletSystem,
    FactorisedSystem,
    GlobalSystem,
    MediumSystem,
)
from mosaicdd.discretisation.node_equations import Equations, LinearStep
from mosaicdd.discretisation.nonlinear_equations import NonlinearDiscretisation, NonlinearEquations
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.operators.jacobian import is_beyond
from mosaicdd.problems.operators.medium import Medium, medium_of
from mosaicdd.problems.operators.nonlinear_part import Linearised
from mosaicdd.problems.problem import Problem
from mosaicdd.unsupported import Unsupported

_STEPS = 100  # of Newton's method, as many as a solve takes
_RTOL = 1e-11  # of the residual, relative to the right-hand side of the first linear equation
_LOOSE, _LEAST = 1e-6, 64  # the same on coarser grids, and cells that a side has to have for one
_SHORTEST = 2.0**-30  # part of a step

Solve = Callable[[Any, np.ndarray], np.ndarray]
"""``solve(system, b)``: of a linear system, which has its ``matrix``."""


def solve_by_newton(
    problem: Problem, grid: Grid, number: int, solve: Solve, rtol: float = _RTOL
) -> np.ndarray:
    """Solve a nonlinear problem by Newton's method with a line search and nested iteration.

    That begins with the solution on another; the last, and where there is none, with the harmonic surface.

    `RuntimeError` if it does not converge.
    """
    operator = problem.operator
    by_flows = not operator.linear and operator.by_flows
    energetic = not operator.linear and operator.self_adjoint
    rectangle = problem.plain and not by_flows
    equations = (_Rectangle if rectangle else _Everywhere)(problem, grid, number)
    u = equations.begun(solve)
    r, size = equations.residual(u), equations.size(u)
    if rectangle:
        nested = _nested(problem, grid, number, solve)
        if nested is not None and equations.norm(equations.residual(nested)) < equations.norm(r):
            u, r = nested, equations.residual(nested)
    last = np.inf
    for _ in range(_STEPS):
        norm = equations.norm(r)
        if norm <= rtol * size and last > np.sqrt(rtol) * np.linalg.norm(u):
            # At the first values it may be larger by any factor.
            size = min(size, equations.size(u))
        if norm <= rtol * size:
            return equations.field(u)
        change, length = solve(equations.step(u), -r), 1.0
        slope = change @ r if energetic else 0.0
        while True:
            tried = equations.moved(u, change, length)
            r = equations.residual(tried)
            long = length * np.linalg.norm(change) > np.sqrt(rtol) * np.linalg.norm(tried)
            if equations.norm(r) < norm and not (long and is_beyond(slope, change @ r)):
                break
            length /= 2
            if length < _SHORTEST:  # rounding is all that is left, or there is no way down
                if norm <= 1e3 * rtol * size:
                    return equations.field(u)
                raise RuntimeError(
                    f"Newton's method does not converge: relative residual {norm / size:.1e}"
                )
        u, last = tried, length * float(np.linalg.norm(change))
    raise RuntimeError(f"Newton's method does not converge in {_STEPS} steps")


def _nested(problem: Problem, grid: Grid, number: int, solve: Solve) -> np.ndarray | None:
    """Return the solution on a grid twice as coarse, interpolated; None if there is none."""
    if any(cells % 2 or cells < _LEAST for cells in grid.shape):
        return None
    boundary = problem.boundaries(grid)[number]
    coarse = coarser(problem, grid, boundary, number, 2)
    if coarse is None:
        return None
    try:
        values = solve_by_newton(coarse, coarse.domain.grid(), 0, solve, _LOOSE)
    except (RuntimeError, ValueError):  # it may be too coarse for this equation
        return None
    return boundary.impose(refined_at(values, 2, tuple(slice(0, n) for n in grid.nodes)))


class _Rectangle:
    """With values on all sides of a rectangle; unknowns are the nodes inside: changes and residuals are flat arrays."""

    def __init__(self, problem: Problem, grid: Grid, number: int):
        whole = tuple(slice(0, nodes) for nodes in grid.nodes)
        self._inner, operator = (slice(1, -1),) * len(grid.nodes), problem.operator
        if operator.linear:
            raise TypeError(f"Newton's method is for nonlinear operators, got {operator}")
        self._operator = operator.on(grid, whole)
        self._bare = problem.boundaries(grid)[number].impose(np.zeros(grid.nodes))
        f = problem.source_at(grid, whole)
        self._source: np.ndarray | float = 0.0
        if f is not None:
            self._source = grid.spacing**2 * f[number % len(f)][self._inner]

    def begun(self, solve: Solve) -> np.ndarray:
        grid = self._operator.grid
        system = MediumSystem(Medium({"a": Field("a", 1.0, len(grid.shape))}, grid.aspect), grid)
        return self.moved(self._bare, solve(system, system.right_hand_side(self._bare)), 1.0)

    def moved(self, u: np.ndarray, change: np.ndarray, length: float) -> np.ndarray:
        other = u.copy()
        other[self._inner] += length * change.reshape(u[self._inner].shape)
        return other

    def residual(self, u: np.ndarray) -> np.ndarray:
        return (self._operator.residual(u) - self._source).ravel()

    def step(self, u: np.ndarray) -> MediumSystem:
        return MediumSystem(Linearised(self._operator, u), self._operator.grid)

    def size(self, u: np.ndarray) -> float:
        """Return the 2-norm of the right-hand side of the equation that is linearised at values."""
        derivative = self._operator.derivative(u, self._operator.part)
        return self.norm(derivative.apply(u - self._bare).ravel() - self.residual(u))

    def norm(self, residual: np.ndarray) -> float:
        return float(np.linalg.norm(residual))

    def field(self, u: np.ndarray) -> np.ndarray:
        return u


class StepSystem(FactorisedSystem):
    """The linear system of a step of Newton's method on any domain, with unit rows without an unknown.

    Parameters
    ----------
    equations
        Of the step, with a node more all around.
    periodic
        Along which axes the first node comes after the last.
    """

    def __init__(self, operator: LinearStep, equations: Equations, periodic: tuple[bool, ...]):
        self.operator, self.conductances = operator, equations.conductances
        self._periodic = periodic

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """``h^2 J``, of a row for each node, row by row from the bottom; a pair of sides is one."""
        return self.conductances.matrix(self._periodic)


class _Everywhere:
    """On any domain; unknowns are all nodes, of which those that are not active are zero.

    Values are held with a node more all around, which along a periodic axis is that of the other end.
    """

    def __init__(self, problem: Problem, grid: Grid, number: int):
        self._problem, self._grid, self._number = problem, grid, number
        self._periodic = problem.conditions.periodic
        ends = zip(grid.nodes, self._periodic, strict=True)
        self._nodes = tuple(nodes - around for nodes, around in ends)
        wide = tuple(slice(-1, nodes + 1) for nodes in self._nodes)
        self._equations = NonlinearEquations(NonlinearDiscretisation(problem, grid), wide)
        self._data = self._equations.data(problem, number)
        self._inner = (slice(1, -1),) * len(grid.nodes)

    def begun(self, solve: Solve) -> np.ndarray:
        smooth = smooth_problem(self._problem, self._grid, screening(self._problem, self._grid))
        system = GlobalSystem(smooth, self._grid, self._number)
        u = self._around(solve(system, system.right_hand_side).reshape(self._nodes))
        u = np.where(self._equations.active, u, 0.0)
        _, weights = self._equations.weighed_derivative(u, self._data)
        self._weights = weights.every(u.shape)[self._inner].ravel()
        return u

    def moved(self, u: np.ndarray, change: np.ndarray, length: float) -> np.ndarray:
        return u + length * self._around(change.reshape(self._nodes))

    def residual(self, u: np.ndarray) -> np.ndarray:
        return self._equations.residual(u, self._data)[self._inner].ravel()

    def step(self, u: np.ndarray) -> StepSystem:
        derivative = self._equations.derivative(u, self._data)
        symmetric = self._equations.operator.self_adjoint
        step = LinearStep(derivative, self._equations.part, self_adjoint=symmetric)
        return StepSystem(step, derivative, self._periodic)

    def size(self, u: np.ndarray) -> float:
        return self.norm(self.step(u).conductances.apply(u).ravel() - self.residual(u))

    def norm(self, residual: np.ndarray) -> float:
        return float(np.linalg.norm(self._weights * residual))

    def field(self, u: np.ndarray) -> np.ndarray:
        field = self._equations.completed(u, self._problem, self._number)[self._inner]
        return np.pad(field, [(0, int(around)) for around in self._periodic], mode="wrap")

    def _around(self, values: np.ndarray) -> np.ndarray:
        """Return values with a node more all around."""
        for axis, around in enumerate(self._periodic):
            beyond = at(axis, values.ndim, (1, 1), (0, 0))
            values = np.pad(values, beyond, mode="wrap" if around else "constant")
        return values


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
