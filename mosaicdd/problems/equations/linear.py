"""Linear equations: name, parameters, and the operator for their values.

A file of the user's own has the same form as this one:

```python
from mosaicdd import EllipticOperator, Equation

HELMHOLTZ = Equation(
    name="helmholtz",
    text="-lap u - k^2 u = f",
    parameters={"k": 1.0},
    operator=lambda k: EllipticOperator(c=-(k**2)),
)
```
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from mosaicdd.problems.fields.given import is_number
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.operators.tensors import is_definite, not_definite, spelled_tensor
from mosaicdd.settings import meant


class NamedEquation:
    """The common members of linear and nonlinear equations; see `Equation`."""

    name: str
    text: str
    parameters: Mapping[str, float]
    reaction: str | None

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that a problem may give."""
        raise NotImplementedError

    def on(self, axes: int) -> Self:
        """Return the equation of domains of so many axes."""
        return self

    def _require_members(self) -> None:
        """Raise `TypeError` where a text, a parameter or a default is of the wrong kind."""
        parameters, reaction = self.parameters, self.reaction
        for member in ("name", "text"):
            value = getattr(self, member)
            self._require(isinstance(value, str), f"{member} must be a text, got {value!r}")
        named = isinstance(parameters, Mapping)
        self._require(named, f"parameters must map names to numbers, got {parameters!r}")
        for name, default in parameters.items():
            valid = is_number(default)
            self._require(valid, f"the default of {name} must be a number, got {default!r}")
        self._require("f" not in parameters, "f is the source, not a parameter")
        valid = reaction is None or reaction in parameters
        self._require(valid, f"reaction must name a parameter, got {reaction!r}")

    def _require(self, holds: bool, text: str) -> None:
        """Raise `TypeError` if something does not hold."""
        if not holds:
            raise TypeError(f"equation {self.name}: {text}")

    def _require_parameter(self, name: str) -> None:
        """Raise `ValueError` for an unknown parameter."""
        if name not in self.fields or name == "f":
            raise ValueError(
                f"{self.name} has no field {name!r}{meant(name, self.fields)}; it has: "
                f"{', '.join(self.fields) or 'none'}"
            )


