"""What arguments a function of the user takes: coordinates, and the time after them or by its name ``t``.

A parameter with a default, as ``k`` of ``lambda x, y, k=k: k * x``, keeps it, unless it is named ``t``.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from mosaicdd.lattice.axes import coordinates, letters

TIME = "t"
"""The name of the time, in functions as in expressions."""

Takes = Literal["after", "named"]
"""How a function takes the time: as the argument after the coordinates, or by its name."""

_Parameters = Mapping[str, inspect.Parameter]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class OfPlace:
    """A function of coordinates that the package made, whose time is said."""


class AtInstant(OfPlace):
    """A function of coordinates and the time, at one time ``t``."""

    def __init__(self, function: Callable, takes: Takes, t: float):
        self._function, self._takes, self._t = function, takes, t

    def __call__(self, *places: np.ndarray) -> Any:
        """Return its values at coordinates, x first."""
        if self._takes == "after":
            return self._function(*places, self._t)
        return self._function(*places, **{TIME: self._t})


def takes_time(function: Callable, axes: int) -> Takes | None:
    """Say how a function takes the time; None if it is one of the coordinates alone.

    `TypeError` if it takes neither, or nothing says which.
    """
    if isinstance(function, OfPlace):
        return None
    if isinstance(function, np.ufunc):  # whose other parameters are none of the function
        return "after" if function.nin == axes + 1 else None
    signature = signature_of(function)
    if signature is None or _takes_any(signature.parameters):
        return _tried(function, axes)
    parameters = signature.parameters
    positional, required = _positional(parameters), _required(parameters)
    now = parameters.get(TIME)
    names, place = [p.name for p in positional], coordinates(axes)
    both = (
        f"a function of ({place}), or of ({place}, {TIME}), is needed, this one takes {signature}"
    )
    if len(required) > axes + 1:
        raise TypeError(both)
    if TIME in names[:axes]:
        raise TypeError(f"{both}: the time {TIME} comes after the coordinates")
    if len(required) == axes + 1:
        last = names[axes]
        if last in letters(3) or (now is not None and last != TIME):
            raise TypeError(f"{both}: is {last} the time? Name it {TIME}, or give {last} a default")
        return "after"
    if now is None or TIME in _bound(function):
        return None
    return "after" if names[axes : axes + 1] == [TIME] else "named"


def require_coordinates(function: Callable, axes: int, what: str) -> None:
    """Check that no coordinate is taken for a parameter with a default of another name; else raise `TypeError`."""
    if isinstance(function, OfPlace):
        return
    place = coordinates(axes)
    taken = None
    if isinstance(function, np.ufunc):
        signature: Any = inspect.signature(function) if function.nin < axes else None
        taken = "out" if function.nin < axes else None
    elif (signature := signature_of(function)) is not None:
        expected = zip(_positional(signature.parameters), letters(axes)[::-1], strict=False)
        taken = next((p.name for p, name in expected if _optional(p) and p.name != name), None)
    if taken is not None:
        raise TypeError(
            f"{what} must be a function of ({place}), this one takes {signature}: {taken} would be a coordinate; give "
            f"lambda {place}: .. of those that it needs"
        )


def require_of_time(function: Callable, what: str) -> None:
    """Check that a function takes the time alone, whatever its name; else raise `TypeError`."""
    signature = None if isinstance(function, np.ufunc) else signature_of(function)
    if signature is None or _takes_any(signature.parameters):
        return
    required = _required(signature.parameters)
    if len(required) != 1 and not (
        not required and [p.name for p in _positional(signature.parameters)][:1] == [TIME]
    ):
        raise TypeError(
            f"{what} must be a function of the time {TIME} alone, this one takes {signature}: give lambda {TIME}: .."
        )


def signature_of(function: Callable) -> inspect.Signature | None:
    """Return what a function takes; None of one, of a library, that does not say."""
    try:
        return inspect.signature(getattr(function, "pyfunc", function))  # numpy's `vectorize`
    except (ValueError, TypeError):
        return None


def _takes_any(parameters: _Parameters) -> bool:
    return any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values())


def _optional(parameter: inspect.Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty


def _positional(parameters: _Parameters) -> list[inspect.Parameter]:
    return [p for p in parameters.values() if p.kind in _POSITIONAL]


def _required(parameters: _Parameters) -> list[inspect.Parameter]:
    return [p for p in _positional(parameters) if not _optional(p)]


def _bound(function: Callable) -> set[str]:
    """Return the names that partial functions have set."""
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names |= {*function.keywords}
        function = function.func
    return names


def _tried(function: Callable, axes: int) -> Takes | None:
    """Say how a function that takes any number of arguments takes the time, by calls at one point."""
    works = [_works(function, count) for count in (axes, axes + 1)]
    if works[0] != works[1]:
        return "after" if works[1] else None
    place = coordinates(axes)
    raise TypeError(
        f"nothing says whether a function of any number of arguments depends on the time: give lambda {place}: .., or "
        f"lambda {place}, {TIME}: .."
    )


def _works(function: Callable, count: int) -> bool:
    """Say whether a function can be called with so many arguments."""
    with np.errstate(all="ignore"):
        try:
            function(*np.zeros((count, *[1] * count)))
        except Exception:  # noqa: BLE001 - whatever the user's function raises
            return False
    return True
