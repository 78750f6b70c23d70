"""What people see of long work: a bar on a terminal, plain lines otherwise."""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Show = Callable[..., None]
"""``show(fraction, note="")``: the fraction of the work that is done, and a remark."""

Progress = Callable[[float, str], None]
"""``progress(fraction, note)``: how much of the work is done, and a remark."""

_LINES = 10  # plain lines of one stage without a terminal, at most
_TOLD = 0.02  # of the work, from which on its rate says something
_SECONDS = 2.0  # between two of them, at least


@contextmanager
def shown(title: str, *, quiet: bool = False) -> Iterator[Show]:
    """Show the progress of one piece of work on stderr, unless it is to be ``quiet``."""
    if quiet:
        yield lambda fraction, note="": None
    elif sys.stderr.isatty():
        from rich.console import Console

        with bar(title, Console(stderr=True)) as show:
            yield show
    else:
        yield PlainLines(title)


@contextmanager
def followed(
    progress: Progress | bool | None, title: str, *, quiet: bool
) -> Iterator[Progress | None]:
    """Yield what a solve calls: the function itself, or what draws a bar where it is True, unless on a ``quiet`` rank.

    `TypeError` if it is neither.
    """
    if callable(progress):
        yield progress
    elif progress is None or isinstance(progress, bool):
        if progress:
            with shown(title, quiet=quiet) as show:
                yield show
        else:
            yield None
    else:
        kind = type(progress).__name__
        raise TypeError(f"progress must be a function of (fraction, note), or True, got {kind}")


@contextmanager
def bar(title: str, console: "Console") -> Iterator[Show]:
    """Draw a bar with the time that is left on a `rich.console.Console`, the remark below it."""
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class TwoLines(Progress):
        """A narrow terminal has no room for the bar and the remark beside each other."""

        def get_renderables(self) -> "Iterable[RenderableType]":
            yield from super().get_renderables()
            note = self.tasks[0].fields["note"] if self.tasks else ""
            if note:
                yield Text(f"  {note}", no_wrap=True, overflow="ellipsis")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with TwoLines(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=1.0, note="")
        yield lambda fraction, note="": progress.update(task, completed=fraction, note=note)


class PlainLines:
    """Write a line whenever another tenth of the work is done, of long work only, by a clock like `time.monotonic`."""

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic):
        self.title = title
        self.next = 0.0
        self._clock = clock
        self.last = clock()
        self._start: tuple[float, float] | None = None  # the first fraction, and when it was

    def __call__(self, fraction: float, note: str = "") -> None:
        """Write the line if it is due."""
        now = self._clock()
        if self._start is None:
            self._start = (fraction, now)
        if fraction >= self.next and now - self.last >= _SECONDS:
            self.next = fraction + 1 / _LINES
            self.last = now
            parts = [f"{self.title}: {fraction:.0%}", self._left(fraction, now, *self._start), note]
            sys.stderr.write(", ".join(part for part in parts if part) + "\n")

    def _left(self, fraction: float, now: float, before: float, start: float) -> str:
        """Say how long it takes to the end, if it goes on as it went."""
        if not before + _TOLD <= fraction < 1:
            return ""
        return f"{math.ceil((1 - fraction) * (now - start) / (fraction - before))} s left"
