"""Lifted samples: what a network sees of a dataset, as float32 tensors.

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


def lift_samples(lifting: Lifting, boundary: np.ndarray, solution: np.ndarray) -> LiftedSamples:
    """Lift boundaries ``(n, P)`` and the interior of solutions ``(n, m + 1, m + 1)``."""
    basis = lifting.basis_tensor(lifting.subdomain.interior)
    parts = []
    for start in range(0, len(boundary), _CHUNK):
        g = torch.as_tensor(boundary[start : start + _CHUNK], dtype=torch.float64)
        inner = solution[start : start + _CHUNK, 1:-1, 1:-1].reshape(len(g), -1)
        remainder, scale, coefficients = lifting.split(g)
        target = (torch.as_tensor(inner, dtype=torch.float64) - coefficients @ basis) / scale
        parts.append([part.float() for part in (remainder, target, scale)])
    return LiftedSamples(*(torch.cat(column) for column in zip(*parts, strict=True)))


@torch.no_grad()
def mean_squared_error(
    network: torch.nn.Module, samples: LiftedSamples, points: torch.Tensor, nodes: torch.Tensor
) -> float:
    """Return the mean squared error of the solution at some interior nodes.

    The validation MSE of the paper: boundary data of unit amplitude, errors not divided by the
    scale of the remainder.

    Parameters
    ----------
    points
        All interior nodes, ``(Q, 2)`` in ``[-1, 1]``.
    nodes
        Indices of those to evaluate.
    """
    total = 0.0
    prepared = network.prepare(points[nodes])
    # Activations that stay in a processor's cache; a linear network has none.
    chunk = _CHUNK if network.linear else max(1, 2**20 // (len(nodes) * network.settings.width))
    for start in range(0, len(samples), chunk):
        part = slice(start, start + chunk)
        values = network.apply_prepared(samples.remainder[part], prepared)
        error = (values - samples.target[part][:, nodes]) * samples.scale[part]
        total += error.double().square().sum().item()
    return total / (len(samples) * len(nodes))
