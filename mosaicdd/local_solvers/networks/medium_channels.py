"""What an operator network sees of a medium: its channels, and how rough they are.

Shape letters: ``n`` windows of media, ``R`` and ``C`` rows and columns of coarse cells.
"""

import torch

from mosaicdd.local_solvers.networks.conductances import rms_of_steps
from mosaicdd.local_solvers.subdomain_graphs import CELLS
from mosaicdd.local_solvers.upscaling import RATIO
from mosaicdd.problems.operators.conductances import Conductances

SEEN = 2
"""Coarse cells around a subdomain that its operator is made from."""


def channels_of(medium: Conductances) -> dict[str, torch.Tensor]:
    """Return what is known of a medium, as `OperatorNetwork.encode`, of one window."""
    parts = *medium.along, medium.reaction
    up, right, reaction = (torch.from_numpy(values)[None].float() for values in parts)
    fields = {"x": right.log(), "y": up.log()}
    if medium.reaction.any():
        fields["c"] = relative_reaction(right, up, reaction)
    return fields


def mean_logarithms(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean logarithms of coarse cells, of both axes, ``(n, 2, R - 4, C - 4)``."""
    inner, pool = _inner(), torch.nn.functional.avg_pool2d
    means = (
        pool(x[:, inner, inner], (RATIO + 1, RATIO), RATIO),
        pool(y[:, inner, inner], (RATIO, RATIO + 1), RATIO),
    )
    return torch.stack(means, dim=1)


def _inner() -> slice:
    return slice(RATIO * SEEN, -RATIO * SEEN)


def largest_reaction(c: torch.Tensor) -> torch.Tensor:
    """Return the largest relative reaction in each subdomain, as `roughness`."""
    inner, side = _inner(), RATIO * CELLS
    return torch.nn.functional.max_pool2d(c[:, inner, inner], side + 1, side // 2)


def roughness(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of the steps between neighbours, in each subdomain.

    From logarithms of conductances, as `OperatorNetwork.encode`, to ``(n, rows, columns)``.
    """
    inner, side = _inner(), RATIO * CELLS
    return rms_of_steps(x[:, inner, inner], y[:, inner, inner], side, side // 2)


def scales(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean of the logarithms in each subdomain, as `roughness`."""
    inner, side, half = _inner(), RATIO * CELLS, RATIO * CELLS // 2
    pool = torch.nn.functional.avg_pool2d
    along, across = (
        pool(x[:, inner, inner], (side + 1, side), half),
        pool(y[:, inner, inner], (side, side + 1), half),
    )
    return (along + across) / 2


def relative_reaction(
    right: torch.Tensor, up: torch.Tensor, reaction: torch.Tensor
) -> torch.Tensor:
    """Return a reaction on the coarse grid over the mean of the conductances around each node.

    From `Conductances` of windows of the fine grid, ``(n, rows, columns)`` each.
    """
    pad = torch.nn.functional.pad

    def total(right: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        beside = pad(right, (0, 1)) + pad(right, (1, 0))
        return beside + pad(up, (0, 0, 0, 1)) + pad(up, (0, 0, 1, 0))

    count = total(torch.ones_like(right[:1]), torch.ones_like(up[:1]))
    return RATIO**2 * reaction * count / total(right, up)
