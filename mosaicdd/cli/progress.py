"""How far an iteration is, for people: a bar on a terminal, a line now and then elsewhere."""

import math
import sys
import time
from typing import Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_SECONDS_BETWEEN_LINES = 5.0


class IterationProgress:
    """Shows the iterations of a solve on stderr; use it as a context manager and call it.

    Parameters
    ----------
    aim
        ``aim(size)``: the update at which the iteration stops, or None if it stops at an MAE.
    shown
        Whether to show anything: on the first rank, and not with ``--json``.
    """

    def __init__(self, rtol: float, mae: float | None, *, shown: bool):
        self._rtol = rtol
        self._mae = mae
        self._shown = shown
        self._first = None
        self._last_line = time.monotonic()
        self._bar = None

    def __enter__(self) -> Self:
        if self._shown and sys.stderr.isatty():
            columns = TextColumn("iteration {task.fields[number]}"), BarColumn()
            text = TextColumn("{task.description}")
            self._bar = Progress(*columns, text, console=Console(stderr=True), transient=True)
            self._bar.add_task("", total=1.0, number=0)
            self._bar.start()
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, iteration: int, update: float, size: float, mae: float) -> None:
        """Show an iteration; the numbers are those of `Monitor`."""
        if not self._shown:
            return
        text = f"update {update:.1e}" + ("" if math.isnan(mae) else f", MAE {mae:.1e}")
        if self._bar is not None:
            done = self._done(update, size, mae)
            self._bar.update(
                self._bar.task_ids[0], completed=done, description=text, number=iteration
            )
        elif time.monotonic() - self._last_line > _SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            click.echo(f"iteration {iteration}: {text}", err=True)

    def _done(self, update: float, size: float, mae: float) -> float:
        """Return the share of the way, on a logarithmic scale."""
        now, aim = (update, self._rtol * size) if self._mae is None else (mae, self._mae)
        if not (0 < aim < now < math.inf):
            return 0.0 if now > 0 else 1.0
        self._first = max(self._first or now, now)
        return math.log(self._first / now) / max(math.log(self._first / aim), 1e-9)
