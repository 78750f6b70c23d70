"""Sums over the edges of a grid, of which derivatives alone are wanted, in few passes over the values.

What torch makes of slices has derivatives that are zero almost everywhere, each an array to be filled and added up. Here
both ends of all edges go into one. Derivatives of these are torch's, to any order.
"""

from typing import Any

import torch

from mosaicdd.lattice.axes import ends_of

Step = tuple[int, ...]
Slopes = tuple[torch.Tensor | None, ...]


def flow(
    k: torch.Tensor, u: torch.Tensor, v: torch.Tensor, step: Step, *, way: int = -1
) -> torch.Tensor:
    """Return zero with the derivatives of a sum over edges: of what flows up times what ``v`` rises by.

    Parameters
    ----------
    k
        Conductances of the edges along a step.
    u, v
        At the nodes.
    way
        1 for the sums of ``v`` at both ends instead of the rise.
    """
    total: torch.Tensor = _Flow.apply(k, u, v, step, way)
    return total


def in_series(resistance: torch.Tensor, faces: torch.Tensor, step: Step) -> torch.Tensor:
    """Return the conductances of the edges along a step, of half resistances at nodes and of faces."""
    conductances: torch.Tensor = _InSeries.apply(resistance, faces, step)
    return conductances


def tested(values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the sum of values, or of a number, times weights."""
    if values.ndim:
        return torch.dot(values.reshape(-1), weights.reshape(-1))
    return values * weights.sum()


class _Flow(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, k: torch.Tensor, u: torch.Tensor, v: torch.Tensor, step: Step, way: int
    ) -> torch.Tensor:
        ctx.save_for_backward(k, u, v)
        ctx.how = step, way
        return k.new_zeros(())

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> Slopes:
        k, u, v = ctx.saved_tensors
        step, way = ctx.how
        of_k, of_u, of_v = ctx.needs_input_grad[:3]
        by_k = by_u = by_v = None
        falls, tested_by = _both(u, step, 1, -1), _both(v, step, way, 1)
        if torch.is_grad_enabled():  # then what is made here has derivatives, too
            falls = slope * falls
            by_k = falls * tested_by
            by_u = _spread(slope * k * tested_by, u, step, 1, -1) if of_u else None
            by_v = _spread(k * falls, v, step, way, 1) if of_v else None
            return by_k, by_u, by_v, None, None
        if float(slope) != 1.0:
            falls.mul_(slope)
        if of_v:
            by_v = _spread(k * falls, v, step, way, 1)
        if of_k:
            by_k = falls.mul_(tested_by)
        if of_u:
            tested_by.mul_(k)
            if float(slope) != 1.0:
                tested_by.mul_(slope)
            by_u = _spread(tested_by, u, step, 1, -1)
        return by_k, by_u, by_v, None, None


class _InSeries(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, resistance: torch.Tensor, faces: torch.Tensor, step: Step
    ) -> torch.Tensor:
        of_faces = _both(resistance, step, 1, 1).reciprocal_()
        ctx.save_for_backward(resistance, faces)
        ctx.step, ctx.kept = step, of_faces
        return of_faces * faces

    @staticmethod
    def backward(ctx: Any, slopes: torch.Tensor) -> Slopes:
        resistance, faces = ctx.saved_tensors
        of_faces = ctx.kept
        if torch.is_grad_enabled():
            of_faces = 1.0 / _both(resistance, ctx.step, 1, 1)
        by_sum = slopes * faces * of_faces * of_faces
        return _spread(by_sum, resistance, ctx.step, -1, -1), None, None


def _both(values: torch.Tensor, step: Step, low: int, high: int) -> torch.Tensor:
    """Return of each edge the value at its low end times 1 or -1, and that at its high end, added up."""
    lows, highs = ends_of(step)
    if high == 1:
        return torch.add(values[highs], values[lows], alpha=low)
    return torch.add(values[lows], values[highs], alpha=high)


def _spread(of_edges: torch.Tensor, like: torch.Tensor, step: Step, low: int, high: int) -> torch.Tensor:
    """Return the transposed: at each node those times 1 or -1 that it is the low end of, and the high end, added up."""
    lows, highs = ends_of(step)
    values = torch.zeros_like(like)
    values[lows].add_(of_edges, alpha=low)
    values[highs].add_(of_edges, alpha=high)
    return values
