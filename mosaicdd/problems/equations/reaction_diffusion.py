"""Diffusion with a reaction that depends on the concentration, as growth up to a capacity does.

For instance ``r = u**2 - u`` (Fisher, 1937; Kolmogorov, Petrovsky, Piskunov, 1937), ``r = u**3 - u`` (Allen, Cahn).
In time the steps must be so short that one over the step exceeds what ``r`` falls with ``u``.
"""

import torch

from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.operators.nonlinear import Function
from mosaicdd.problems.operators.patch import Patch


def _residual(u: Patch, h: float, a: Patch, c: Patch, r: Function) -> torch.Tensor:
    outflow = sum(
        2.0 / (1.0 / a.centre + 1.0 / beside) * (u.centre - value)
        for beside, value in zip(a.neighbours, u.neighbours, strict=True)
    )
    return outflow / h**2 + c.centre * u.centre + r(u.centre)


REACTION_DIFFUSION = NonlinearEquation(
    name="reaction-diffusion",
    text="-div(a grad u) + r(u) + c u = f",
    residual=_residual,
    parameters={"a": 1.0, "c": 0.0},
    functions={"r": "u**3"},
    signs={"a": True, "c": False},
    reaction="c",
)
