"""``--config`` and ``--print-config``: options of a command from a file, and as one.

A file is TOML, ``option = value``, where what is repeated as ``NAME=VALUE`` is a table; or it is one that the
command has written, which knows its command line.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.files_of_options import checksums, split_at_equals, with_paths
from mosaicdd.former import refuse_former
from mosaicdd.parallel.launcher import launcher_rank
from mosaicdd.settings import meant
from mosaicdd.storage.provenance import run_with

_ARGUMENTS = "mosaicdd.cli.config.arguments"
_OF_FILES = {"config", "print_config"}  # what a file cannot say
_WRITTEN = {"output", "trace"}  # options that name what is written
_NOT_KEPT = _OF_FILES | {"as_json", "quiet", "overwrite", "dry_run"}  # what is no part of a run


class Recorded(click.Command):
    """A command that remembers what it was called with; what it writes says which files that names."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, as every command does."""
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        if launcher_rank() > 0 or ctx.params.get("print_config"):
            return super().invoke(ctx)
        named = {key: value for key, value in _given(ctx).items() if key not in _WRITTEN}
        with run_with(checksums(named)):
            return super().invoke(ctx)


class Grouped(Recorded):
    """A recorded command made with ``groups``: names of parameters by their headings, in order."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **attributes: Any):
        super().__init__(*args, **attributes)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, and one for what is in none."""
        params = {param.name: param for param in self.get_params(ctx)}
        grouped = {name for names in self.groups.values() for name in names}
        others = [name for name in params if name not in grouped]
        for heading, names in {**self.groups, "Other options": others}.items():
            records = [params[name].get_help_record(ctx) for name in names]
            with formatter.section(heading):
                formatter.write_dl([record for record in records if record is not None])


def config_option(text: str, rest: str | None = None) -> Callable:
    """Declare ``--config``.

    Parameters
    ----------
    text
        What there may be in the file, for ``--help``.
    rest
        Name of a table that holds no options, which the command is given.
    """

    def read(ctx: click.Context, param: click.Parameter, path: str | None) -> dict:
        if path is None:
            return {}
        with bad_input("--config"):
            values = _values(ctx, path)
            table = values.pop(rest, {}) if rest is not None else {}
            if not isinstance(table, dict):
                raise TypeError(f"{path}: {rest} must be a table, as in [{rest}]")
            options = _named(ctx, values, path, rest)
        ctx.default_map = {**(ctx.default_map or {}), **options}
        return table

    return click.option(
        "--config",
        metavar="FILE",
        type=click.Path(),
        is_eager=True,
        expose_value=rest is not None,
        callback=read,
        help=text,
    )


def print_config_option() -> Callable:
    """Declare ``--print-config``."""
    return click.option(
        "--print-config",
        is_flag=True,
        help="Print what is given as a file for --config, and do nothing else.",
    )


def config_text(ctx: click.Context) -> str:
    """Return what was given to a command, by a file or as options, as TOML."""
    told = _given(ctx)
    plain, tables = [], []
    for name, param in _options(ctx).items():
        value = told.get(param.name or "")
        if value is None or param.name in _NOT_KEPT:
            continue
        if isinstance(value, (list, tuple)) and param.multiple:
            pairs = (split_at_equals(str(pair)) for pair in value)
            tables.append(f"\n[{name}]")
            tables += [f"{_key(key)} = {_toml(text)}" for key, text in pairs]
        else:
            plain.append(f"{name} = {_toml(value)}")
    return "\n".join([*plain, *tables])


def _given(ctx: click.Context) -> dict[str, Any]:
    """Return what was given, by a file or as options, by the names of parameters."""
    return {**(ctx.default_map or {}), **_parsed(ctx, ctx.meta[_ARGUMENTS])}


def _options(ctx: click.Context) -> dict[str, click.Option]:
    """Return the options of a command by their names on the command line, without hyphens before them."""
    options = (param for param in ctx.command.params if isinstance(param, click.Option))
    return {max(option.opts, key=len).lstrip("-"): option for option in options}


