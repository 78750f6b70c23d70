"""What a command says, and shows of its work; nothing with ``--quiet``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from mosaicdd.report.progress import Show, shown

_QUIET = f"{__name__}.quiet"


def quiet_option() -> Callable:
    """Return the option of a command that shows its progress."""

    def keep(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        ctx.meta[_QUIET] = value

    return click.option(
        "--quiet",
        "-q",
        is_flag=True,
        expose_value=False,
        callback=keep,
        help="Show no progress, and say nothing of what went well.",
    )


def _is_quiet() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_QUIET, False)


def say(text: str, *, asked: bool = False) -> None:
    """Write what a command has to say at its end, on stdout.

    If ``asked``, as JSON is and what went wrong, also with ``--quiet``.
    """
    if asked or not _is_quiet():
        click.echo(text)


@contextmanager
def stage(title: str, *, quiet: bool = False) -> Iterator[Show]:
    """Show the progress of one piece of work on stderr; nothing with ``--quiet``, or if ``quiet``."""
    with shown(title, quiet=quiet or _is_quiet()) as show:
        yield show
