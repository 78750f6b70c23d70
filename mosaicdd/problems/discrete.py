"""The discrete equation on a rectangle with Dirichlet data: its sparse system and direct solution.

Fields are arrays ``(ny + 1, nx + 1, ...)`` whose edge holds the boundary data; trailing axes are
right-hand sides. Used by the exact local solver, the datasets and the references.
"""

from functools import cached_property

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from mosaicdd.problems.equations import Equation


class DirichletSystem:
    """The system ``A u = b`` of the interior nodes, positive definite.

    Parameters
    ----------
    equation
        Whose 3 x 3 stencil is applied; ``A`` is minus the discrete operator times ``spacing**2``.
    shape
        Cells per axis, ``(ny, nx)``.
    """

    def __init__(self, equation: Equation, shape: tuple[int, int]):
        self.stencil = -np.asarray(equation.stencil)
        self.shape = shape

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """``A``, of ``(ny - 1) (nx - 1)`` rows, row by row from the bottom."""
        ny, nx = (cells - 1 for cells in self.shape)
        rows = [
            scipy.sparse.kron(
                scipy.sparse.eye_array(ny, k=dy),
                scipy.sparse.diags_array(self.stencil[dy + 1], offsets=[-1, 0, 1], shape=(nx, nx)),
            )
            for dy in (-1, 0, 1)
        ]
        matrix = sum(rows[1:], rows[0]).tocsr()
        matrix.eliminate_zeros()
        return matrix

    def apply(self, field: np.ndarray) -> np.ndarray:
        """Apply the stencil to a field with its edge, giving ``(ny - 1, nx - 1, ...)``."""
        ny, nx = (cells - 1 for cells in self.shape)
        result = np.zeros((ny, nx, *field.shape[2:]))
        for dy, dx in zip(*np.nonzero(self.stencil), strict=True):
            result += self.stencil[dy, dx] * field[dy : dy + ny, dx : dx + nx]
        return result

    def right_hand_side(self, field: np.ndarray) -> np.ndarray:
        """Return ``b`` for the edge values of ``field``, ``((ny - 1) (nx - 1), ...)``."""
        edge = np.array(field)
        edge[1:-1, 1:-1] = 0.0
        return -self.apply(edge).reshape(-1, *field.shape[2:])

    @cached_property
    def _factors(self):
        return scipy.sparse.linalg.splu(self.matrix.tocsc())

    def solve(self, right_hand_side: np.ndarray) -> np.ndarray:
        """Solve by a sparse factorisation, kept for further calls."""
        return self._factors.solve(right_hand_side)
