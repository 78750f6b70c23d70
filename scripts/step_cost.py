"""Time and memory of a forward and backward pass, for the benchmarks of training."""

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


def kept_bytes(forward: Callable[[], torch.Tensor]) -> int:
    """Return the bytes that a forward pass keeps for its backward pass, weights included."""
    storages: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = forward()
        total = sum(storages.values())
        del loss
    return total
