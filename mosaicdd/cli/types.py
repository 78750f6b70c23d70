"""Parameter types that several commands share."""

import math
from typing import Any

import click

from mosaicdd.problems.sides.conditions import Condition, condition_of_spec

_MOST = 2**26  # cells: up to (2^26 + 1)^2 nodes, numbers that are exact in float64


class SizePair(click.ParamType):
    """Two whole numbers as ``NXxNY``; gives ``(ny, nx)``, the order of axes in the package."""

    name = "NXxNY"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Read the text; what is a pair already stays as it is."""
        if isinstance(value, tuple):
            return value
        parts = str(value).lower().split("x")
        if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
            self.fail(f"{value!r} is not of the form {self.name}, as in 2048x1024", param, ctx)
        if max(map(int, parts)) > _MOST:
            self.fail(f"{value!r}: at most {_MOST} along an axis", param, ctx)
        return int(parts[1]), int(parts[0])


SIZE_PAIR = SizePair()


class Extent(click.ParamType):
    """A rectangle as ``X0:X1,Y0:Y1`` in domain coordinates; gives ``((y0, y1), (x0, x1))``."""

    name = "X0:X1,Y0:Y1"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """Read the text; what is a rectangle already stays as it is."""
        if isinstance(value, tuple):
            return value
        try:
            (x0, x1), (y0, y1) = (map(float, axis.split(":")) for axis in str(value).split(","))
        except ValueError:
            x0 = x1 = y0 = y1 = math.nan
        if not all(map(math.isfinite, (x0, x1, y0, y1))):
            self.fail(f"{value!r} is not of the form {self.name}, as in 0.5:2,0:1.5", param, ctx)
        return (y0, y1), (x0, x1)


EXTENT = Extent()


class FieldOption(click.ParamType):
    """A field as ``NAME=SPEC``; gives the two texts."""

    name = "NAME=SPEC"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Split the text."""
        if isinstance(value, tuple):
            return value
        name, equals, spec = str(value).partition("=")
        if not (name and equals and spec):
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
        side, _, condition = str(value).partition("=")
        try:
            return side, condition_of_spec(condition)
        except ValueError as error:
            self.fail(f"{value!r} is not of the form {self.name}: {error}", param, ctx)


SIDE = SideOption()
