"""How much a forward pass keeps for its backward pass, and what that says of passes and devices.

On a processor, passes that keep a bounded number of bytes make the memory of a step independent of
the batch, and its time proportional: what one pass frees, the next one takes. glibc hands freed
memory back to the system where more than its thresholds lies idle, and every page that it asks for
anew is a fault; for large passes of the PDE loss they are a third of the time.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mosaicdd.training.objective import Objective

_PASS_BYTES = 2**25
PROBES = (2, 4)
"""Samples of the passes that are measured."""


@dataclass(frozen=True)
class KeptBytes:
    """What a forward pass keeps: a straight line in the number of its samples.

    Parameters
    ----------
    fixed
        Bytes of weights, points and whatever is evaluated once for all samples.
    per_sample
        Bytes that each sample adds.
    """

    fixed: float
    per_sample: float

    @classmethod
    def of_forward(cls, forward: Callable[[int], torch.Tensor]) -> "KeptBytes":
        """Measure passes over two small numbers of samples."""
        few, more = (kept_bytes(functools.partial(forward, count)) for count in PROBES)
        slope = (more - few) / (PROBES[1] - PROBES[0])
        return cls(few - slope * PROBES[0], slope)

    @classmethod
    def of_pass(cls, objective: Objective, part: Any) -> "KeptBytes":
        """Measure passes like one of at least 4 samples."""
        silent = torch.zeros_like(objective.signals)
        return cls.of_forward(lambda count: objective(part.first(count), silent))

    def of(self, samples: int) -> int:
        """Return the bytes for a number of samples."""
        return round(self.fixed + self.per_sample * samples)


def kept_bytes(forward: Callable[[], torch.Tensor]) -> int:
    """Return the bytes of all tensors that a forward pass keeps, weights and inputs included."""
    storages: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = forward()  # alive, so that no storage is used twice
        total = sum(storages.values())
        del loss
    return total


def samples_per_pass(objective: Objective, passes: list[Any]) -> int:
    """Return how many samples a pass may have, so that they keep 32 MB for its backward pass.

    What is evaluated once for all samples of a pass does not count: more passes would not keep less.
    """
    if len(passes[0]) < max(PROBES):
        return len(passes[0])
    largest = max(KeptBytes.of_pass(objective, part).per_sample for part in passes)
    return max(1, int(_PASS_BYTES / largest))


def hold_freed_memory() -> None:
    """Let the C library keep what a pass frees.

    glibc takes the largest block freed so far as the size from which blocks come from the system one
    by one, and twice that as what may lie idle; 32 MB is the most that it learns from. The block is
    never touched, so this costs nothing, nor does it anything elsewhere.
    """
    torch.empty(_PASS_BYTES - 2**16, dtype=torch.uint8)
