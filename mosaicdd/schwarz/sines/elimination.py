"""Elimination along the first axis, from one end to the other and back, in the place of two transforms along it.

Of the waves along all other axes an equation in the first one is left: ``k (-u[i-1] + d u[i] - u[i+1]) = f[i]`` for
each product of these, ``d`` at least 2. Such equations are solved without pivots, as exactly as by transforms, and in
less time than one of these takes.
"""

from collections.abc import Callable

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.schwarz.multigrid.sums import Kind, at_addresses, compiled

_KIND = Kind(*(torch.float64,) * 3)
_VALUES = 2**13  # of a row that are handled at once: with the rows beside they stay in the cache


def is_compiled() -> bool:
    """Say whether there is compiled code for it, without which transforms are faster."""
    return compiled(_KIND) is not None


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
    count, d = len(f), diagonal.reshape(-1)
    inverse = np.empty((count, d.size))  # of the pivots
    np.divide(1.0, d, out=inverse[0])
    # At natural ends the row beside counts twice: for the first in what goes back, for the last on the way there.
    back = inverse[:1] * (1.0 if held[0] else 2.0)
    twice = np.full(d.size, 1.0 if held[1] else 2.0)
    for i in range(1, count):
        before = back[0] if i == 1 else inverse[i - 1]
        np.subtract(d, before, out=inverse[i])
        if i == count - 1 and not held[1]:
            inverse[i] -= before
        np.divide(1.0, inverse[i], out=inverse[i])
    ones, rows = np.ones(d.size), d.nbytes * np.arange(count)
    u, pivots = (values.ctypes.data + rows for values in (f, inverse))
    down, after = np.full(count, ones.ctypes.data), pivots.copy()
    down[-1], after[0] = twice.ctypes.data, back.ctypes.data
    nowhere, parts = np.zeros(count, int), []
    for part in even(d.size, _VALUES):
        there, length = part.start * d.itemsize, part.stop - part.start
        up, scale, below, above = (at + there for at in (u, pivots, down, after))
        below[0] = 0
        parts.append(at_addresses(up, up, scale, [below, np.roll(up, 1)], length))
        backward = at_addresses(up, up, nowhere, [above, np.roll(up, -1)], length)
        parts.append(backward[-2::-1])
    table = np.concatenate(parts)
    run, where = compiled(_KIND), (table.ctypes.data, *table.shape)
    if run is None:
        raise RuntimeError(
            "elimination is compiled, and llvmlite is not installed: take transforms"
        )

    def solve(kept: object = (table, f, inverse, back, twice, ones)) -> None:
        """Solve; all addresses are of what is kept."""
        run(*where)
        np.multiply(f, 1 / coupling, out=f)

    return solve
