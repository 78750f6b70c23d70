"""What an equation is: its name, its parameters, and the operator for their values.

A file of the user's own has the same form as the package's, `linear`:

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from mosaicdd.problems.fields.given import is_number
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.settings import meant


class NamedEquation:
    """What every equation has, linear or not; see `Equation`."""

    name: str
    text: str
    parameters: Mapping[str, float]
    reaction: str | None

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of all that a problem may give: the parameters, and the source if there is one."""
        raise NotImplementedError

    def on(self, axes: int) -> Self:
        """Return the equation of domains of so many axes."""
        return self

    def _require_members(self) -> None:
        """Check texts, names of parameters and their defaults; raise `TypeError` where one is of the wrong kind."""
        parameters, reaction = self.parameters, self.reaction
        for member in ("name", "text"):
            value = getattr(self, member)
            self._require(isinstance(value, str), f"{member} must be a text, got {value!r}")
        named = isinstance(parameters, Mapping)
        self._require(named, f"parameters must map names to numbers, got {parameters!r}")
        for name, default in parameters.items():
            known = is_number(default)
            self._require(known, f"the default of {name} must be a number, got {default!r}")
        self._require("f" not in parameters, "f is the source, not a parameter")
        known = reaction is None or reaction in parameters
        self._require(known, f"reaction must name a parameter, got {reaction!r}")

    def _require(self, holds: bool, text: str) -> None:
        """Raise `TypeError` if something does not hold."""
        if not holds:
            raise TypeError(f"equation {self.name}: {text}")

    def _require_parameter(self, name: str) -> None:
        """Raise `ValueError` if there is no such parameter."""
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
        """Names of all that a problem may give: the parameters, and the source if there is one."""
        others = (name for names in self.instead.values() for name in names)
        return (*self.parameters, *others, *(("f",) if self.source else ()))

    def complete(self, field_values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values of the parameters with the defaults of those that are not given.

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
        """Return the operator for values of the parameters; those not given have their defaults.

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
        """Draw parameters of the family; those that `draw` does not give have their defaults.

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
