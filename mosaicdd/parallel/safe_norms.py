"""Norms of numbers whose squares float64 does not hold, and the powers of two that they are multiplied by for it.

Linear problems are solved as ``A (p u) = p b`` there. As long as nothing overflows or vanishes, each number of an
iteration is exactly ``p`` times that of ``A u = b``, so statuses and iterations are the same. Where nothing needs it,
``p = 1``.
"""

import math

import numpy as np

from mosaicdd.parallel.ranks import Ranks

SAFE = {"float64": (1e-100, 1e100), "float32": (1e-10, 1e10)}
"""Sizes of data in numbers of a type, whose squares are numbers, with those of residuals and of sums over all nodes."""

_MOST = 1000  # exponent, whose power and its inverse are normal numbers


def is_safe(size: float, least: float = 1e-100, most: float = 1e100) -> bool:
    """Say whether squares of data of a size, and of what is made of them, are numbers that are not zero."""
    return least <= size <= most


def power_for(largest: float, unit: float = 1.0) -> float:
    """Return the power of two that makes a number about as large as a unit; 1 for zero, and what is no number."""
    if not 0 < largest < math.inf:
        return 1.0
    exponent = math.frexp(unit)[1] - math.frexp(largest)[1]
    return math.ldexp(1.0, max(-_MOST, min(_MOST, exponent)))


def safe_power(size: float, dtype: str = "float64") -> float:
    """Return the power of two by which numbers of a size of a type are multiplied; 1 if their squares are numbers."""
    return 1.0 if is_safe(size, *SAFE[dtype]) else power_for(size)


def largest_of(values: np.ndarray) -> float:
    """Return the largest absolute value, but for what is no number."""
    return float(np.fmax.reduce(np.abs(values), axis=None, initial=0.0))


def squares_of(flat: np.ndarray) -> float:
    """Return the sum of the squares of numbers in a row, which may be infinite."""
    with np.errstate(over="ignore"):
        return float(np.dot(flat, flat))


def norm(ranks: Ranks, values: np.ndarray, squares: float | None = None) -> float:
    """Return the 2-norm of the values of all ranks, which call it together.

    ``squares``: the sum of their squares over all ranks, if it is known.
    """
    flat = values.ravel()
    if squares is None:
        squares = float(ranks.sum(np.array([squares_of(flat)]))[0])
    size = math.sqrt(squares) if squares >= 0 else math.nan
    if is_safe(size):
        return size
    power = power_for(ranks.largest(largest_of(flat)))
    if power == 1.0:
        return size
    return math.sqrt(ranks.sum(np.array([squares_of(power * flat)]))[0]) / power
