"""Diffusion in a constant flow."""

import math

import numpy as np

from mosaicdd.problems.elliptic import EllipticOperator
from mosaicdd.problems.equations.equation import Equation

_VELOCITY = 128.0  # largest of the family: a cell Peclet number of 2 at a spacing of 1/64


def _draw(rng: np.random.Generator) -> dict[str, float]:
    """Draw the velocity's size dense towards 0, in any direction."""
    size, angle = _VELOCITY * rng.uniform() ** 1.5, rng.uniform(0.0, 2 * math.pi)
    return {"bx": size * math.cos(angle), "by": size * math.sin(angle)}


ADVECTION_DIFFUSION = Equation(
    name="advection-diffusion",
    text="-lap u + b . grad u = f, b = (bx, by)",
    operator=EllipticOperator,
    parameters={"bx": 0.0, "by": 0.0},
    draw=_draw,
)
