"""What numba leaves of loops that it compiles: files for later processes, and a line for who waits."""

import contextlib
import fcntl
import logging
import time
from typing import Any

from numba.core import event
from numba.core.caching import FunctionCache

from mosaicdd.parallel.launcher import launcher_rank

logger = logging.getLogger(__name__)

_LONG = 2.0  # seconds of compilation that a user would wonder about


class Notice(event.Listener):
    """Says once that compilation of the package's loops takes long."""

    def __init__(self) -> None:
        self._depth, self._begun, self._spent = 0, 0.0, 0.0

    def on_start(self, event: Any) -> None:
        """Begin to measure, unless it is for a loop that calls this one."""
        if _is_ours(event):
            if not self._depth:
                self._begun = time.monotonic()
            self._depth += 1

    def on_end(self, event: Any) -> None:
        """Add up seconds; tell when they become long."""
        if not _is_ours(event):
            return
        self._depth -= 1
        if self._depth:
            return
        before = self._spent
        self._spent += time.monotonic() - self._begun
        if before <= _LONG < self._spent:
            logger.warning("compiling loops for this processor, which takes some seconds, once")


def _is_ours(event: Any) -> bool:
    return event.data["dispatcher"].py_func.__module__.startswith("mosaicdd.")


if launcher_rank() == 0:
    event.register("numba:compile", Notice())


class Files(FunctionCache):
    """Compiled code in files, which processes that start together write in turns; where none can be written it is not kept."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write what was compiled for some types."""
        with contextlib.suppress(OSError), open(f"{self._cache_path}/kernels.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            super().save_overload(sig, data)
