"""The spectrum of a preconditioned operator as conjugate gradients see it."""

from collections.abc import Sequence

import numpy as np
import scipy.linalg


def least_ritz_value(steps: Sequence[tuple[float, float]]) -> float:
    """Return the smallest eigenvalue of Lanczos' matrix by the coefficients ``(alpha, beta)``."""
    alpha, beta = np.array([step for step in steps if step[0] > 0]).reshape(-1, 2).T
    if len(alpha) == 0 or not np.isfinite(alpha).all():
        return 1.0
    diagonal = 1.0 / alpha
    diagonal[1:] += beta[1:] / alpha[:-1]
    beside = np.sqrt(np.maximum(beta[1:], 0.0)) / alpha[:-1]
    return float(scipy.linalg.eigvalsh_tridiagonal(diagonal, beside)[0])