@dataclass(frozen=True)
class Equation(NamedEquation):
    """A linear equation ``A u = f`` with constant coefficients.

    Parameters
    ----------
    name
        The word that files and command lines use.
    text
        The equation as people write it.
    operator
        ``operator(**parameters)``: ``A`` for numbers.
    parameters
        Names of the parameters and their defaults.
    varying
        Which of the parameters may be fields: those of a `Medium`, by its names for them.
    instead
        Parameters that may be given in the place of one, with their defaults, None where one must be given;
        ``operator`` takes them, too.
    source
        Whether there is a right-hand side, the field ``f``.
    draw
        ``draw(rng)``: parameters, as random as the data that a network for the whole family should
        be trained on; None if that is for the defaults alone.
    in_space
        Parameters that there are on boxes, with their defaults, beside those of `instead` if there are any; `on` adds them.
    reaction
        The parameter that multiplies ``u``, if there is one: through it ``du/dt + A u = f`` is solved
        in implicit steps, each a problem with one over the step more. In time it is 0 by default.
    storage
        The parameter that multiplies ``du/dt``, if there is one; it may be a field, too, and is positive.
    steady
        ``A u = f``, where the name stands for the equation in time.
    bilinear
        Whether the discrete equation is that of bilinear elements, of nine points; see `tensors`.

    Raises
    ------
    TypeError
        If a member is of the wrong kind.
    """

    linear: ClassVar[Literal[True]] = True
    functions: ClassVar[Mapping[str, str]] = {}

    name: str
    text: str
    operator: Callable[..., EllipticOperator]
    parameters: Mapping[str, float] = field(default_factory=dict)
    varying: tuple[str, ...] = ()
    instead: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    source: bool = True
    draw: Callable[[np.random.Generator], dict[str, float]] | None = None
    reaction: str | None = None
    storage: str | None = None
    steady: "Equation | None" = None
    bilinear: bool = False
    in_space: Mapping[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._require_members()
        draw, coefficients = self.draw, {*self.varying, *self.parameters} - {self.storage}
        self._require(callable(self.operator), "operator must be a function of its parameters")
        self._check_arguments()
        self._require(draw is None or callable(draw), f"draw must be a function, got {draw!r}")
        self._require(
            not self.varying or coefficients.issubset(Medium.NAMES),
            "where parameters may be fields, all must be those of a medium, "
            f"{', '.join(Medium.NAMES)}, got {', '.join(self.parameters)}",
        )
        made = self.at()
        self._require(
            isinstance(made, EllipticOperator),
            f"operator must give an EllipticOperator, got {type(made).__name__}",
        )

    def on(self, axes: int) -> "Equation":
        """Return the equation of domains of so many axes."""
        if axes == 2 or not self.in_space:
            return self
        instead = {name: {**others, **self.in_space} for name, others in self.instead.items()}
        known = {n: v for n, v in self.in_space.items() if v is not None and not instead}
        return replace(
            self,
            parameters={**self.parameters, **known},
            instead=instead,
            varying=(*self.varying, *self.in_space),
            in_space={},
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the parameters, and of the source if there is one."""
        others = (name for names in self.instead.values() for name in names)
        return (*self.parameters, *others, *(("f",) if self.source else ()))

    def complete(self, field_values: Mapping[str, Any]) -> dict[str, Any]:
        """Complete values of the parameters by defaults.

        Raises
        ------
        ValueError
            If parameters are given beside, or only some of them instead of, one other.
        """
        values = {**self.parameters, **field_values}
        for name, others in self.instead.items():
            chosen = [other for other in others if other in field_values]
            needed = [other for other, default in others.items() if default is None]
            if chosen and (name in field_values or not {*needed} <= {*chosen}):
                got = " and ".join([name] * (name in field_values) + chosen)
                raise ValueError(
                    f"{self.name} takes the field {name}, or {' and '.join(needed)} instead, got {got}"
                )
            if chosen:
                del values[name]
                defaults = {n: v for n, v in others.items() if v is not None}
                values = {**defaults, **values}
        return values

    def at(self, **values: float) -> EllipticOperator:
        """Return the operator for values of the parameters, completed by defaults.

        Raises
        ------
        ValueError
            If a parameter is unknown or not a number, or the values make no elliptic operator.
        """
        for name, value in values.items():
            self._require_parameter(name)
            if not is_number(value):
                raise ValueError(f"the field {name} of {self.name} must be one real number")
        return self.operator(**self.complete(values))

    def drawn(self, rng: np.random.Generator) -> dict[str, float]:
        """Draw parameters of the family, completed by defaults.

        Raises
        ------
        ValueError
            If `draw` fails, or gives no parameters that make an elliptic operator; in one sentence.
        """
        if self.draw is None:
            return {}
        try:
            values = self.draw(rng)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"draw of the equation {self.name} ends in {reason}") from error
        if not isinstance(values, Mapping):
            raise ValueError(  # noqa: TRY004 - of what the user has written, the value is wrong
                f"draw of the equation {self.name} must give parameters by name, as in "
                f"{dict(self.parameters)}, got {values!r}"
            )
        try:
            self.at(**values)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise ValueError(
                f"draw of the equation {self.name} gave {values!r}: {error}"
            ) from error
        return dict(values)

    def _check_arguments(self) -> None:
        """Check that the operator takes the parameters by their names."""
        try:
            signature = inspect.signature(self.operator)
        except ValueError:  # a function of a library that does not say
            return
        try:
            signature.bind(**self.parameters)
        except TypeError as error:
            raise TypeError(
                f"equation {self.name}: operator must take the parameters "
                f"({', '.join(self.parameters)}), it takes {signature}: {error}"
            ) from error


_DIAGONAL = "axx", "ayy", "azz"  # of a tensor

# The families that networks are trained for: the largest c in 1 / squared domain length, which fades within 1/5 of a
# subdomain; ratio of a tensor's eigenvalues; and velocity, a cell Peclet number of 2 at a spacing of 1/64.
_LARGEST_C, _LARGEST_RATIO, _LARGEST_VELOCITY = 100.0, 100.0, 128.0
LAPLACE = Equation(name="laplace", text="lap u = 0", operator=EllipticOperator, source=False)
POISSON = Equation(name="poisson", text="-lap u = f", operator=EllipticOperator)


def _screened(c: float) -> EllipticOperator:
    if not c >= 0:
        raise ValueError(f"screened-poisson needs c >= 0, got {c:g}; below it describes waves")
    return EllipticOperator(c=c)


def _draw_c(rng: np.random.Generator) -> dict[str, float]:
    """Draw ``c`` dense towards 0, where solutions change most."""
    return {"c": _LARGEST_C * rng.uniform() ** 2}


SCREENED_POISSON = Equation(
    name="screened-poisson",
    text="-lap u + c u = f",
    operator=_screened,
    parameters={"c": 1.0},
    varying=("c",),
    draw=_draw_c,
)
"""Modified Helmholtz, linear Poisson-Boltzmann, reaction-diffusion."""


def tensor(ratio: float, angle: float) -> dict[str, float]:
    """Return the fields of a tensor by its eigenvalues' ratio and its strong axis.

    ``ratio``: of the eigenvalues, whose product is 1; ``angle``: of the axis of the larger one against x, in radians.
    """
    strong, weak = math.sqrt(ratio), 1 / math.sqrt(ratio)
    c, s = math.cos(angle), math.sin(angle)
    return {
        "axx": strong * c * c + weak * s * s,
        "ayy": strong * s * s + weak * c * c,
        "axy": (strong - weak) * c * s,
    }


def _draw_tensor(rng: np.random.Generator) -> dict[str, float]:
    """Draw the ratio uniform in its logarithm, at any angle."""
    return tensor(_LARGEST_RATIO ** rng.uniform(), rng.uniform(0.0, math.pi))


def _directed(
    axx: float,
    ayy: float,
    axy: float,
    azz: float | None = None,
    axz: float = 0.0,
    ayz: float = 0.0,
) -> EllipticOperator:
    if azz is not None and not is_definite(tensor := (azz, ayy, axx, ayz, axz, axy)):
        raise ValueError(f"{not_definite(3)}; {spelled_tensor(tensor)}")
    return EllipticOperator(axx=axx, ayy=ayy, axy=axy)


ANISOTROPIC_DIFFUSION = Equation(
    name="anisotropic-diffusion",
    text="-div(T grad u) = f, T = [[axx, axy], [axy, ayy]], in space with azz, axz and ayz",
    operator=_directed,
    parameters={"axx": 1.0, "ayy": 1.0, "axy": 0.0},
    varying=("axx", "ayy", "axy"),
    draw=_draw_tensor,
    in_space={"azz": 1.0, "axz": 0.0, "ayz": 0.0},
)
"""Diffusion that is stronger in one direction than in the other."""


def _flowing(bx: float, by: float, a: float, c: float, bz: float = 0.0) -> EllipticOperator:
    if not (a > 0 and c >= 0):
        raise ValueError(f"advection-diffusion needs a > 0 and c >= 0, got a {a:g}, c {c:g}")
    return EllipticOperator(ayy=a, axx=a, by=by, bx=bx, c=c)


def _draw_velocity(rng: np.random.Generator) -> dict[str, float]:
    """Draw the velocity's size dense towards 0, in any direction."""
    size, angle = _LARGEST_VELOCITY * rng.uniform() ** 1.5, rng.uniform(0.0, 2 * math.pi)
    return {"bx": size * math.cos(angle), "by": size * math.sin(angle)}


ADVECTION_DIFFUSION = Equation(
    name="advection-diffusion",
    text="-div(a grad u) + b . grad u + c u = f, b = (bx, by), in space (bx, by, bz)",
    operator=_flowing,
    parameters={"bx": 0.0, "by": 0.0, "a": 1.0, "c": 0.0},
    varying=("bx", "by", "a", "c"),
    draw=_draw_velocity,
    reaction="c",
    in_space={"bz": 0.0},
)


def _diffusing(c: float, a: float = 1.0, **tensor: float) -> EllipticOperator:
    tensor = {"axx": a, "ayy": a, **tensor}
    along = {name: tensor[name] for name in _DIAGONAL if name in tensor}
    if not (min(along.values()) > 0 and c >= 0):
        numbers = ", ".join(f"{name} {value:g}" for name, value in along.items())
        raise ValueError(f"diffusion needs a > 0 and c >= 0, got {numbers}, c {c:g}")
    if "azz" in tensor:
        return _directed(**{"axy": 0.0, **tensor})
    return EllipticOperator(**tensor, c=c)


DIFFUSION = Equation(
    name="diffusion",
    text="-div(a grad u) + c u = f, a one field or [[axx, axy], [axy, ayy]], in space with azz, axz and ayz",
    operator=_diffusing,
    parameters={"a": 1.0, "c": 0.0},
    varying=("a", "axx", "ayy", "axy", "c"),
    instead={"a": {"axx": None, "ayy": None, "axy": 0.0}},
    reaction="c",
    in_space={"azz": None, "axz": 0.0, "ayz": 0.0},
)

BILINEAR_DIFFUSION = replace(
    DIFFUSION,
    name="bilinear-diffusion",
    text="as diffusion, by bilinear elements",
    bilinear=True,
)
"""The same by another discrete equation: that of most finite element codes, of nine points."""


def _storing(s: float, **others: float) -> EllipticOperator:
    if not s > 0:
        raise ValueError(
            f"heat needs s > 0, got s {s:g}: where nothing is stored take diffusion, which is steady"
        )
    return _diffusing(**others)


HEAT = replace(
    DIFFUSION,
    name="heat",
    text="s du/dt - div(a grad u) + c u = f, a one field or [[axx, axy], [axy, ayy]], in space with azz, axz and ayz",
    operator=_storing,
    parameters={**DIFFUSION.parameters, "s": 1.0},
    varying=(*DIFFUSION.varying, "s"),
    storage="s",
    steady=DIFFUSION,
)
"""Heat in a medium, whose density times heat capacity is ``s``, or anything that diffuses and fades: in time only."""
