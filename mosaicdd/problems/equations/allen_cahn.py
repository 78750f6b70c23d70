"""An implicit step of the Allen-Cahn equation, which moves the boundaries between two phases.

``u_t = div(eps^2 grad u) + u - u^3`` by Euler's method in steps of ``dt``: with ``c = 1 / dt``, and ``f`` the last
values times ``c``.
"""

import torch

from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.operators.patch import Patch


def _residual(u: Patch, h: float, eps: Patch, c: Patch) -> torch.Tensor:
    outflow = sum(
        (eps.centre**2 + beside**2) / 2.0 * (u.centre - value)
        for beside, value in zip(eps.neighbours, u.neighbours, strict=True)
    )
    return (c.centre - 1.0) * u.centre + u.centre**3 + outflow / h**2


ALLEN_CAHN = NonlinearEquation(
    name="allen-cahn",
    text="-div(eps^2 grad u) + u^3 - u + c u = f",
    residual=_residual,
    parameters={"eps": 0.1, "c": 10.0},
    signs={"eps": True, "c": True},
    reaction="c",
)
