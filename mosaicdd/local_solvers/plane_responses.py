r"""The derivatives of an equation in the gradient alone, linearised at planes: a table over their slopes.

In a subdomain the solution is nearly a plane, so its derivative is nearly that at the plane through its perimeter. The
table is over $p / \sqrt{1 + |p|^2}$ for slopes ``p``, and made of the eighth of the planes that symmetries send
to all others. Between its entries it is interpolated linearly, so sums over the hats are met exactly.

Shape letters as in `bound`; ``L = 2 (m - 1)`` nodes of centre lines.
"""

import math

import numpy as np
import torch

from mosaicdd.local_solvers.networks.equivariant import images
from mosaicdd.local_solvers.networks.symmetry import SquareSymmetry
from mosaicdd.local_solvers.nonlinear import NewtonPlan

_STEPS = 8  # of the table, from no slope to the steepest
_BATCH = 5  # planes, with all hats, whose vectors stay in the cache
_BEYOND = 1.5  # times the steepest: the corners of a table over a disk


class PlaneResponses:
    """Looks responses up.

    Parameters
    ----------
    exact
        Newton's method in the subdomains, whose derivative counts.
    steepest
        Slope of the steepest plane.
    """

    def __init__(self, exact: NewtonPlan, steepest: float):
        self._step = _share(steepest) / _STEPS
        lines = exact.square.centre_lines
        nodes, back = np.unique(lines, axis=0, return_inverse=True)
        first = np.unique(back, return_index=True)[1]
        steps = np.arange(_STEPS + 1)
        octant = np.array([(y, x) for y in steps for x in steps if y <= x])
        found = (
            exact.derivative(self._planes(octant, exact, steepest), {})[..., first].cpu().numpy()
        )
        side, m = 2 * _STEPS + 1, exact.square.cells
        table = np.empty((side, side, *found.shape[1:]))
        matrices = SquareSymmetry(4 * m).matrices.long().numpy()
        hats = images(exact.square.perimeter[:: m // 2], m)
        for matrix, hat, line in zip(matrices, hats, images(nodes, m), strict=True):
            y, x = (_STEPS + octant @ matrix.T).T[..., None, None]
            table[y, x, hat[:, None], line] = found
        flat = table[..., back.ravel()].reshape(side**2, -1)
        self._table, self._side = torch.from_numpy(flat).to(exact.device), side

    def _planes(self, octant: np.ndarray, exact: NewtonPlan, steepest: float) -> torch.Tensor:
        """Return planes in squares, ``(n, m + 1, m + 1)``."""
        share = octant * self._step
        size = np.linalg.norm(share, axis=1, keepdims=True)
        share *= np.minimum(1.0, _share(_BEYOND * steepest) / np.maximum(size, 1e-9))
        slopes = share / np.sqrt(1.0 - np.square(share).sum(axis=1, keepdims=True))
        along = np.arange(exact.square.cells + 1) * exact.square.spacing
        planes = slopes[:, 0, None, None] * along[:, None] + slopes[:, 1, None, None] * along
        return torch.from_numpy(planes).to(exact.device)

    def write(self, slopes: torch.Tensor, out: torch.Tensor) -> None:
        """Write the responses ``(B, 8, L)`` for slopes ``(B, 2)``."""
        steep = slopes.square().sum(dim=1, keepdim=True)
        place = slopes / ((1.0 + steep).sqrt() * self._step) + _STEPS
        place = place.nan_to_num(nan=_STEPS).clamp(0.0, self._side - 1.001)
        low = place.floor()
        (y, x), (up, right) = low.long().T, (place - low).T
        corner = y * self._side + x
        at = torch.stack([corner, corner + 1, corner + self._side, corner + self._side + 1], 1)
        weights = torch.stack(
            [(1 - up) * (1 - right), (1 - up) * right, up * (1 - right), up * right], 1
        )
        found = torch.nn.functional.embedding_bag(
            at, self._table, mode="sum", per_sample_weights=weights.to(self._table)
        )
        out.copy_(found.view(out.shape))


def _share(slope: float) -> float:
    return slope / math.sqrt(1.0 + slope**2)
