"""Whether a gradient is that of its function: how fast what is left of Taylor's expansion falls."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from mosaicdd.settings import require_type

# Of what the last term of an expansion adds, and of that of the gradient where another follows: what solves leave.
_EXACT, _BEFORE = 1e-6, 1e-8
_ROUNDING = 1e-15  # of a functional


class TaylorRates(NamedTuple):
    """Orders at which remainders fall with the step, between each two steps.

    Infinite where the expansion is exact to what rounding and solves leave, as that of a linear functional.
    """

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
        If a direction is of another shape, the functional is not one number, or some remainders are at rounding: take a
        longer step.
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
    hessian_action = torch.zeros(())
    if hessian and along.requires_grad:
        (curvature,) = torch.autograd.grad(along, at, materialize_grads=True)
        hessian_action = (curvature * direction).sum()
    first, second, noise = [], [], []
    with torch.no_grad():
        for k in range(halvings + 1):
            t = step / 2**k
            left = functional(at + t * direction) - value - t * along
            first.append(float(left.abs()))
            second.append(float((left - t**2 / 2 * hessian_action).abs()))
            slope_adds, bend_adds = (
                float((t * along).abs()),
                float((t**2 / 2 * hessian_action).abs()),
            )
            noise.append((_EXACT * slope_adds, _EXACT * bend_adds + _BEFORE * slope_adds))
    of_first, of_second = zip(*noise, strict=True)
    size = abs(float(value.detach()))
    rates = _rates(first, of_first, size, step)
    if not hessian:
        return TaylorRates(rates, ())
    # Where nothing bends, what is left of the second order is that of the first.
    bent = math.isfinite(rates[0]) if rates else True
    return TaylorRates(rates, _rates(second, of_second, size, step) if bent else rates)


def _rates(
    remainders: list[float], noise: Sequence[float], size: float, step: float
) -> tuple[float, ...]:
    """Return the orders of remainders beside what solves leave of each, of a functional of some size."""
    rounding = _ROUNDING * size
    if all(r <= max(least, rounding) for r, least in zip(remainders, noise, strict=True)):
        return (math.inf,) * (len(remainders) - 1)
    if min(remainders) <= rounding:
        raise ValueError(
            f"the remainder {min(remainders):.1e} is rounding of {size:.3g}: take a longer step than {step:g}"
        )
    return tuple(math.log2(a / b) for a, b in itertools.pairwise(remainders))
