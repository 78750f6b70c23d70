"""The p-Laplacian: power-law fluids, glaciers, nonlinear diffusion; regularised by ``eps``.

The discrete solution has the least energy, which over a cell is the mean over its corners of
``h^2 a / p (eps^2 + |grad u|^2)^(p / 2)``, less ``f u``; see `mosaicdd.problems.operators.gradient_flux`.
"""

import torch

from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.operators.gradient_flux import outflow
from mosaicdd.problems.operators.patch import Patch


def _residual(u: Patch, h: float, a: Patch, p: float, eps: float) -> torch.Tensor:
    return outflow(u, h, lambda squared: (eps**2 + squared) ** ((p - 2.0) / 2.0), a)


P_LAPLACE = NonlinearEquation(
    name="p-laplace",
    text="-div(a (eps^2 + |grad u|^2)^((p - 2) / 2) grad u) = f",
    residual=_residual,
    parameters={"a": 1.0, "p": 3.0, "eps": 1e-3},
    signs={"a": True, "eps": True},
    numbers={"p": 1.0, "eps": 0.0},
)
