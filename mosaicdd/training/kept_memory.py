"""How much a forward pass keeps for its backward pass."""

from collections.abc import Callable

import torch


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
