"""Diffusion in a medium: coefficients that are fields, or numbers."""

from mosaicdd.problems.elliptic import EllipticOperator
from mosaicdd.problems.equations.equation import Equation


def _operator(a: float, c: float) -> EllipticOperator:
    if not (a > 0 and c >= 0):
        raise ValueError(f"diffusion needs a > 0 and c >= 0, got a {a:g}, c {c:g}")
    return EllipticOperator(ayy=a, axx=a, c=c)


DIFFUSION = Equation(
    name="diffusion",
    text="-div(a grad u) + c u = f",
    operator=_operator,
    parameters={"a": 1.0, "c": 0.0},
    varying=("a", "c"),
)
