"""How much a forward pass keeps for its backward pass."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

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
        few, more = (kept_bytes(lambda count=count: forward(count)) for count in PROBES)
        slope = (more - few) / (PROBES[1] - PROBES[0])
        return cls(few - slope * PROBES[0], slope)

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
