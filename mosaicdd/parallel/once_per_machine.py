"""Results that one rank of each machine computes for all ranks there.

What takes much memory, as a factorisation of the whole coarse problem, is held once per machine. The
others wait no longer than if they all computed the same.
"""

from collections.abc import Callable

import numpy as np
import torch

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

    def __call__(
        self, compute: Callable[[torch.Tensor], torch.Tensor] | None, argument: torch.Tensor
    ) -> torch.Tensor:
        """Return ``compute(argument)``, float64 of the shape of ``argument``, on all ranks of the machine.

        Parameters
        ----------
        compute
            On the rank that leads; None on the others.
        argument
            The same on all.
        """
        if self._machine.size == 1 and compute is not None:
            return compute(argument)
        result = np.empty(argument.shape)
        if compute is not None:
            result[:] = compute(argument).cpu()
        self._machine.comm.Bcast(result)
        return torch.from_numpy(result)
