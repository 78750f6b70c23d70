"""``--config`` and ``--print-config``: options of a command from a file, and as one.

A file is TOML, ``option = value``, where what is repeated as ``NAME=VALUE`` is a table; or it is one that the
command has written, which knows its command line, and which files that names: a run is repeated with the same
ones, or not at all.
"""

import json
import os
import re
import shlex
import tomllib
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from mosaicdd.cli.bad_input import bad_input
from mosaicdd.cli.options import FILE, TextOption, split_at_equals
from mosaicdd.parallel.launcher import launcher_rank
from mosaicdd.settings import meant
from mosaicdd.storage.hdf5 import run_with
from mosaicdd.unsupported import refuse_former

_ARGUMENTS = "mosaicdd.cli.config.arguments"
_OF_FILES = {"config", "print_config"}  # what a file cannot say
_NOT_OF_RUNS = _OF_FILES | {"as_json", "quiet", "overwrite", "dry_run"}
_TEXTS = ("expr:", "gp:", "lognormal:")  # values that name no file
_CHUNK = 2**20  # bytes


class Recorded(click.Command):
    """A command that remembers its arguments; what it writes says which files they name.

    ``groups``: names of parameters by their headings in ``--help``, in order.
    """

    def __init__(
        self, *args: Any, groups: Mapping[str, Sequence[str]] | None = None, **attributes: Any
    ):
        super().__init__(*args, **attributes)
        self.groups = groups

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, as every command does."""
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        if launcher_rank() > 0 or ctx.params.get("print_config"):
            return super().invoke(ctx)
        with run_with(_checksums(ctx, _all_options(ctx))):
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group, and one for what is in none."""
        if self.groups is None:
            super().format_options(ctx, formatter)
            return
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
            options = _read(ctx, path, rest, _parsed(ctx, ctx.meta[_ARGUMENTS]))
        table = options.pop(rest, {})
        ctx.default_map = {**(ctx.default_map or {}), **options}
        return table

    return click.option(
        "--config",
        type=FILE,
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
    options = _all_options(ctx)
    plain, tables = [], []
    for name, param in _declared(ctx).items():
        value = options.get(param.name or "")
        if value is None or param.name in _NOT_OF_RUNS:
            continue
        if param.multiple:
            pairs = (split_at_equals(pair) for pair in value)
            tables.append(f"\n[{name}]")
            tables += [f"{_key(key)} = {_toml(text)}" for key, text in pairs]
        else:
            plain.append(f"{name} = {_toml(value)}")
    return "\n".join([*plain, *tables])


def _all_options(ctx: click.Context) -> dict[str, Any]:
    """Return what was given, by a file or as options, by the names of parameters."""
    return {**(ctx.default_map or {}), **_parsed(ctx, ctx.meta[_ARGUMENTS])}


def _declared(ctx: click.Context) -> dict[str, click.Parameter]:
    """Return the options of a command by their names on the command line, without hyphens before them."""
    options = (param for param in ctx.command.params if param.param_type_name == "option")
    return {max(option.opts, key=len).lstrip("-"): option for option in options}


def _parsed(ctx: click.Context, words: list[str]) -> dict[str, Any]:
    """Return the words of a command line by the names of parameters, as they stand there."""
    return dict(ctx.command.make_parser(ctx).parse_args(list(words))[0])


def _read(ctx: click.Context, path: str, rest: str | None, without: Collection[str]) -> dict:
    """Return the options of a file by the names of parameters, but for some, and the table of what are none."""
    if not path.endswith(".h5"):
        options = _of_toml(ctx, Path(path), rest)
        return {name: value for name, value in options.items() if name not in without}
    from mosaicdd.storage.hdf5 import inspect_file

    _, attributes, _ = inspect_file(path)
    words, command = shlex.split(str(attributes.get("command_line", ""))), ctx.command.name or ""
    if command not in words:
        raise ValueError(f"{path} was not written by mosaicdd {command}")
    parsed = _parsed(ctx, words[words.index(command) + 1 :])
    names = {option.name for option in _declared(ctx).values()}
    names -= {*_NOT_OF_RUNS, "output", "resume", *without}
    own = {name: value for name, value in parsed.items() if name in names}
    inputs, folder = attributes.get("inputs", {}), str(attributes.get("folder", ""))

    def settled(options: dict[str, Any]) -> dict[str, Any]:
        if not folder and (files := _checksums(ctx, options)):
            raise ValueError(
                f"{path} does not say which {', '.join(files)} it was made with, by an earlier version: give "
                "the options that name files anew"
            )
        return _with_paths(ctx, options, inputs, folder, path)

    before = {}
    if parsed.get("config"):
        former = settled({"config": parsed["config"]})["config"]
        known = {*names, rest} - own.keys()
        before = {k: v for k, v in _read(ctx, former, rest, {*without, *own}).items() if k in known}
    return {**(settled(before) if folder else before), **settled(own)}


def _of_toml(ctx: click.Context, path: Path, rest: str | None) -> dict[str, Any]:
    """Return what a file of TOML says by the names of parameters, in texts as on the command line."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not TOML ({error})") from error
    options = {name: o for name, o in _declared(ctx).items() if o.name not in _OF_FILES}
    named: dict[str, Any] = {}
    for written, value in values.items():
        name, table = written.replace("_", "-"), isinstance(value, dict)
        if written == rest:
            if not table:
                raise TypeError(f"{path}: {rest} must be a table, as in [{rest}]")
            named[rest] = value
            continue
        if name not in options:
            refuse_former("option", f"{ctx.command.name} --{name}")
            also = f" and the table [{rest}]" if rest else ""
            raise ValueError(
                f"{path}: {ctx.command.name} has no option {written!r}{meant(name, options)}; known: "
                f"{', '.join(sorted(options))}{also}"
            )
        option = options[name]
        if table and not option.multiple:
            raise TypeError(f"{path}: {name} has one value, got a table")
        if table:
            value = [f"{key}={_text(entry)}" for key, entry in value.items()]
        elif option.multiple:
            value = [_text(entry) for entry in (value if isinstance(value, list) else [value])]
        named[option.name or name] = value if option.multiple else _text(value)
    return named


def _with_files(
    ctx: click.Context, options: Mapping[str, Any], change: Callable[[str, str], str]
) -> dict[str, Any]:
    """Return options with all that may name a file as ``change(option, text)`` returns it."""
    changed = dict(options)
    for param in _declared(ctx).values():
        if param.name not in options or not isinstance(param.type, TextOption):
            continue
        value, texts = options[param.name], []
        for text in value if param.multiple else [value]:
            parts = param.type.pieces(text)
            parts[1::2] = [change(param.opts[-1], part) for part in parts[1::2]]
            texts.append("".join(parts))
        changed[param.name] = texts if param.multiple else texts[0]
    return changed


def _checksums(ctx: click.Context, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the CRC-32 and the length of each file that options name, by the path as it was typed.

    One that cannot be read is left out: whoever needs it says so.
    """
    files: dict[str, str] = {}

    def note(option: str, text: str) -> str:
        path = _path(text, lambda path: os.path.isfile(path) and os.access(path, os.R_OK))
        if path is not None:
            files[path] = _checksum(path)
        return text

    _with_files(ctx, options, note)
    return files


def _with_paths(
    ctx: click.Context,
    options: Mapping[str, Any],
    inputs: Mapping[str, str],
    folder: str,
    origin: str,
) -> dict[str, Any]:
    """Return options with absolute paths, of files that hold what they did.

    Parameters
    ----------
    inputs
        What `_checksums` returned of the run.
    folder
        From which its relative paths count.
    origin
        The file that says so, for messages.

    Raises
    ------
    FileNotFoundError
        If a file is no longer there.
    ValueError
        If it holds something else.
    """

    def absolute(option: str, text: str) -> str:
        path = _path(text, inputs.__contains__)
        if path is None:
            return text
        place = os.path.join(folder, path)
        if not os.path.isfile(place):
            counted = "" if os.path.isabs(path) else f", which counts from {folder}"
            raise FileNotFoundError(
                f"{origin} was made with {path}{counted}: there is no file {place} any more; give {option} anew"
            )
        if (present := _checksum(place)) != inputs[path]:
            raise ValueError(
                f"{origin} was made with another {place}: its checksum was {inputs[path]}, it is {present}; give "
                f"{option} anew"
            )
        return place + text[len(path) :]

    return _with_files(ctx, options, absolute)


def _path(text: str, is_file: Callable[[str], bool]) -> str | None:
    """Return the file that a text names, without the name of an array in it; None if it names none."""
    if not text or text.startswith(_TEXTS) or _is_number(text):
        return None
    ends = text, text.rpartition(":/")[0], text.rpartition(":")[0]
    return next((path for path in ends if path and is_file(path)), None)


def _checksum(path: str) -> str:
    """Return the CRC-32 of a file, and its length in bytes."""
    digest = size = 0
    with Path(path).open("rb") as file:
        while data := file.read(_CHUNK):
            digest, size = zlib.crc32(data, digest), size + len(data)
    return f"{digest:08x}-{size}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _key(name: str) -> str:
    """Write a key, which needs quotes where it is more than a word, as the part of a side is."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _text(value: Any) -> str:
    """Write a value of TOML as on the command line."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _toml(value: Any) -> str:
    """Write a value; a text that reads as a number is one."""
    text = str(value)
    try:
        float(text)
        tomllib.loads(f"value = {text}")
    except (ValueError, tomllib.TOMLDecodeError):
        return json.dumps(value)
    return text
