"""What every equation has, linear or not, and the checks of it."""

from collections.abc import Mapping
from typing import Protocol

from mosaicdd.problems.fields.given import is_number


class Named(Protocol):
    """An equation's members that do not depend on its kind; see `Equation`."""

    @property
    def name(self) -> str:
        """The word that files and command lines use."""

    @property
    def text(self) -> str:
        """The equation as people write it."""

    @property
    def parameters(self) -> Mapping[str, float]:
        """Names of the parameters and their defaults."""

    @property
    def reaction(self) -> str | None:
        """Which of them an implicit step in time adds to."""


def require_members(equation: Named) -> None:
    """Check texts, names of parameters and their defaults.

    Raises
    ------
    TypeError
        If one is of the wrong kind.
    """
    for member in ("name", "text"):
        value = getattr(equation, member)
        if not isinstance(value, str):
            raise TypeError(f"equation {equation.name}: {member} must be a text, got {value!r}")
    if not isinstance(equation.parameters, Mapping):
        raise TypeError(
            f"equation {equation.name}: parameters must map names to numbers, got "
            f"{equation.parameters!r}"
        )
    for name, default in equation.parameters.items():
        if not is_number(default):
            raise TypeError(
                f"equation {equation.name}: the default of {name} must be a number, got {default!r}"
            )
    if "f" in equation.parameters:
        raise TypeError(f"equation {equation.name}: f is the source, not a parameter")
    if equation.reaction is not None and equation.reaction not in equation.parameters:
        raise TypeError(
            f"equation {equation.name}: reaction must name a parameter, got {equation.reaction!r}"
        )
