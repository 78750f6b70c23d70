"""What holds on a side of the domain.

Values are a number, a function ``f(x, y)`` of arrays of coordinates, the text of an expression in
``x`` and ``y``, or an array of the side's nodes ``(N + 1,)``, from left to right or from bottom to
top, of several problems ``(n, N + 1)``.
"""

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
