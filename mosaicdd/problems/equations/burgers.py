"""Burgers' equation in two dimensions: a quantity that flows diagonally, as fast as there is of it, and diffuses.

The flux from a node to the next along an axis is ``(u^2 / 2)`` of both, in the mean, less the diffusion between
them, which is fitted exponentially to the faster of the two (Il'in, 1969): of second order where cells are small,
upwind where they are not, so a neighbour never counts with the wrong sign. On a natural side ``nu du/dn`` is given.
"""

import torch

from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.operators.patch import Patch

_SERIES = 1e-3  # below which ``z coth z`` is ``1 + z^2 / 3``, to rounding


def _residual(u: Patch, h: float, nu: Patch, c: Patch) -> torch.Tensor:
    outflow = c.centre * u.centre
    for value, beside, sign in zip(u.neighbours, nu.neighbours, (1, -1, -1, 1), strict=True):
        diffusion = 2.0 / (1.0 / nu.centre + 1.0 / beside)
        fastest = torch.maximum(u.centre**2, value**2)
        squared = fastest * (h / (2.0 * diffusion)) ** 2
        outflow = outflow + sign * (value**2 - u.centre**2) / (4.0 * h)
        outflow = outflow + diffusion * _fitted(squared) * (u.centre - value) / h**2
    return outflow


def _fitted(squared: torch.Tensor) -> torch.Tensor:
    """Return ``z coth z`` of squares of half the cell Peclet number."""
    small = squared < _SERIES**2
    z = torch.where(small, torch.ones_like(squared), squared).sqrt()
    return torch.where(small, 1.0 + squared / 3.0, z / torch.tanh(z))


BURGERS = NonlinearEquation(
    name="burgers",
    text="-div(nu grad u) + u (du/dx + du/dy) + c u = f",
    residual=_residual,
    parameters={"nu": 0.05, "c": 0.0},
    signs={"nu": True, "c": False},
    self_adjoint=False,
    reaction="c",
)
