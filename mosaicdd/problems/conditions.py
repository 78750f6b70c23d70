"""What holds on a side of the domain.

Values are a number, a function ``f(x, y)`` of arrays of coordinates, the text of an expression in
``x`` and ``y``, or an array of the side's nodes ``(N + 1,)``, from left to right or from bottom to
top, of several problems ``(n, N + 1)``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SIDES = ("left", "right", "bottom", "top")

Values = float | str | Callable | Any


@dataclass(frozen=True)
class Dirichlet:
    """``u = values``."""

    values: Values = 0.0


@dataclass(frozen=True)
class Neumann:
    """``a du/dn = values``, outward."""

    values: Values = 0.0


@dataclass(frozen=True)
class Robin:
    """``a du/dn + alpha u = values``, outward."""

    alpha: float
    values: Values = 0.0


@dataclass(frozen=True)
class Periodic:
    """``u`` goes on at the opposite side; given for both of a pair."""


Condition = Dirichlet | Neumann | Robin | Periodic


def condition_of_spec(text: str) -> Condition:
    """Read a condition: ``dirichlet:SPEC``, ``neumann:SPEC``, ``robin:ALPHA,SPEC`` or ``periodic``.

    A SPEC is a number or ``expr:...`` in x and y.

    Raises
    ------
    ValueError
        If the text is none of these.
    """
    kind, _, spec = text.partition(":")
    alpha, _, rest = spec.partition(",")
    make: dict[str, Callable[[], Condition]] = {
        "dirichlet": lambda: Dirichlet(_values(spec)),
        "neumann": lambda: Neumann(_values(spec)),
        "robin": lambda: Robin(float(alpha), _values(rest)),
        "periodic": Periodic,
    }
    if kind not in make:
        raise ValueError(f"unknown condition {kind!r}; as in dirichlet:0; kinds: {', '.join(make)}")
    try:
        return make[kind]()
    except ValueError:
        raise ValueError(f"{kind} needs a number or expr:..., got {spec!r}") from None


def _values(spec: str) -> float | str:
    if spec.startswith("expr:"):
        return spec
    if not math.isfinite(number := float(spec)):
        raise ValueError("not finite")
    return number
