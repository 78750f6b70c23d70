"""Reference solutions of the whole discrete problem, each by a method of its own."""

import numpy as np
import scipy.fft

from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.discrete import DirichletSystem
from mosaicdd.problems.equations import Equation
from mosaicdd.problems.multigrid import MultigridSolver


def solve_by_multigrid(equation: Equation, boundary: Boundary) -> np.ndarray:
    """Solve by pyAMG to a checked relative residual of 1e-10.

    Returns
    -------
    ndarray
        The field, ``(ny + 1, nx + 1)``.

    Raises
    ------
    RuntimeError
        If the residual is not reached.
    """
    return solve_and_count_by_multigrid(equation, boundary)[0]


def solve_and_count_by_multigrid(equation: Equation, boundary: Boundary) -> tuple[np.ndarray, int]:
    """Solve as `solve_by_multigrid`; return the number of iterations, too."""
    system, field = _problem(equation, boundary)
    multigrid = MultigridSolver(system)
    solution = multigrid.solve(system.right_hand_side(field))
    field[1:-1, 1:-1] = solution.reshape(field[1:-1, 1:-1].shape)
    return field, multigrid.iterations


def solve_by_sine_transform(equation: Equation, boundary: Boundary) -> np.ndarray:
    """Solve directly: the fast sine transform diagonalises a symmetric constant 3 x 3 stencil.

    Returns
    -------
    ndarray
        The field, ``(ny + 1, nx + 1)``.

    Raises
    ------
    ValueError
        If the stencil of the equation is not symmetric in both axes.
    """
    system, field = _problem(equation, boundary)
    stencil = system.stencil
    if not (np.array_equal(stencil, stencil[::-1]) and np.array_equal(stencil, stencil[:, ::-1])):
        raise ValueError(f"the stencil of {equation.name} is not symmetric; use reference='pyamg'")
    right = system.right_hand_side(field).reshape([cells - 1 for cells in boundary.shape])
    y, x = (2 * np.cos(np.pi * np.arange(1, cells) / cells) for cells in boundary.shape)
    symbol = stencil[1, 1] + stencil[0, 1] * y[:, None] + stencil[1, 0] * x
    if stencil[0, 0]:
        symbol += stencil[0, 0] * y[:, None] * x
    transformed = scipy.fft.dstn(right, type=1, overwrite_x=True)
    transformed /= symbol
    field[1:-1, 1:-1] = scipy.fft.idstn(transformed, type=1, overwrite_x=True)
    return field


def _problem(equation: Equation, boundary: Boundary) -> tuple[DirichletSystem, np.ndarray]:
    """Return the discrete system and a field that holds the boundary data and zeros inside."""
    field = boundary.impose(np.zeros([cells + 1 for cells in boundary.shape]))
    return DirichletSystem(equation, boundary.shape), field


REFERENCES = {"pyamg": solve_by_multigrid, "dst": solve_by_sine_transform}
"""Reference solvers by the names of the command line."""
