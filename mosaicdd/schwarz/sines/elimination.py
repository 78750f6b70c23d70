"""Elimination along the first axis, from one end to the other and back, in the place of two transforms along it.

Of the waves along all other axes an equation in the first one is left: ``k (-u[i-1] + d u[i] - u[i+1]) = f[i]`` for
each product of these, ``d`` at least 2. Such equations are solved without pivots, as exactly as by transforms, and in less
time than one of these takes.
"""

from collections.abc import Callable

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.schwarz.multigrid.sums import Kind, Sum, compiled, planned

_VALUES = 2**13  # of a row that are handled at once: with the rows beside they stay in the cache


def is_compiled() -> bool:
    """Say whether there is compiled code for it, without which transforms are faster."""
    return compiled(Kind(*(torch.float64,) * 3)) is not None


def elimination(
    f: np.ndarray, coupling: float, diagonal: np.ndarray, given: tuple[bool, bool]
) -> Callable[[], None]:
    """Plan the solution of right-hand sides, which it takes the place of.

    Parameters
    ----------
    f
        ``(n, ..)``, contiguous: it stays where it is.
    coupling, diagonal
        ``k``, and ``d`` of each row along the first axis, ``(..)``.
    given
        Whether values are given beyond the low and the high end; else the value there is that on the other side of it.
    """
    count = len(f)
    d = diagonal.reshape(-1)
    # What the row before, and the one after, count in each.
    before, after = np.ones(count), np.ones(count)
    if count > 1:
        before[-1], after[0] = (1.0 if end else 2.0 for end in given[::-1])
    inverse = np.empty((count, d.size))
    inverse[0] = 1 / d
    for i in range(1, count):
        inverse[i] = 1 / (d - before[i] * after[i - 1] * inverse[i - 1])
    u, inv = torch.from_numpy(f).view(count, -1), torch.from_numpy(inverse)
    back = [inv[i] if after[i] == 1.0 else after[i] * inv[i] for i in range(count)]
    numbers = {each: torch.full((d.size,), each, dtype=u.dtype) for each in set(before.tolist())}
    sums = []
    for part in even(d.size, _VALUES):
        for i in range(count):
            below = [(numbers[before[i]][part], u[i - 1, part])] if i else []
            sums.append(Sum(u[i, part], u[i, part], below, scale=inv[i, part]))
        for i in reversed(range(count - 1)):
            sums.append(Sum(u[i, part], u[i, part], [(back[i][part], u[i + 1, part])]))
    run = planned(sums)

    def solve() -> None:
        run()
        np.multiply(f, 1 / coupling, out=f)

    return solve
