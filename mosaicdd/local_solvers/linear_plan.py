"""The plan of every local solver that is linear in the perimeter values: one matrix product."""

import numpy as np
import torch


class LinearPlan:
    """Apply a dense operator to perimeters: ``out = g A^T``.

    Parameters
    ----------
    operator
        ``(Q, P)`` values at the query points for unit values on each perimeter node.
    """

    def __init__(self, operator: np.ndarray, *, device: torch.device, dtype: torch.dtype):
        columns = np.ascontiguousarray(np.asarray(operator).T)
        self.operator = torch.as_tensor(columns).to(device=device, dtype=dtype)  # (P, Q)

    def __call__(self, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write the values ``(B, Q)`` for the perimeters ``g``, ``(B, P)``, to ``out``."""
        torch.mm(g, self.operator, out=out)
