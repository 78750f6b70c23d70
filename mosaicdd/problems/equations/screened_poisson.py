"""The screened Poisson (modified Helmholtz, linear Poisson-Boltzmann, reaction-diffusion) equation."""

import numpy as np

from mosaicdd.problems.equations.equation import Equation
from mosaicdd.problems.operators.elliptic import EllipticOperator

_LARGEST = 100.0  # c of the family, in 1 / squared domain length: fades within 1/5 of a subdomain


def _operator(c: float) -> EllipticOperator:
    if not c >= 0:
        raise ValueError(f"screened-poisson needs c >= 0, got {c:g}; below it describes waves")
    return EllipticOperator(c=c)


def _draw(rng: np.random.Generator) -> dict[str, float]:
    """Draw ``c`` dense towards 0, where solutions change the most with it."""
    return {"c": _LARGEST * rng.uniform() ** 2}


SCREENED_POISSON = Equation(
    name="screened-poisson",
    text="-lap u + c u = f",
    operator=_operator,
    parameters={"c": 1.0},
    draw=_draw,
)
