"""From a model file to a local solver, and back.

A bare name of a shipped model stands for its file inside the package; anything else is a path.
"""

from pathlib import Path

import numpy as np
import torch

from mosaicdd.local_solvers.network_solver import NetworkSolver
from mosaicdd.local_solvers.networks.registry import build_network
from mosaicdd.problems.equations import Equation, equation
from mosaicdd.storage.model_file import read_model

SHIPPED = Path(__file__).parent / "shipped"


def shipped_models() -> list[str]:
    """Return the names of the models inside the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.h5"))


def model_path(name_or_path: str) -> Path:
    """Return the file of a shipped model's name, or the path itself.

    Raises
    ------
    FileNotFoundError
        If it is neither; the message lists the shipped models.
    """
    if name_or_path in shipped_models():
        return SHIPPED / f"{name_or_path}.h5"
    path = Path(name_or_path)
    if not path.exists():
        raise FileNotFoundError(
            f"{name_or_path}: neither a model file nor a shipped model; shipped: "
            f"{', '.join(shipped_models()) or 'none'}"
        )
    return path


def load_local_solver(name_or_path: str, needed: Equation | None = None) -> NetworkSolver:
    """Load a network as a local solver; its card says on which subdomain it works.

    Parameters
    ----------
    name_or_path
        A shipped model's name, or a model file.
    needed
        The equation that is to be solved; the model's own if not given.

    Raises
    ------
    FileNotFoundError
        If there is no such model.
    ValueError
        If the file is not a sound model file, or the model solves another equation.
    """
    path = model_path(name_or_path)
    card, weights = read_model(path)
    if needed is not None and card.pde != needed.name:
        raise ValueError(f"{name_or_path}: a model for pde {card.pde}, not for {needed.name}")
    try:
        solved = equation(card.pde)
        network = build_network(card.network, card.settings, card.subdomain)
        insert_weights(network, weights)
        return NetworkSolver(name_or_path, solved, card.subdomain, network, card)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


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
