"""Types of options that several commands share, and options that are fields of settings."""

import importlib
import itertools
import math
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from mosaicdd.cli.files_of_options import split_at_equals
from mosaicdd.problems.sides.conditions import Condition, condition_of_spec

_NUMBER = re.compile("([0-9]+)(k?)")  # as 96, or 2k, which is 2048
_MOST = 2**26  # cells: up to (2^26 + 1)^2 nodes, numbers that are exact in float64


class TextOption(click.ParamType):
    """What is read from a text of some form; what is read already stays as it is.

    Parameters
    ----------
    name
        The form, as ``NAME=SPEC``.
    read
        Reads it; `ValueError` if it is of another form.
    example
        A text of the form; without one the error itself says what is wrong.
    """

    def __init__(self, name: str, read: Callable[[str], Any], example: str = ""):
        self.name, self._read, self._example = name, read, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        if isinstance(value, tuple):
            return value
        try:
            return self._read(str(value))
        except ValueError as error:
            why = f", as in {self._example}" if self._example else f": {error}"
            self.fail(f"{value!r} is not of the form {self.name}{why}", param, ctx)


def _sizes(text: str) -> tuple[int, ...]:
    parts = [_NUMBER.fullmatch(part) for part in text.lower().split("x")]
    sizes = tuple(int(part[1]) * (1024 if part[2] else 1) for part in reversed(parts) if part)
    if len(parts) not in (2, 3) or len(sizes) < len(parts) or not all(sizes):
        raise ValueError
    if max(sizes) > _MOST:
        raise click.BadParameter(f"{text!r}: at most {_MOST} along an axis")
    return sizes


def _cells(text: str) -> tuple[int, ...]:
    """Read cells of a domain; a number is that of a square."""
    return _sizes(text if "x" in text.lower() else f"{text}x{text}")


def _cube(text: str) -> tuple[int, ...]:
    """Read cells of a subdomain."""
    sizes = _cells(text)
    if len(set(sizes)) > 1:
        raise click.BadParameter(f"{text!r}: a subdomain has as many along each axis")
    return sizes


def _spacing(text: str) -> float | tuple[float, ...]:
    sides = tuple(map(float, text.lower().split("x")))
    return sides[0] if len(sides) == 1 else sides[::-1]


def _place(text: str) -> tuple[float, ...]:
    place = tuple(map(float, text.split(",")))
    if len(place) not in (2, 3):
        raise ValueError
    return place


def _extent(text: str) -> tuple[tuple[float, float], ...]:
    pairs = (map(float, axis.split(":")) for axis in text.split(","))
    ends = [(low, high) for low, high in pairs]
    if len(ends) not in (2, 3) or not all(map(math.isfinite, itertools.chain(*ends))):
        raise ValueError
    return tuple(reversed(ends))


def _plane(text: str) -> tuple[str, float]:
    letter, _, place = text.partition("=")
    return letter, float(place)


def _field(text: str) -> tuple[str, str]:
    name, spec = split_at_equals(text)
    if not (name and spec):
        raise ValueError
    return name, spec


def _side(text: str) -> tuple[str, Condition]:
    side, condition = split_at_equals(text)
    return side, condition_of_spec(condition)


# Of axes in the package's order, ``(ny, nx)``: whole numbers, equal ones, the side or the sides of a cell; a place, x
# first; pairs of ends of a rectangle or a box; then an axis' letter and a place along it, two texts, and a side's name and its condition.
SIZES = TextOption("NXxNY[xNZ]", _sizes, "2048x1024")
CELLS = TextOption("NXxNY[xNZ]", _cells, "2048x1024, or 2k for 2048x2048")
CUBE = TextOption("M|MxM|MxMxM", _cube, "32 or 16x16x16")
SPACING = TextOption("H|DXxDY[xDZ]", _spacing, "0.5 or 25x10")
ORIGIN = TextOption("X,Y[,Z]", _place, "500000,4200000")
EXTENT = TextOption("X0:X1,Y0:Y1[,Z0:Z1]", _extent, "0.5:2,0:1.5")
PLANE = TextOption("AXIS=PLACE", _plane, "z=0.5")
FIELD = TextOption("NAME=SPEC", _field, "c=3.0")
WELL = TextOption("X,Y[,Z]=STRENGTH", _field, "300,450=0.02")
HOLD = TextOption("[NAME:]PLACE=SPEC", _field, "'river: 0,1 2,1.5=3'")
FOIL = TextOption("POINTS=KIND:SPEC", _field, "0,0.5 1,0.5=resistance:0.1")
SIDE = TextOption("SIDE=KIND:SPEC", _side)


