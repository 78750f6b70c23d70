"""Types of options that several commands share, and options that are fields of settings."""

import itertools
import math
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from typing import Any, TypeVar

import click

from mosaicdd.problems.sides.conditions import Condition, condition_of_spec

_MOST = 2**26  # cells: up to (2^26 + 1)^2 nodes, numbers that are exact in float64


class Sizes(click.ParamType):
    """Whole numbers as ``NXxNY``, in space ``NXxNYxNZ``; gives them in the order of axes, ``(ny, nx)``."""

    name = "NXxNY[xNZ]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Read the text; what are sizes already stay as they are."""
        if isinstance(value, tuple):
            return value
        parts = str(value).lower().split("x")
        if len(parts) not in (2, 3) or not all(
            part.isdecimal() and int(part) > 0 for part in parts
        ):
            self.fail(f"{value!r} is not of the form {self.name}, as in 2048x1024", param, ctx)
        if max(map(int, parts)) > _MOST:
            self.fail(f"{value!r}: at most {_MOST} along an axis", param, ctx)
        return tuple(map(int, reversed(parts)))


SIZES = Sizes()


class SpacingOption(click.ParamType):
    """The side of a cell, or its sides as ``DXxDY[xDZ]``; gives a number, or these in the order of axes in the package."""

    name = "H|DXxDY[xDZ]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | tuple[float, ...]:
        """Read the text; what is read already stays as it is."""
        if not isinstance(value, str):
            return value
        try:
            sides = tuple(map(float, value.lower().split("x")))
        except ValueError:
            self.fail(f"{value!r} is not of the form {self.name}, as in 0.5 or 25x10", param, ctx)
        return sides[0] if len(sides) == 1 else sides[::-1]


SPACING = SpacingOption()


class Extent(click.ParamType):
    """A rectangle or a box as ``X0:X1,Y0:Y1`` in domain coordinates; gives ends in the order of axes."""

    name = "X0:X1,Y0:Y1[,Z0:Z1]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[float, float], ...]:
        """Read the text; what are ends already stay as they are."""
        if isinstance(value, tuple):
            return value
        try:
            pairs = (map(float, axis.split(":")) for axis in str(value).split(","))
            ends = [(low, high) for low, high in pairs]
        except ValueError:
            ends = []
        if len(ends) not in (2, 3) or not all(map(math.isfinite, itertools.chain(*ends))):
            self.fail(f"{value!r} is not of the form {self.name}, as in 0.5:2,0:1.5", param, ctx)
        return tuple(reversed(ends))


EXTENT = Extent()


class PlaneOption(click.ParamType):
    """A plane through a box as ``z=0.5``; gives the axis' letter and the place."""

    name = "AXIS=PLACE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Read the text."""
        if isinstance(value, tuple):
            return value
        letter, _, place = str(value).partition("=")
        try:
            return letter, float(place)
        except ValueError:
            self.fail(f"{value!r} is not of the form {self.name}, as in z=0.5", param, ctx)


PLANE = PlaneOption()


def split_at_equals(text: str) -> tuple[str, str]:
    """Split ``NAME=SPEC``; a name may be an expression that compares, as ``x <= 1``."""
    name, *spec = re.split("(?<![<>=!])=(?!=)", text, maxsplit=1)
    return name, "".join(spec)


class FieldOption(click.ParamType):
    """A field as ``NAME=SPEC``; gives the two texts."""

    name = "NAME=SPEC"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Split the text."""
        if isinstance(value, tuple):
            return value
        name, spec = split_at_equals(str(value))
        if not (name and spec):
            self.fail(f"{value!r} is not of the form {self.name}, as in c=3.0", param, ctx)
        return name, spec


FIELD = FieldOption()


def once_each(context: click.Context, option: click.Parameter, pairs: tuple) -> tuple:
    """Check, as an option's callback, that no name is given twice."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"{name} is given {names.count(name)} times", context, option)
    return pairs


class SideOption(click.ParamType):
    """A condition as ``left=dirichlet:SPEC``; gives the side's name and the condition."""

    name = "SIDE=KIND:SPEC"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Condition]:
        """Read the text."""
        if isinstance(value, tuple):
            return value
        side, condition = split_at_equals(str(value))
        try:
            return side, condition_of_spec(condition)
        except ValueError as error:
            self.fail(f"{value!r} is not of the form {self.name}: {error}", param, ctx)


SIDE = SideOption()


Made = TypeVar("Made")


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
