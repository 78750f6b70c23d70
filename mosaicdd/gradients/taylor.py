"""Whether a gradient is that of its function: how fast what is left of Taylor's expansion falls."""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from mosaicdd.settings import require_type


class TaylorRates(NamedTuple):
    """Orders at which remainders fall with the step, between each two steps."""

    first: tuple[float, ...]
    """Of the value with the gradient: 2."""
    second: tuple[float, ...]
    """With the Hessian, too: 3; empty where it was not asked for."""


def taylor_test(
    functional: Callable[[torch.Tensor], torch.Tensor],
    at: torch.Tensor,
    direction: torch.Tensor,
    *,
    step: float = 1e-2,
    halvings: int = 3,
    hessian: bool = False,
) -> TaylorRates:
    """Return the rates at which the remainders of a functional fall.

    Parameters
    ----------
    functional
        From a tensor to a number.
    at, direction
        Where, and along what, of one shape.
    step
        The longest, times ``direction``; it is halved so many times.
    hessian
        Whether second derivatives count, too, by double backward.

    Raises
    ------
    TypeError
        If these are no tensors.
    ValueError
        If a direction is of another shape, the functional is not one number, or remainders are at rounding: take a longer step.
    """
    for name, tensor in (("at", at), ("direction", direction)):
        require_type(name, tensor, torch.Tensor, "a tensor")
    if at.shape != direction.shape:
        raise ValueError(
            f"the direction has the shape {tuple(direction.shape)}, the place {tuple(at.shape)}"
        )
    at = at.detach().clone().requires_grad_()
    value = functional(at)
    if value.ndim:
        raise ValueError(
            f"a functional gives one number, this one gives the shape {tuple(value.shape)}: take its sum, "
            "or the mean of its square"
        )
    (slope,) = torch.autograd.grad(value, at, create_graph=hessian)
    along = (slope * direction).sum()
    bend = torch.zeros(())
    if hessian:
        (curvature,) = torch.autograd.grad(along, at)
        bend = (curvature * direction).sum()
    first, second = [], []
    with torch.no_grad():
        for k in range(halvings + 1):
            t = step / 2**k
            left = functional(at + t * direction) - value - t * along
            first.append(float(left.abs()))
            second.append(float((left - t**2 / 2 * bend).abs()))
    size = abs(float(value.detach()))
    rounding = 1e-15 * size
    if min(first) <= rounding:
        raise ValueError(
            f"the remainder {min(first):.1e} is rounding of {size:.3g}: take a longer step than {step:g}, "
            "or a functional that is not linear"
        )
    return TaylorRates(_rates(first), _rates(second) if hessian else ())


def _rates(remainders: list[float]) -> tuple[float, ...]:
    return tuple(math.log2(a / b) for a, b in itertools.pairwise(remainders))
