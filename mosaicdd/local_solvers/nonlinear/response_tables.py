r"""The responses of subdomains from tables of what an equation's derivative is at planes, or at constants.

In a subdomain the solution of an equation in the gradient is nearly a plane, so its derivative is nearly that at the
plane through its perimeter; of an equation with a reaction, that at the constant with as much of it. Tables of planes are
over $p / \sqrt{1 + |p|^2}$ for slopes ``p``, and made of the eighth of the planes that symmetries send to all others.
Between entries they are interpolated linearly, so sums over the hats are met as well as in the entries.

Shape letters as in `bound`; ``L = 2 (m - 1)`` nodes of centre lines.
"""

import math

import numpy as np
import torch

from mosaicdd.local_solvers.networks.symmetry import SquareSymmetry, images
from mosaicdd.local_solvers.nonlinear.nonlinear import NewtonPlan

_STEPS = 8  # of the table, from no slope to the steepest
_BATCH = 5  # planes, with all hats, whose vectors stay in the cache
_CONSTANTS = 25  # from zero to the largest
_BEYOND = 1.5  # times the steepest: the corners of a table over a disk


class PlaneResponses:
    """Looks up responses, the derivative of Newton's method in subdomains, by slopes up to the steepest."""

    def __init__(self, exact: NewtonPlan, steepest: float):
        self._step = _share(steepest) / _STEPS
        lines = exact.square.centre_lines
        nodes, back = np.unique(lines, axis=0, return_inverse=True)
        first = np.unique(back, return_index=True)[1]
        steps = np.arange(_STEPS + 1)
        octant = np.array([(y, x) for y in steps for x in steps if y <= x])
        planes = self._planes(octant, exact, steepest)
        parts = [
            exact.derivative(portion, {})[..., first].cpu() for portion in planes.split(_BATCH)
        ]
        responses = torch.cat(parts).numpy()
        side, m = 2 * _STEPS + 1, exact.square.cells
        table = np.empty((side, side, *responses.shape[1:]), dtype=responses.dtype)
        matrices = SquareSymmetry(4 * m).matrices.long().numpy()
        hats = images(exact.square.perimeter[:: m // 2], m)
        for matrix, hat, line in zip(matrices, hats, images(nodes, m), strict=True):
            y, x = (_STEPS + octant @ matrix.T).T[..., None, None]
            table[y, x, hat[:, None], line] = responses
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
        _mix(self._table, at, weights, out)


class ConstantResponses:
    """Looks responses up by the reaction, the derivative by a value that is the same everywhere, up to the largest."""

    def __init__(self, exact: NewtonPlan, largest: float):
        self._newton, self._numbers = exact.newton, exact.numbers
        values = torch.linspace(0.0, largest, _CONSTANTS, dtype=torch.float64, device=exact.device)
        reactions = self._newton.reaction(values, self._numbers)
        self._reactions, order = reactions.float().sort()
        side = exact.square.cells + 1
        squares = values[order, None, None].expand(-1, side, side)
        parts = [exact.derivative(portion, exact.numbers) for portion in squares.split(_BATCH)]
        self._table = torch.cat(parts).flatten(1)

    def write(self, g: torch.Tensor, out: torch.Tensor) -> None:
        """Write the responses ``(B, 8, L)`` for perimeters ``(B, P)``."""
        reaction = self._newton.reaction(g, self._numbers).mean(dim=1).to(self._reactions)
        low = (torch.searchsorted(self._reactions, reaction) - 1).clamp(0, _CONSTANTS - 2)
        left, right = self._reactions[low], self._reactions[low + 1]
        share = ((reaction - left) / (right - left).clamp(min=1e-300)).nan_to_num().clamp(0.0, 1.0)
        _mix(self._table, torch.stack([low, low + 1], 1), torch.stack([1 - share, share], 1), out)


def _mix(table: torch.Tensor, at: torch.Tensor, weights: torch.Tensor, out: torch.Tensor) -> None:
    """Write weighted sums of entries of a table."""
    mixed = torch.nn.functional.embedding_bag(
        at, table, mode="sum", per_sample_weights=weights.to(table)
    )
    out.copy_(mixed.view(out.shape))


def _share(slope: float) -> float:
    return slope / math.sqrt(1.0 + slope**2)
