"""Options that are fields of settings: their names with dashes, their defaults, help and choices."""

import types
import typing
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any, TypeVar

import click

Made = TypeVar("Made")


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