def _named(
    ctx: click.Context, values: dict[str, Any], path: str, rest: str | None
) -> dict[str, Any]:
    """Return values by the names of parameters; `ValueError` if one is of no option."""
    options = {
        name: option for name, option in _options(ctx).items() if option.name not in _OF_FILES
    }
    named: dict[str, Any] = {}
    for written, value in values.items():
        name = written.replace("_", "-")
        if name not in options:
            refuse_former("option", f"{ctx.command.name} --{name}")
            also = f" and the table [{rest}]" if rest else ""
            raise ValueError(
                f"{path}: {ctx.command.name} has no option {written!r}{meant(name, options)}; known: "
                f"{', '.join(sorted(options))}{also}"
            )
        option = options[name]
        if isinstance(value, dict):
            if not option.multiple:
                raise TypeError(f"{path}: {name} has one value, got a table")
            value = [f"{key}={text}" for key, text in value.items()]
        named[option.name or name] = value
    return named


def _values(ctx: click.Context, path: str, also: Collection[str] = ()) -> dict[str, Any]:
    """Return what a file says, by the names of options or tables; ``also``: parameters that are given by others."""
    return _written(ctx, path, also) if path.endswith(".h5") else _loaded(Path(path))


def _loaded(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not TOML ({error})") from error


def _written(ctx: click.Context, path: str, also: Collection[str]) -> dict[str, Any]:
    """Return the options by which a file was written, but for its name, and paths as absolute ones."""
    from mosaicdd.storage.hdf5 import inspect_file

    attributes = inspect_file(path).attributes
    words = shlex.split(str(attributes.get("command_line", "")))
    command = ctx.command.name or ""
    if command not in words:
        raise ValueError(f"{path} was not written by mosaicdd {command}")
    parsed = _parsed(ctx, words[words.index(command) + 1 :])
    names = {option.name: name for name, option in _options(ctx).items()}
    held = {*also, *_parsed(ctx, ctx.meta.get(_ARGUMENTS, []))}
    left_out = {*_NOT_KEPT, "output", "resume", *held}
    own = {key: value for key, value in parsed.items() if key in names and key not in left_out}
    known, folder = attributes.get("inputs", {}), str(attributes.get("folder", ""))

    def settled(options: dict[str, Any]) -> dict[str, Any]:
        if not folder and (files := checksums(options)):
            raise ValueError(
                f"{path} does not say which {', '.join(files)} it was made with, by an earlier version: give "
                "the options that name files anew"
            )
        return with_paths(options, known, folder, path)

    before = {}
    if parsed.get("config"):
        former = settled({"config": parsed["config"]})["config"]
        before = _values(ctx, former, {*held, *own})
        params = {name: key for key, name in names.items()}
        keys = {name: params.get(name.replace("_", "-"), name) for name in before}
        tables = {
            keys[name]: [f"{key}={text}" for key, text in value.items()]
            if isinstance(value, dict) and keys[name] in names
            else value
            for name, value in before.items()
            if keys[name] not in left_out and keys[name] not in own
        }
        before = settled(tables) if folder else tables
    return {names.get(key, key): value for key, value in {**before, **settled(own)}.items()}


def _parsed(ctx: click.Context, words: list[str]) -> dict[str, Any]:
    """Return the words of a command line by the names of parameters, as they stand there."""
    return dict(ctx.command.make_parser(ctx).parse_args(list(words))[0])


def _key(name: str) -> str:
    """Write a key, which needs quotes where it is more than a word, as the part of a side is."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _toml(value: Any) -> str:
    """Write a value; a text that reads as a number is one."""
    if isinstance(value, str):
        try:
            float(value)
            tomllib.loads(f"value = {value}")
        except (ValueError, tomllib.TOMLDecodeError):
            return json.dumps(value)
        return value
    return json.dumps(value)
