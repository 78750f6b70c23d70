"""The coarse equation of a network's conductances, and its gradient.

That comes of one adjoint solve with the same factor:

    ``A u = b``,   ``A l = dL/du``,   ``dL/dk_e = - (l_i - l_j) (u_i - u_j)`` for the edge ``e`` between ``i, j``.

Shape letters: ``B`` media, ``q`` problems, ``N`` coarse nodes, ``e`` coarse edges.
"""

import math
from typing import Any

import torch

from mosaicdd.local_solvers.networks.conductances import ACROSS, ConductanceNetwork
from mosaicdd.local_solvers.upscaling import MARGIN, RATIO


class CoarseSolve(torch.autograd.Function):
    """Solutions of networks of conductances on a square, inner nodes given the outer ones.

    ``CoarseSolve.apply(k, ends, u, b)``: conductances ``(B, e)``, the edges' nodes ``(2, e)``, values ``(B, q,
    N)``, of which those on the edge of the square count, and right-hand sides ``(B, q, N)``.
    """

    @staticmethod
    def forward(
        ctx: Any, k: torch.Tensor, ends: torch.Tensor, u: torch.Tensor, b: torch.Tensor
    ) -> torch.Tensor:
        """Return ``u`` at all nodes."""
        count = u.shape[2]
        inner, outer = inner_nodes(count)
        (i, j), a = ends, k.new_zeros(len(k), count * count)
        for places, sign in ((i * count + j, -1), (j * count + i, -1), (i * count + i, 1)):
            a.index_add_(1, places, k, alpha=sign)
        a = a.index_add_(1, j * count + j, k).view(-1, count, count)
        factor, failed = torch.linalg.cholesky_ex(a[:, inner[:, None], inner])
        # A loss that is not finite ends a training on all ranks; an error here would, on this one alone.
        factor[failed != 0] = math.nan
        right = b[:, :, inner].mT - a[:, inner[:, None], outer] @ u[:, :, outer].mT
        u = u.clone()
        u[:, :, inner] = torch.cholesky_solve(right, factor).mT
        ctx.save_for_backward(factor, ends, u)
        return u

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient of the conductances."""
        factor, (i, j), u = ctx.saved_tensors
        inner, _ = inner_nodes(u.shape[2])
        adjoint = torch.zeros_like(u)
        adjoint[:, :, inner] = torch.cholesky_solve(gradient[:, :, inner].mT, factor).mT
        along = (adjoint[:, :, i] - adjoint[:, :, j]) * (u[:, :, i] - u[:, :, j])
        return -along.sum(dim=1), None, None, None


def inner_nodes(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the nodes inside a square of so many nodes, and those on its edge."""
    side = math.isqrt(count)
    inside = torch.zeros(side, side, dtype=torch.bool)
    inside[1:-1, 1:-1] = True
    flat = inside.flatten()
    return flat.nonzero()[:, 0], (~flat).nonzero()[:, 0]


def coarse_conductances(
    network: ConductanceNetwork | None, logarithm: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logarithms of coarse conductances ``(B, e)``, and the nodes of the edges ``(2, e)``.

    The same as `LearnedRule`, of averages alone without a network, and so that gradients pass.

    Parameters
    ----------
    logarithm
        Of the coefficient at fine nodes, two margins around the coarse nodes, ``(B, ., .)``.
    """
    cut = logarithm[:, MARGIN:-MARGIN, MARGIN:-MARGIN]
    right, up = series_mean(cut, 2), series_mean(cut, 1)
    inner = slice(MARGIN, -MARGIN)
    flat = _averaged(right[:, 1:-1, inner])
    steep = _averaged(up[:, inner, 1:-1].mT).mT
    nodes = torch.arange(flat.shape[1] * steep.shape[2], device=flat.device)
    nodes = nodes.view(flat.shape[1], steep.shape[2])
    ends = [(nodes[:, :-1], nodes[:, 1:]), (nodes[:-1], nodes[1:])]
    values = [flat, steep]
    if network is not None:
        along, beside, across = network(right, up)
        around = (flat[:, :-1] + flat[:, 1:] + steep[:, :, :-1] + steep[:, :, 1:]) / 4
        rising, falling = (math.log(ACROSS) + around[:, None] + across).unbind(1)
        rest = math.log(1.0 - 2 * ACROSS)
        values = [flat + along + rest, steep + beside + rest, rising, falling]
        ends += [(nodes[:-1, :-1], nodes[1:, 1:]), (nodes[1:, :-1], nodes[:-1, 1:])]
    pairs = torch.cat([torch.stack(pair).flatten(1) for pair in ends], dim=1)
    return torch.cat([part.flatten(1) for part in values], dim=1), pairs


def series_mean(values: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the logarithm of the harmonic mean of neighbours."""
    count = values.shape[axis]
    low, high = values.narrow(axis, 0, count - 1), values.narrow(axis, 1, count - 1)
    return math.log(2.0) - torch.logaddexp(-low, -high)


def _averaged(right: torch.Tensor) -> torch.Tensor:
    """As `upscaling.averaged`, of logarithms."""
    for _ in range(round(math.log2(RATIO))):
        series = math.log(2.0) - torch.logaddexp(-right[:, :, 0::2], -right[:, :, 1::2])
        parts = (series[:, :-2:2], series[:, 1:-1:2] + math.log(2.0), series[:, 2::2])
        right = torch.logsumexp(torch.stack(parts), dim=0) - math.log(4.0)
    return right
