"""A network at one point per perimeter, anywhere within the subdomain."""

import numpy as np
import torch

from mosaicdd.local_solvers.lifting import Lifting, unit_points

_VALUES = 8  # per perimeter node and perimeter, as of an embedding in 8 channels


class PointPlan:
    """Evaluate a network, linear or not, where each perimeter has a query point of its own.

    Parameters
    ----------
    network
        On the device and in the precision of the lifting; it is not changed.
    activation_bytes
        What the activations of one call may take.

    Attributes
    ----------
    chunk
        Perimeters that one call should get at most.
    """

    def __init__(
        self, network: torch.nn.Module, lifting: Lifting, dtype: torch.dtype, activation_bytes: int
    ):
        self._network = network
        self._lifting = lifting
        perimeter = _VALUES * 4 * lifting.subdomain.cells * dtype.itemsize
        self.chunk = max(1, activation_bytes // perimeter)

    @torch.inference_mode()
    def __call__(self, g: torch.Tensor, points: np.ndarray) -> torch.Tensor:
        """Return the values ``(B,)`` for perimeters ``(B, P)`` at points ``(B, 2)`` in cells."""
        remainder, scale, coefficients = self._lifting.split(g)
        scaled = torch.as_tensor(unit_points(points, self._lifting.subdomain)).to(g)
        values = self._network(remainder, scaled[:, None])  # (B, 1)
        basis = self._lifting.basis_tensor(points)  # (J, B)
        return (values * scale).squeeze(1) + (coefficients * basis.T).sum(dim=1)
