"""Surfaces of least area over their boundary, or of given mean curvature: soap films, capillary surfaces.

``f / 2`` is the mean curvature. The discrete surface is the one of least discrete area: the area over a
cell is the mean over its four corners of ``h^2 sqrt(1 + p^2 + q^2)``, with ``p`` and ``q`` the difference
quotients along the two edges of the cell that meet there; see `mosaicdd.problems.operators.gradient_flux`.
"""

import torch

from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.gradient_flux import outflow
from mosaicdd.problems.operators.patch import Patch


def _conductivity(squared: torch.Tensor) -> torch.Tensor:
    return torch.rsqrt(1.0 + squared)


def _residual(u: Patch, h: float) -> torch.Tensor:
    return outflow(u, h, _conductivity)


MINIMAL_SURFACE = NonlinearEquation(
    name="minimal-surface",
    text="-div(grad u / sqrt(1 + |grad u|^2)) = f",
    residual=_residual,
    linear=EllipticOperator,
    steepest=2.0,
    conductivity=_conductivity,
)
