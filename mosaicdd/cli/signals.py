"""The signals that end long work early, and well: a checkpoint is written first."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from mosaicdd.parallel.watch import Watch

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


@contextmanager
def listening(watch: Watch) -> Iterator[None]:
    """Let signals interrupt the work; a second one ends the program as usual."""

    def interrupt(number, frame) -> None:
        watch.interrupt()
        signal.signal(number, before[number])

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
