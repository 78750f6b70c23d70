"""Types of options, options that are fields of settings, and those that describe a problem.

Each is declared once, with its meaning; commands take them by name.
"""

import importlib
import itertools
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from mosaicdd.problems.sides.conditions import Condition, condition_of_spec, split_at_comma

_NUMBER = re.compile("([0-9]+)(k?)")  # as 96, or 2k, which is 2048
# A place, and what it is called.
NAMED_PLACE = re.compile(r"\s*(?!expr:)([A-Za-z_][\w-]*)\s*:\s*(.*\S)\s*")
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
    pieces
        Splits it, so that the second, fourth, .. piece may name a file.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[str], Any] = str,
        example: str = "",
        pieces: Callable[[str], list[str]] | None = None,
    ):
        self.name, self._read, self._example = name, read, example
        self._names_files = pieces is not None
        self.pieces = pieces or (lambda text: [text])

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the form as it is."""
        return self.name

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        """Complete with the names of files, where it may be one."""
        return [CompletionItem(begun, type="file")] if self._names_files else []

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


def split_at_equals(text: str) -> tuple[str, str]:
    """Split ``NAME=SPEC``; a name may be an expression that compares, as ``x <= 1``."""
    name, *spec = re.split("(?<![<>=!])=(?!=)", text, maxsplit=1)
    return name, "".join(spec)


def _field(text: str) -> tuple[str, str]:
    name, spec = split_at_equals(text)
    if not (name and spec):
        raise ValueError
    return name, spec


def _side(text: str) -> tuple[str, Condition]:
    side, condition = split_at_equals(text)
    return side, condition_of_spec(condition)


def _whole(text: str) -> list[str]:
    return ["", text]


def _with_suffix(text: str) -> list[str]:
    return ["", text] if Path(text).suffix else [text]


def _of_field(text: str) -> list[str]:
    spec = split_at_equals(text)[1]
    return [text.removesuffix(spec), spec]


def _of_side(text: str) -> list[str]:
    kind, _, spec = split_at_equals(text)[1].partition(":")
    values = split_at_comma(spec) if kind == "robin" else [spec]
    return [text.removesuffix(spec), *values]


def _of_hold(text: str) -> list[str]:
    left, spec = split_at_equals(text)
    named = NAMED_PLACE.fullmatch(left)
    place = left.strip() if named is None else named[2]
    begin = left.rindex(place)
    return [text[:begin], place, text[begin + len(place) :].removesuffix(spec), spec]


# Of axes in the package's order, ``(ny, nx)``: whole numbers, equal ones, the side or the sides of a cell; a place, x
# first; pairs of ends of a rectangle or a box; then an axis' letter and a place along it, two texts, and a side's name and its condition.
SIZES = TextOption("NXxNY[xNZ]", _sizes, "2048x1024")
CELLS = TextOption("NXxNY[xNZ]", _cells, "2048x1024, or 2k for 2048x2048")
CUBE = TextOption("M|MxM|MxMxM", _cube, "32 or 16x16x16")
SPACING = TextOption("H|DXxDY[xDZ]", _spacing, "0.5 or 25x10")
ORIGIN = TextOption("X,Y[,Z]", _place, "500000,4200000")
EXTENT = TextOption("X0:X1,Y0:Y1[,Z0:Z1]", _extent, "0.5:2,0:1.5")
PLANE = TextOption("AXIS=PLACE", _plane, "z=0.5")
FIELD = TextOption("NAME=SPEC", _field, "c=3.0", _of_field)
WELL = TextOption("X,Y[,Z]=STRENGTH", _field, "300,450=0.02")
HOLD = TextOption("[NAME:]PLACE=SPEC", _field, "'river: 0,1 2,1.5=3'", _of_hold)
FOIL = TextOption("POINTS=KIND:SPEC", _field, "0,0.5 1,0.5=resistance:0.1")
SIDE = TextOption("SIDE=KIND:SPEC", _side, pieces=_of_side)
# Texts that may name a file: values, an equation, one of the user's own, a model, and a file alone.
SPEC = TextOption("SPEC", pieces=_whole)
EQUATION = TextOption("NAME|FILE.py:NAME", pieces=_with_suffix)
OWN_EQUATION = TextOption("FILE.py:NAME", pieces=_with_suffix)
MODEL = TextOption("NAME|FILE", pieces=_with_suffix)
FILE = TextOption("FILE", pieces=_whole)


def once_each(context: click.Context, option: click.Parameter, pairs: tuple) -> tuple:
    """Check, as an option's callback, that no name is given twice."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"{name} is given {names.count(name)} times", context, option)
    return pairs


Made = TypeVar("Made")
Declared = dict[str, Callable]
"""Options by the names of their parameters: decorators of a command."""


def row(text: str, *flags: str, **how: Any) -> Callable[[str], Callable]:
    """Declare an option by its meaning and what else `click.option` takes; its flag is by default ``--NAME``."""
    return lambda name: click.option(
        *(flags or ["--" + name.replace("_", "-")]), name, help=text, **how
    )


def declared(**rows: Callable[[str], Callable]) -> Declared:
    """Return the options of some rows by the names of their parameters."""
    return {name: made(name) for name, made in rows.items()}


def with_options(*tables: Declared) -> Callable:
    """Return the decorator that gives a command all options of some tables, in their order."""

    def decorate(command: Callable) -> Callable:
        for option in reversed([option for table in tables for option in table.values()]):
            command = option(command)
        return command

    return decorate


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


def json_option() -> Callable:
    """Declare ``--json``."""
    text = "Print one JSON object and nothing else."
    return click.option("--json", "as_json", is_flag=True, help=text)


