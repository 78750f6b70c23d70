"""Diffusion whose coefficient depends on the solution: heat with a conductivity of the temperature.

Between two nodes flows the difference of their values times the harmonic mean of ``a`` and the
arithmetic mean of ``k``, so that of a linear ``k`` Kirchhoff's transform is reproduced exactly.
"""

import torch

from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.operators.nonlinear import Function
from mosaicdd.problems.operators.patch import Patch


def _residual(u: Patch, h: float, a: Patch, c: Patch, k: Function) -> torch.Tensor:
    here = k(u.centre)
    outflow = sum(
        2.0 / (1.0 / a.centre + 1.0 / beside) * (here + k(value)) / 2.0 * (u.centre - value)
        for beside, value in zip(a.neighbours, u.neighbours, strict=True)
    )
    return outflow / h**2 + c.centre * u.centre


QUASILINEAR_DIFFUSION = NonlinearEquation(
    name="quasilinear-diffusion",
    text="-div(a k(u) grad u) + c u = f",
    residual=_residual,
    parameters={"a": 1.0, "c": 0.0},
    functions={"k": "1 + u**2"},
    signs={"a": True, "c": False},
    self_adjoint=False,
    reaction="c",
)
