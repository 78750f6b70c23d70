"""Equations of the package and of users by their names."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

from mosaicdd.problems.equations import linear, nonlinear
from mosaicdd.problems.equations.linear import Equation
from mosaicdd.problems.equations.nonlinear import NonlinearEquation
from mosaicdd.settings import unknown

_SHIPPED: dict[str, Equation | NonlinearEquation] = {
    pde.name: pde
    for module in (linear, nonlinear)
    for pde in vars(module).values()
    if isinstance(pde, Equation | NonlinearEquation)
}
_own: dict[str, Equation | NonlinearEquation] = {}

NONLINEAR = {name: pde for name, pde in _SHIPPED.items() if not pde.linear}
"""The nonlinear equations by name."""

EQUATIONS = {
    name: pde
    for name, pde in _SHIPPED.items()
    if pde.linear and pde.steady is None and not pde.bilinear
}
"""The linear equations that networks are trained for, by name."""


def shipped_equations() -> list[str]:
    """Return the names of the package's equations."""
    return sorted(_SHIPPED)


def equation(name: str) -> Equation:
    """Return the linear equation of a name, of the package or in use.

    `ValueError` if there is no linear equation of this name.
    """
    return _linear(_named(name))


def find_equation(spec: str) -> Equation:
    """Return the linear equation that the user asks for, as `find_any_equation`.

    `ValueError` if there is none, or it is not linear; in one sentence.
    """
    return _linear(find_any_equation(spec))


def find_any_equation(spec: str) -> Equation | NonlinearEquation:
    """Return the equation that the user asks for: a name, ``FILE.py:NAME`` or ``module:NAME``.

    One of the user's own is imported, which runs its file, and is from then on known by its name, to
    datasets and models of it, too.

    `ValueError` if there is none, it cannot be imported, or it lacks something; in one sentence.
    """
    place, colon, member = spec.rpartition(":")
    if not colon:
        return _named(spec)
    try:
        pde = getattr(_module(place), member)
    except SystemExit as error:
        raise ValueError(f"the equation {spec} cannot be imported: {place} calls exit") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"the equation {spec} cannot be imported: {reason}") from error
    if not isinstance(pde, Equation | NonlinearEquation):
        raise ValueError(  # noqa: TRY004 - of what the user has typed, the value is wrong
            f"{spec} is no Equation of mosaicdd.problems.equations, but {type(pde).__name__}"
        )
    return use_equation(pde)


def use_equation(pde: Equation | NonlinearEquation) -> Equation | NonlinearEquation:
    """Register a user's equation by its name.

    Raises
    ------
    TypeError
        If it is no equation.
    ValueError
        If the name is that of an equation of the package.
    """
    if not isinstance(pde, Equation | NonlinearEquation):
        kind = type(pde).__name__
        raise TypeError(f"an equation is a name, or an Equation or NonlinearEquation, got {kind}")
    shipped = _SHIPPED.get(pde.name, pde)
    if shipped is not pde and shipped.on(3) != pde:
        raise ValueError(f"an equation of your own needs a name of its own, {pde.name!r} is taken")
    if pde.name not in _SHIPPED:
        _own[pde.name] = pde
    return pde


def _named(name: str) -> Equation | NonlinearEquation:
    equations = {**_SHIPPED, **_own}
    if name not in equations:
        raise ValueError(unknown("pde", name, sorted(equations), ", or your own as FILE.py:NAME"))
    return equations[name]


def _linear(pde: Equation | NonlinearEquation) -> Equation:
    if pde.steady is not None:
        raise ValueError(
            f"{pde.name} is an equation in time; networks are trained for {pde.steady.name}"
        )
    if not pde.linear:
        raise ValueError(
            f"{pde.name} is not linear; networks are trained for linear equations: "
            f"{', '.join(sorted(EQUATIONS))}"
        )
    return pde


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"there is no file {place}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
