"""Results that one rank of each machine computes for all ranks there.

What takes much memory, as a factorisation of the whole coarse problem, is held once per machine. The
others wait no longer than if they all computed the same.
"""

from collections.abc import Callable

import numpy as np

from mosaicdd.parallel.ranks import Ranks


class OncePerMachine:
    """Made and called by all ranks together.

    Attributes
    ----------
    leads
        Whether this rank computes.
    """

    def __init__(self, ranks: Ranks):
        self._machine = ranks.machine()
        self.leads = self._machine.is_root

    def __call__(self, compute: Callable[[], np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        """Return the result of the rank that leads, float64 ``shape``, on all ranks of the machine."""
        if self._machine.size == 1:
            return compute()
        result = np.ascontiguousarray(compute()) if self.leads else np.empty(shape)
        self._machine.comm.Bcast(result)
        return result