def settings_options(kind: type) -> Declared:
    """Declare an option for each field of a frozen dataclass that is a `mosaicdd.settings.setting`."""
    hints = typing.get_type_hints(kind)
    every = [entry for entry in fields(kind) if "help" in entry.metadata]
    return declared(**{entry.name: _setting_row(entry, hints[entry.name]) for entry in every})


def _setting_row(entry: Field, hint: Any) -> Callable[[str], Callable]:
    how: dict[str, Any] = {"default": entry.default, "show_default": entry.default is not None}
    flags: tuple[str, ...] = ()
    if typing.get_origin(hint) is types.UnionType:
        # As float | None, where the default depends on others.
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    if entry.metadata["choices"]:
        how["type"] = click.Choice(entry.metadata["choices"])
    elif typing.get_origin(hint) is tuple:
        how["type"] = typing.get_args(hint)
    elif hint is bool:
        flag = entry.name.replace("_", "-")
        flags = (f"--{flag}/--no-{flag}",)
    else:
        how["type"] = hint
    return row(entry.metadata["help"], *flags, **how)


def collected(kind: type[Made], options: Mapping[str, Any], **others: Any) -> Made:
    """Return the settings of a kind that options give, with fields that are no options; errors as of the kind."""
    names = {entry.name for entry in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    return kind(**{name: value for name, value in options.items() if name in names} | others)


EACH: dict[str, Any] = {"multiple": True, "callback": once_each}
PROBLEM = declared(
    cells=row(
        "Grid cells along x and y, as 2048x1024, or 2kx1k; 2k is a square of these; of a box in space, 128x128x64.",
        type=CELLS,
        required=True,
    ),
    spacing=row(
        "Side of a grid cell, in domain units, or its sides, 25x10 along x and y. [default: 1/64; of a network "
        "whose equation is not the same at all scales, as with a reaction, that of its training]",
        type=SPACING,
    ),
    origin=row(
        "Where the lower-left corner of the cells lies; all places, of formulas, wells, points and in files, are told in these "
        "coordinates. [default: 0,0, or where rasters begin]",
        type=ORIGIN,
    ),
    domain=row(
        "Part of these cells that is the domain: 'expr:...', a signed distance, negative inside, or "
        "polygons with holes, FILE.json; a mask, FILE.npy or FILE.png, true or light inside: of cells, or of "
        "nodes (then first order at the outline, else second). Of a box, a distance, or a mask of voxels, FILE.npy or FILE.tif. "
        "A raster, FILE.asc, .csv, .nc or a GeoTIFF: where it has data. [default: all]",
        type=SPEC,
    ),
    leave_out_floating=row(
        "Leave out parts of a mask of voxels that no value, exchange or reaction acts on, and say their share.",
        is_flag=True,
    ),
    pde=row(
        "Equation to solve, or one of your own.",
        type=EQUATION,
        default="laplace",
        show_default=True,
        shell_complete=completed("problems.equations:shipped_equations"),
    ),
    field=row(
        "A parameter of the equation, or its source f: a number, 'expr:...' in x and y (and z), node values in "
        "FILE.npy or FILE.h5:/dataset, a raster, FILE.asc, .csv, .nc or .tif, or a random medium, 'lognormal:seed=0,length=L,contrast=C' (L in "
        "domain units, 0 for independent nodes). Repeat for others.",
        type=FIELD,
        **EACH,
    ),
    well=row(
        "A point of the source f with a given total, on or between nodes: 300,450=0.02 brings in 0.02 there, "
        "beside what --field f=... gives. In time 'expr:...' in t. Repeat for others.",
        type=WELL,
        **EACH,
    ),
    foil=row(
        "A thin layer in the medium, along lines through points, as '0,0.5 1,0.5', in space a rectangle by two corners: "
        "with resistance:R across (of a unit of area), conductance:C along (thickness times conductivity), or both by "
        "layer:THICKNESS,CONDUCTIVITY. Repeat for others.",
        type=FOIL,
        multiple=True,
    ),
    boundary=row(
        "Values on all sides that --side does not name: a number, 'expr:sin(2*pi*x)', an HDF5 file, or "
        "a random curve, 'gp:seed=0,length=L,amplitude=A,noise=S' (lengths in domain units; L by default 1/16 "
        "of the perimeter). Many problems: 'gp:seed=0..63', or a file whose edges have a row for each. "
        "[default: gp:seed=0 where neither --pde, --field nor --side is given]",
        type=SPEC,
    ),
    side=row(
        "What holds on one side, or a part of it, instead: 'left=dirichlet:SPEC', 'left=neumann:SPEC' "
        "(the flux a du/dn, outward), 'right[0:0.5]=robin:ALPHA,SPEC' (a du/dn + ALPHA u), in space "
        "'right[0:0.5, :0.3]=..' along y and z, with a number, "
        "'expr:...', or values at the side's nodes in FILE.npy or FILE.h5:/dataset. With --domain also "
        "'outline', or 'outer', 'hole1', .., and parts of them, 'outline[(x > 1) & (y < 2)]=..'; files of these have "
        "rows 'x y value'. Repeat for others.",
        type=SIDE,
        **EACH,
    ),
    hold=row(
        "Values inside of the domain, at the nodes nearest to a line, 'river: 0,1 2,1.5 4,1=3', or to a point, where a formula "
        "holds, 'hypot(x-1,y-1)<0.1=expr:y', or of a FILE of points or a mask of nodes; quantities says what flows out "
        "through NAME. Repeat for others.",
        type=HOLD,
        **EACH,
    ),
)
"""What describes a problem; `mosaicdd.cli.problem` makes it one."""
