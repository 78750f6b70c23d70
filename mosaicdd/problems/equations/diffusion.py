"""Diffusion in a medium: coefficients that are fields, or numbers."""

from mosaicdd.problems.equations.equation import Equation
from mosaicdd.problems.operators.elliptic import EllipticOperator


def _operator(
    c: float, a: float = 1.0, axx: float | None = None, ayy: float | None = None
) -> EllipticOperator:
    along = {"axx": a if axx is None else axx, "ayy": a if ayy is None else ayy}
    if not (min(along.values()) > 0 and c >= 0):
        raise ValueError(
            f"diffusion needs a > 0 and c >= 0, got axx {along['axx']:g}, ayy {along['ayy']:g}, c {c:g}"
        )
    return EllipticOperator(**along, c=c)


DIFFUSION = Equation(
    name="diffusion",
    text="-div(a grad u) + c u = f, a one field or diag(axx, ayy)",
    operator=_operator,
    parameters={"a": 1.0, "c": 0.0},
    varying=("a", "axx", "ayy", "c"),
    instead={"a": ("axx", "ayy")},
    reaction="c",
)