def once_each(context: click.Context, option: click.Parameter, pairs: tuple) -> tuple:
    """Check, as an option's callback, that no name is given twice."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"{name} is given {names.count(name)} times", context, option)
    return pairs


Made = TypeVar("Made")


def completed(names: str = "") -> Callable:
    """Return what completes the value of an option in a shell: with names, and where none begins so, with files.

    The names are what a function ``module:name`` of the package returns, which is imported when a shell asks.
    """

    def complete(ctx: click.Context, param: click.Parameter, begun: str) -> list[CompletionItem]:
        module, _, function = names.partition(":")
        known = getattr(importlib.import_module(f"mosaicdd.{module}"), function)() if names else ()
        fitting = [CompletionItem(name) for name in known if name.startswith(begun)]
        return fitting or [CompletionItem(begun, type="file")]

    return complete


def choice_option(name: str, values: Sequence[str], text: str) -> Callable:
    """Declare an option with a few values, the first of them the default."""
    kind = click.Choice(values)
    return click.option(name, type=kind, default=values[0], show_default=True, help=text)


def dtype_option() -> Callable:
    """Declare ``--dtype``."""
    return choice_option("--dtype", ("float64", "float32"), "Precision of the iteration.")


def device_option() -> Callable:
    """Declare ``--device``."""
    return choice_option("--device", ("cpu", "cuda"), "Where.")


def settings_options(*kinds: type) -> Callable:
    """Add an option for each field of frozen dataclasses that is a `mosaicdd.settings.setting`."""

    def decorate(command: Callable) -> Callable:
        hints = {name: hint for kind in kinds for name, hint in typing.get_type_hints(kind).items()}
        every = [entry for kind in kinds for entry in fields(kind) if "help" in entry.metadata]
        for entry in reversed(every):
            command = _option(entry, hints[entry.name])(command)
        return command

    return decorate


def collected(ctx: click.Context, kind: type[Made], **others: Any) -> Made:
    """Return the settings of a kind that the options gave, with fields that are no options; errors as of the kind."""
    options = ctx.meta.get(__name__, {})
    names = {entry.name for entry in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    return kind(**{name: value for name, value in options.items() if name in names} | others)


def option_given(ctx: click.Context, name: str) -> Any:
    """Return what an option was given as, or its default."""
    return ctx.meta.get(__name__, {}).get(name)


def _option(entry: Field, hint: Any) -> Callable:
    """Build an option whose value waits in the context for `collected`."""

    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        ctx.meta.setdefault(__name__, {})[entry.name] = value

    flag = "--" + entry.name.replace("_", "-")
    if isinstance(hint, types.UnionType):  # as float | None, where the default depends on others
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    kind: dict = {"type": hint}
    if entry.metadata["choices"]:
        kind = {"type": click.Choice(entry.metadata["choices"])}
    elif typing.get_origin(hint) is tuple:
        kind = {"type": typing.get_args(hint)}
    elif hint is bool:
        flag += "/--no-" + entry.name.replace("_", "-")
        kind = {}
    return click.option(
        flag,
        default=entry.default,
        show_default=entry.default is not None,
        help=entry.metadata["help"],
        expose_value=False,
        callback=keep,
        **kind,
    )
