"""Conditions on a side of the domain, and how their values are given.

Values are a number, a function ``f(x, y)`` of arrays of coordinates, the text of an expression in
``x`` and ``y``, or an array of the side's nodes ``(N + 1,)``, from left to right or from bottom to
top, of several problems ``(n, N + 1)``; or of several problems a list of functions and texts, one of
each, which serves outlines, too. `Scattered` has values at points along an outline.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.spatial import cKDTree

from mosaicdd.problems.fields.given import is_number, same_values, usable
from mosaicdd.settings import unknown

Values = float | str | Callable | Any


class BoundaryCondition:
    """A boundary condition; conditions with equal values, arrays by content, are equal."""

    fixed: ClassVar[bool] = False
    """Whether it prescribes ``u``."""
    natural: ClassVar[bool] = False
    """Whether it prescribes the flux alone."""
    exchanges: ClassVar[bool] = False
    """Whether the flux depends on ``u``."""
    periodic: ClassVar[bool] = False
    inside: ClassVar[bool] = False
    """Whether it prescribes values inside of the domain."""

    values: Values

    def __post_init__(self) -> None:
        whose = {"alpha": "alpha of a Robin condition"}
        for name, values in vars(self).items():
            what = whose.get(name, f"what {type(self).__name__} is given")
            object.__setattr__(self, name, usable(values, what))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and same_values(vars(self), vars(other))

    def __hash__(self) -> int:
        return hash(type(self))

    @property
    def exchange(self) -> Values:
        """The coefficient of ``u`` in the flux, as it was given; 0 without an exchange."""
        return vars(self).get("alpha", 0.0)


@dataclass(frozen=True, eq=False)
class Dirichlet(BoundaryCondition):
    """``u = values``."""

    fixed: ClassVar[bool] = True
    values: Values = 0.0


@dataclass(frozen=True, eq=False)
class Neumann(BoundaryCondition):
    """``a du/dn = values``, outward."""

    natural: ClassVar[bool] = True
    values: Values = 0.0


@dataclass(frozen=True, eq=False)
class Robin(BoundaryCondition):
    """``a du/dn + alpha u = values``, outward, with one ``alpha >= 0`` for all problems."""

    exchanges: ClassVar[bool] = True
    alpha: Values
    values: Values = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        alpha: Any = self.alpha
        if is_number(alpha) and not 0 <= alpha < math.inf:
            raise ValueError(f"alpha of a Robin condition must be >= 0, got {alpha!r}")


@dataclass(frozen=True, eq=False)
class Periodic(BoundaryCondition):
    """``u`` at the high side is ``u`` at the low side plus ``jump``.

    It is given for both sides. A jump over the length of the domain is a mean gradient that is imposed. `ValueError` if it is not finite.
    """

    periodic: ClassVar[bool] = True
    jump: float = 0.0

    def __post_init__(self) -> None:
        if not (is_number(self.jump) and math.isfinite(self.jump)):
            raise ValueError(f"the jump of periodic sides must be a number, got {self.jump!r}")
        object.__setattr__(self, "jump", float(self.jump))

    @property
    def values(self) -> float:  # type: ignore[override]
        """The jump of the solution."""
        return self.jump


Condition = Dirichlet | Neumann | Robin | Periodic


def condition_of_spec(text: str) -> Condition:
    """Read a condition: ``dirichlet:SPEC``, ``neumann:SPEC``, ``robin:ALPHA,SPEC``, ``periodic`` or ``periodic:JUMP``.

    A SPEC, and ALPHA, is a number, ``expr:...`` in x and y, or the name of a file, which stays a text.

    `ValueError` if the text is none of these.
    """
    kind, _, spec = text.partition(":")
    alpha, _, rest = split_at_comma(spec)
    make: dict[str, Callable[[], Condition]] = {
        "dirichlet": lambda: Dirichlet(values_of_spec(spec)),
        "neumann": lambda: Neumann(values_of_spec(spec)),
        "robin": lambda: Robin(values_of_spec(alpha), values_of_spec(rest)),
        "periodic": lambda: Periodic(float(spec or 0.0)),
    }
    if kind not in make:
        raise ValueError(unknown("condition", kind, make, "; as in dirichlet:0"))
    try:
        return make[kind]()
    except ValueError:
        needs = "needs ALPHA >= 0, a comma, and then a" if kind == "robin" else "needs a"
        form = f"{needs} number, expr:... or a file"
        if kind == "periodic":
            form = "takes nothing, or a number to jump by"
        raise ValueError(f"{kind} {form}, got {spec!r}") from None


def split_at_comma(spec: str) -> tuple[str, str, str]:
    """Split a text at its first comma outside of brackets."""
    depth = 0
    for place, letter in enumerate(spec):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            return spec[:place], letter, spec[place + 1 :]
    return spec, "", ""


def is_file(spec: Values) -> bool:
    """Say whether the values of a parsed condition name a file."""
    if not isinstance(spec, str) or spec.startswith("expr:"):
        return False
    return spec.endswith((".npy", ".txt", ".csv")) or ":/" in spec


def values_of_spec(spec: str) -> float | str:
    """Parse a number, ``expr:...`` or the name of a file, which stays a text; else `ValueError`."""
    if spec.startswith("expr:") or is_file(spec):
        return spec
    try:
        number = float(spec)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"values are a number, expr:... or a file, got {spec!r}")
    return number


class Scattered:
    """A function of coordinates from values at points: linear between the two that are nearest.

    At one of the points it is the value there.

    `ValueError` if there is no point, or there are not as many values.

    Parameters
    ----------
    points
        ``(N, 2)``, (x, y), in units of domain length.
    values
        ``(N,)``.
    """

    def __init__(self, points: np.ndarray, values: np.ndarray, name: str = "points"):
        if points.ndim != 2 or points.shape[1] != 2 or not len(points) == len(values) > 0:
            raise ValueError(
                f"{name}: rows x, y and a value for each are needed, got points of the shape "
                f"{points.shape} and {len(values)} values"
            )
        self.points, self.values = points, values
        self._name = name
        self._tree = cKDTree(points)

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the values at coordinates."""
        places = np.stack(np.broadcast_arrays(x, y), axis=-1)
        distances, nearest = self._tree.query(places, k=[1, min(2, len(self.points))])
        first, other = self.points[nearest[..., 0]], self.points[nearest[..., 1]]
        along = other - first
        length = np.maximum((along**2).sum(-1), 1e-300)
        t = (((places - first) * along).sum(-1) / length).clip(0.0, 1.0)
        t = np.where(distances[..., 0] == 0, 0.0, t)
        low, high = self.values[nearest[..., 0]], self.values[nearest[..., 1]]
        return (1 - t) * low + t * high

    def require_near(self, distance: float, nearest: np.ndarray) -> None:
        """Raise `ValueError` for a point farther than a distance from an outline's places ``(M, 2)``."""
        far, _ = cKDTree(nearest).query(self.points)
        if (far > distance).any():
            at = int(far.argmax())
            x, y = self.points[at]
            raise ValueError(
                f"{self._name}: {int((far > distance).sum())} of {len(far)} points are off the outline "
                f"by more than {distance:g}, two cells; the farthest is ({x:.10g}, {y:.10g}), off by "
                f"{far[at]:g}"
            )

    def __str__(self) -> str:
        return self._name
