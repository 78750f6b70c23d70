"""What people see while a command works: a bar on a terminal, plain lines otherwise."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Show = Callable[..., None]
"""``show(fraction, note="")``: the fraction of the work that is done, and a remark."""

_LINES = 10  # plain lines of one stage without a terminal, at most
_SECONDS = 2.0  # between two of them, at least


@contextmanager
def stage(title: str, *, quiet: bool = False) -> Iterator[Show]:
    """Show the progress of one piece of work on stderr.

    Parameters
    ----------
    title
        What is being done.
    quiet
        Show nothing, as ``--json`` asks.
    """
    if quiet:
        yield lambda fraction, note="": None
    elif sys.stderr.isatty():
        with _bar(title) as show:
            yield show
    else:
        yield _Lines(title)


@contextmanager
def _bar(title: str) -> Iterator[Show]:
    """Draw a bar with the time that is left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=1.0, note="")
        yield lambda fraction, note="": progress.update(task, completed=fraction, note=note)


class _Lines:
    """Write a line whenever another tenth of the work is done, of long work only."""

    def __init__(self, title: str):
        self.title = title
        self.next = 0.0
        self.last = time.monotonic()

    def __call__(self, fraction: float, note: str = "") -> None:
        """Write the line if it is due."""
        if fraction >= self.next and time.monotonic() - self.last >= _SECONDS:
            self.next = fraction + 1 / _LINES
            self.last = time.monotonic()
            click.echo(f"{self.title}: {fraction:4.0%} {note}".rstrip(), err=True)
