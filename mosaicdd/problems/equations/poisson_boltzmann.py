"""The Poisson-Boltzmann equation: a potential in an electrolyte, in units of the thermal voltage.

For small potentials it is the screened Poisson equation of the same ``c``, the inverse squared Debye
length.
"""

import numpy as np
import torch

from mosaicdd.problems.equations.nonlinear_equation import NonlinearEquation
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.patch import Patch


def _residual(u: Patch, h: float, c: Patch) -> torch.Tensor:
    laplacian = (sum(u.neighbours) - 4.0 * u.centre) / h**2
    return c.centre * torch.sinh(u.centre) - laplacian


def _linear(c: float) -> EllipticOperator:
    return EllipticOperator(c=c)


def _draw(rng: np.random.Generator) -> dict[str, float]:
    return {"c": 50.0 * rng.random() ** 2}


POISSON_BOLTZMANN = NonlinearEquation(
    name="poisson-boltzmann",
    text="-lap u + c sinh u = f",
    residual=_residual,
    parameters={"c": 1.0},
    signs={"c": False},
    linear=_linear,
    draw=_draw,
    largest=3.0,
)
