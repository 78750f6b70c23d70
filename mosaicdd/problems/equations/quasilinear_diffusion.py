"""Diffusion whose coefficient depends on the solution: heat with a conductivity of the temperature.

Between two nodes flows the difference of their values times the harmonic mean of ``a`` and the mean of ``k``
over the values between theirs by Simpson's rule, so that of a cubic ``k`` Kirchhoff's transform is reproduced
exactly, however steep the solution is; by the mean of both ends it was met with first order there.
"""

import torch

from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.operators.nonlinear import Function
from mosaicdd.problems.operators.patch import Patch


def _residual(u: Patch, h: float, a: Patch, c: Patch, k: Function) -> torch.Tensor:
    here, inverse = k(u.centre), 1.0 / a.centre
    outflow = sum(
        (here + 4.0 * k((u.centre + value) / 2.0) + k(value))
        * (u.centre - value)
        / (inverse + 1.0 / beside)
        for beside, value in zip(a.neighbours, u.neighbours, strict=True)
    )
    return outflow / (3.0 * h**2) + c.centre * u.centre


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
