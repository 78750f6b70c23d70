"""The weights of a network as arrays, as files keep them."""

import numpy as np
import torch


def extract_weights(network: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return the weights of a network as float32 arrays by name."""
    return {name: value.cpu().float().numpy() for name, value in network.state_dict().items()}


def insert_weights(network: torch.nn.Module, weights: dict[str, np.ndarray]) -> None:
    """Put weights into a network.

    Raises
    ------
    ValueError
        If a weight is missing, unknown or of another shape than the network's.
    """
    expected = network.state_dict()
    if different := sorted(expected.keys() ^ weights.keys()):
        raise ValueError(
            f"the weights do not fit the network: {', '.join(different)} missing or unknown"
        )
    for name, values in weights.items():
        if values.shape != tuple(expected[name].shape):
            raise ValueError(
                f"weight {name!r} has the shape {values.shape}, the network needs "
                f"{tuple(expected[name].shape)}"
            )
    network.load_state_dict({name: torch.as_tensor(values) for name, values in weights.items()})
