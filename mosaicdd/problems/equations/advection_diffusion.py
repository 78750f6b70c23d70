"""Diffusion in a flow; coefficients and velocity are fields, or numbers."""

import math

import numpy as np

from mosaicdd.problems.equations.equation import Equation
from mosaicdd.problems.operators.elliptic import EllipticOperator

_VELOCITY = 128.0  # largest of the family: a cell Peclet number of 2 at a spacing of 1/64


def _draw(rng: np.random.Generator) -> dict[str, float]:
    """Draw the velocity's size dense towards 0, in any direction."""
    size, angle = _VELOCITY * rng.uniform() ** 1.5, rng.uniform(0.0, 2 * math.pi)
    return {"bx": size * math.cos(angle), "by": size * math.sin(angle)}


def _operator(bx: float, by: float, a: float, c: float) -> EllipticOperator:
    if not (a > 0 and c >= 0):
        raise ValueError(f"advection-diffusion needs a > 0 and c >= 0, got a {a:g}, c {c:g}")
    return EllipticOperator(ayy=a, axx=a, by=by, bx=bx, c=c)


ADVECTION_DIFFUSION = Equation(
    name="advection-diffusion",
    text="-div(a grad u) + b . grad u + c u = f, b = (bx, by)",
    operator=_operator,
    parameters={"bx": 0.0, "by": 0.0, "a": 1.0, "c": 0.0},
    varying=("bx", "by", "a", "c"),
    draw=_draw,
    reaction="c",
)
