"""What ends a job whose program raises on one rank, while others may wait for that one.

An exception that nothing catches ends one process; MPI lets the others wait. While a solver on several
ranks is open, it ends all of them, after its traceback. Exceptions that are caught are not touched.
"""

import sys
from collections.abc import Callable
from types import TracebackType

from mosaicdd.parallel.launcher import abort_all_ranks

_held: set[object] = set()
_before = sys.excepthook


def abort_uncaught(*, several: bool) -> Callable[[], None]:
    """Let what nothing catches end all ranks, until what is returned is called.

    Parameters
    ----------
    several
        Whether there are several ranks; for one nothing changes.
    """
    global _before
    if not several:
        return lambda: None
    token = object()
    if not _held:
        _before, sys.excepthook = sys.excepthook, _end
    _held.add(token)

    def release() -> None:
        _held.discard(token)
        if not _held and sys.excepthook is _end:
            sys.excepthook = _before

    return release


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _before(kind, error, trace)
    abort_all_ranks()
