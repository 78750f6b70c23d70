"""Diffusion that is stronger in one direction than in the other, the same everywhere."""

import math

import numpy as np

from mosaicdd.problems.equations.equation import Equation
from mosaicdd.problems.operators.elliptic import EllipticOperator

_RATIO = 100.0  # largest ratio of the tensor's eigenvalues of the family


def tensor(ratio: float, angle: float) -> dict[str, float]:
    """Return the fields of a tensor by its eigenvalues' ratio and its strong axis.

    Parameters
    ----------
    ratio
        Of the eigenvalues, whose product is 1.
    angle
        Of the axis of the larger one against x, in radians.
    """
    strong, weak = math.sqrt(ratio), 1 / math.sqrt(ratio)
    c, s = math.cos(angle), math.sin(angle)
    return {
        "axx": strong * c * c + weak * s * s,
        "ayy": strong * s * s + weak * c * c,
        "axy": (strong - weak) * c * s,
    }


def _draw(rng: np.random.Generator) -> dict[str, float]:
    """Draw the ratio uniform in its logarithm, at any angle."""
    return tensor(_RATIO ** rng.uniform(), rng.uniform(0.0, math.pi))


ANISOTROPIC_DIFFUSION = Equation(
    name="anisotropic-diffusion",
    text="-div(T grad u) = f, T = [[axx, axy], [axy, ayy]]",
    operator=EllipticOperator,
    parameters={"axx": 1.0, "ayy": 1.0, "axy": 0.0},
    draw=_draw,
)
