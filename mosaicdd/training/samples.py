"""Lifted samples: what a network sees of a dataset, as tensors.

Shape letters: ``n`` samples, ``P`` perimeter nodes, ``Q`` interior nodes.
"""

from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.local_solvers.lifting import Lifting

_CHUNK = 1024


@dataclass(frozen=True)
class LiftedSamples:
    """Unit remainders and the values that belong to them.

    Parameters
    ----------
    remainder, target
        ``(n, P)`` and ``(n, Q)``.
    scale
        ``(n, 1)``: an error times the scale is one of the solution itself.
    """

    remainder: torch.Tensor
    target: torch.Tensor
    scale: torch.Tensor

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.remainder)


def lift_samples(
    lifting: Lifting,
    boundary: np.ndarray,
    solution: np.ndarray,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> LiftedSamples:
    """Lift boundaries ``(n, P)`` and the interior of solutions ``(n, m + 1, m + 1)``."""
    basis = lifting.basis_tensor(lifting.subdomain.interior)
    parts = []
    for start in range(0, len(boundary), _CHUNK):
        g = torch.as_tensor(boundary[start : start + _CHUNK], dtype=torch.float64)
        inner = solution[start : start + _CHUNK, 1:-1, 1:-1].reshape(len(g), -1)
        remainder, scale, coefficients = lifting.split(g)
        target = (torch.as_tensor(inner, dtype=torch.float64) - coefficients @ basis) / scale
        parts.append([part.to(device, dtype) for part in (remainder, target, scale)])
    return LiftedSamples(*(torch.cat(column) for column in zip(*parts, strict=True)))
