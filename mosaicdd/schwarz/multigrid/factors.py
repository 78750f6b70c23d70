"""Sparse factors of symmetric positive matrices, ``P A P' = L D L'``.

They are SuperLU's, of which half is kept: it has ``D L'``, too, and room beside both, and goes over blocks, which are of few
numbers here. Solves in compiled code take half as long.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from mosaicdd.schwarz.multigrid.compiled import kernels

_ROUNDING = 1e-10  # of a solve beside SuperLU's


class Factors:
    """Those of a matrix, in float64."""

    def __init__(self, matrix: scipy.sparse.csc_array):
        # Such matrices need no pivots; those of aggregates have few neighbours.
        factors = scipy.sparse.linalg.splu(
            matrix,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        self._solve: Callable[[np.ndarray], np.ndarray] = factors.solve
        lean = _lean(factors)
        if lean is None:
            return
        b = np.cos(np.arange(matrix.shape[0]))
        expected = factors.solve(b)
        if np.allclose(lean(b), expected, rtol=0, atol=_ROUNDING * abs(expected).max()):
            self._solve = lean

    def solve(self, b: np.ndarray) -> np.ndarray:
        """Return what the matrix makes a right-hand side of, ``(n,)``."""
        return self._solve(b)


def _lean(factors: Any) -> Callable[[np.ndarray], np.ndarray] | None:
    """Return what solves by the lower factor and the diagonal alone; None without compiled code, or if these are others."""
    code = kernels()
    if code is None or not np.array_equal(factors.perm_r, factors.perm_c):
        return None
    lower, order = factors.L, factors.perm_c.copy()  # else it holds all factors
    inverse, count = 1 / factors.U.diagonal(), len(order)
    first = lower.indices[lower.indptr[:-1]]
    if lower.indices.dtype != np.int32 or not np.array_equal(first, np.arange(count)):
        return None  # then the diagonal does not come first
    starts, rows = (of.view(np.uint32) for of in (lower.indptr, lower.indices))
    values = lower.data

    def solve(b: np.ndarray) -> np.ndarray:
        x = np.empty(count)
        x[order] = b
        code.forward(starts, rows, values, x)
        code.backward(starts, rows, values, inverse, x)
        return x[order]

    return solve
