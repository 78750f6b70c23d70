"""What a velocity makes of the conductances between nodes, in torch: its mean of both ends' equations, and that one's derivatives.

With Bernoulli's function ``B`` (see `fitted`) these equations have ``k B(t)`` and ``k (B(t) + t)``, so their difference is the velocity itself,
and only the mean is to be differentiated. Of that ``B' = B (1 - B) / t - B``, which leaves ``B (B + t)`` by ``k``.
"""

from typing import Any

import torch

from mosaicdd.problems.operators.edge_means import SMALL, bernoulli


def fitted_mean(k: torch.Tensor, half: torch.Tensor) -> torch.Tensor:
    """Return the means of what edges' conductances ``k`` are in the equations of both their nodes.

    ``half``: of the velocity times the spacing.
    """
    mean: torch.Tensor = _FittedMean.apply(k, half)
    return mean


class _FittedMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, k: torch.Tensor, half: torch.Tensor) -> torch.Tensor:
        t = 2 * half.abs() / k
        ctx.save_for_backward(k, half)
        ctx.kept = t, bernoulli(t, torch)
        return k * (ctx.kept[1] + t / 2)

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        k, half = ctx.saved_tensors
        t, b = ctx.kept
        if torch.is_grad_enabled():
            t = 2 * half.abs() / k
            b = bernoulli(t, torch)
        by_k = slope * b * (b + t) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return by_k, None
        far = half.sign() * (2 * b * (1 - b) / t.clip(SMALL) - 2 * b + 1)
        return by_k, slope * torch.where(t < SMALL, 2 * half / (3 * k), far)
