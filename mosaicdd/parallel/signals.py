"""The signals that end long work early, and well: a checkpoint is written first."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Interruptible(Protocol):
    """Work that may be asked to stop."""

    def interrupt(self) -> None:
        """Ask it to stop; called by a signal handler."""
        ...


@contextmanager
def listening(work: Interruptible, notice: str = "") -> Iterator[None]:
    """Let signals interrupt the work; a second one ends the program as usual.

    Parameters
    ----------
    notice
        Said on stderr at once, because the work goes on until it has a good end.
    """

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
