"""How long a call takes on a machine that others use, too."""

import time
from collections.abc import Callable

import torch


def seconds_per_call(function: Callable[[], object], seconds: float = 1.5) -> float:
    """Return the least of several times; on a processor its own time, that of others left out."""
    clock = time.perf_counter if torch.cuda.is_available() else time.thread_time
    function()
    best, start, calls = float("inf"), clock(), 0
    while clock() - start < seconds or calls < 5:
        before = clock()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, clock() - before)
        calls += 1
    return best
