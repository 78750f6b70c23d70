"""Sums over the edges of a grid, of which derivatives alone are wanted, in few passes over the values.

What torch makes of slices has derivatives that are zero almost everywhere, each an array to be filled and added up. Here
both ends of all edges go into one. Derivatives of these are torch's, to any order.
"""

from collections.abc import Sequence
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


def flow_between_nodes(
    diffusions: Sequence[torch.Tensor],
    faces: Sequence[torch.Tensor],
    u: torch.Tensor,
    v: torch.Tensor,
    steps: Sequence[Step],
) -> torch.Tensor:
    """Return zero with the derivatives of what `flow` adds up along some steps, in a medium that is known at nodes.

    ``diffusions``: for each step; the same tensor where it is the same. ``faces``: of the edges.
    """
    every = list({id(a): a for a in diffusions}.values())
    which = [next(i for i, a in enumerate(every) if a is mine) for mine in diffusions]
    total: torch.Tensor = _FlowBetweenNodes.apply(which, faces, steps, u, v, *every)
    return total


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
        return u.new_zeros(())

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> Slopes:
        k, u, v = ctx.saved_tensors
        step, way = ctx.how
        of_k, of_u, of_v = ctx.needs_input_grad[:3]
        falls, tests = -slope * _both(u, step, -1), _both(v, step, way)
        return (
            falls * tests if of_k else None,
            _spread(-slope * k * tests, step, -1, torch.zeros_like(u)) if of_u else None,
            _spread(k * falls, step, way, torch.zeros_like(v)) if of_v else None,
            None,
            None,
        )


class _FlowBetweenNodes(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        which: Sequence[int],
        faces: Sequence[torch.Tensor],
        steps: Sequence[Step],
        u: torch.Tensor,
        v: torch.Tensor,
        *diffusions: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(u, v, *diffusions)
        ctx.how = which, faces, steps
        return u.new_zeros(())

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> Slopes:
        u, v, *diffusions = ctx.saved_tensors
        of_u, of_v, *of_diffusions = ctx.needs_input_grad[3:]
        by_u, by_v = torch.zeros_like(u) if of_u else None, torch.zeros_like(v) if of_v else None
        halves = [0.5 / a for a in diffusions]
        by_halves = [torch.zeros_like(half) for half in halves]
        for number, face, step in zip(*ctx.how, strict=True):
            of_face = _both(halves[number], step, 1).reciprocal_()
            rises, tests = _both(u, step, -1), _both(v, step, -1)
            if by_v is not None:
                _spread(_times(rises * of_face, face), step, -1, by_v)
            tests = _times(tests, of_face, face)
            if by_u is not None:
                _spread(tests, step, -1, by_u)
            if of_diffusions[number]:
                _spread(_times(rises, tests, of_face), step, 1, by_halves[number])
        return (
            None,
            None,
            None,
            None if by_u is None else _times(by_u, -slope),
            None if by_v is None else _times(by_v, -slope),
            *(
                _times(by_half, half, half, -2 * slope) if of_this else None
                for half, by_half, of_this in zip(halves, by_halves, of_diffusions, strict=True)
            ),
        )


def _times(values: torch.Tensor, *factors: torch.Tensor) -> torch.Tensor:
    """Return the product, in the place of the values where no derivative needs these."""
    for factor in factors:
        values = values * factor if torch.is_grad_enabled() else values.mul_(factor)
    return values


def _both(values: torch.Tensor, step: Step, way: int) -> torch.Tensor:
    """Return of each edge the value at its high end plus, or less, that at its low one."""
    low, high = ends_of(step)
    return torch.add(values[high], values[low], alpha=way)


def _spread(of_edges: torch.Tensor, step: Step, way: int, values: torch.Tensor) -> torch.Tensor:
    """Add the transposed to values at nodes, and return these."""
    low, high = ends_of(step)
    values[high].add_(of_edges)
    values[low].add_(of_edges, alpha=way)
    return values
