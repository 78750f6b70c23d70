"""Elimination along the first axis, from one end to the other and back, in the place of two transforms along it.

Of the waves along all other axes an equation in the first one is left: ``k (-u[i-1] + d u[i] - u[i+1]) = f[i]`` for
each product of these, ``d`` at least 2. Such equations are solved without pivots, as exactly as by transforms, and in
less time than one of these takes.
"""

from collections.abc import Callable

import numpy as np

from mosaicdd.lattice.axes import even
from mosaicdd.schwarz.multigrid.vector_operations import kernels

_VALUES = 2**13  # of a row that are handled at once: with the rows beside they stay in the cache


def is_compiled() -> bool:
    """Say whether there is compiled code for it, without which transforms are faster."""
    return kernels() is not None


def elimination(
    f: np.ndarray, coupling: float, diagonal: np.ndarray, held: tuple[bool, bool]
) -> Callable[[], None]:
    """Plan the solution of right-hand sides, which it takes the place of; only where it `is_compiled`.

    Parameters
    ----------
    f
        ``(n, ..)``, contiguous: it stays where it is.
    coupling, diagonal
        ``k``, and ``d`` of each row along the first axis, ``(..)``.
    held
        Whether values are given beyond the low and the high end; else the value there is that on the other side of it.
    """
    code = kernels()
    if code is None:
        raise RuntimeError("elimination is compiled, and numba is not installed: take transforms")
    rows, d = f.reshape(len(f), -1), diagonal.reshape(-1)
    pivots = np.empty(rows.shape)  # their inverses
    np.divide(1.0, d, out=pivots[0])
    # At natural ends the row beside counts twice: for the first in what goes back, for the last on the way there.
    first = pivots[0] * (1.0 if held[0] else 2.0)
    last = 1.0 if held[1] else 2.0
    for i in range(1, len(rows)):
        factor = last if i == len(rows) - 1 else 1.0
        np.subtract(d, factor * (first if i == 1 else pivots[i - 1]), out=pivots[i])
        np.divide(1.0, pivots[i], out=pivots[i])
    parts = [(part.start, part.stop) for part in even(d.size, _VALUES)]

    def solve() -> None:
        for part in parts:
            code.eliminate(rows, pivots, first, last, 1 / coupling, *part)

    return solve
