"""What may call long work away, with a checkpoint written first: a signal, and the clock of its checkpoints.

Each rank hears its own signals; what it hears travels in the reduction that every iteration (of a
solve) or step (of a training) makes anyway, so all ranks save, or stop, after the same one.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol


class Watch:
    """Listens for one rank.

    Parameters
    ----------
    save
        Writes a checkpoint of the work, which calls it with what is to be kept; without it none are
        kept.
    seconds
        Between two checkpoints.
    interrupts
        When it was asked to stop; shared by the watches of the parts of some work.
    """

    def __init__(
        self,
        save: Callable[..., None] | None = None,
        seconds: float = float("inf"),
        interrupts: list[float] | None = None,
    ):
        self.save = save
        self._seconds = seconds
        self._saved = time.monotonic()
        self._interrupts = [] if interrupts is None else interrupts

    def saving(self, save: Callable[..., None], seconds: float) -> "Watch":
        """Return a watch of a part of the work, which hears the same interrupts and keeps checkpoints by a function."""
        return Watch(save, seconds, self._interrupts)

    def interrupt(self) -> None:
        """Ask for the work to stop; may be called by a signal handler."""
        self._interrupts.append(time.monotonic())

    @property
    def interrupted(self) -> bool:
        """Whether this rank was asked to stop."""
        return bool(self._interrupts)

    def calls(self) -> tuple[float, float]:
        """Return, as numbers to add up over the ranks: stop, save."""
        due = self.save is not None and time.monotonic() - self._saved >= self._seconds
        return float(self.interrupted), float(due)

    def keep(self, *state: Any) -> None:
        """Write a checkpoint of a state, if any are kept."""
        if self.save is not None:
            self.save(*state)
        self.saved()

    def saved(self) -> None:
        """Note that a checkpoint has been written: the clock starts anew."""
        self._saved = time.monotonic()


_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Interruptible(Protocol):
    """Work that may be asked to stop."""

    def interrupt(self) -> None:
        """Ask it to stop; called by a signal handler."""
        ...


@contextmanager
def listening(work: Interruptible, notice: str = "") -> Iterator[None]:
    """Let signals interrupt the work, with a notice on stderr at once; a second one ends the program as usual."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        work.interrupt()
        if notice:
            os.write(sys.stderr.fileno(), f"\n{notice}\n".encode())
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
