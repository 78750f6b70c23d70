"""What a network is: what local solvers and training ask for, its weights in files, and how some see a position."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch


class Network(torch.nn.Module):
    """A network ``N`` of perimeter values and points, as `registry` describes it."""

    # Settings, settings: A frozen dataclass, and the network's own
    Settings: ClassVar[type[Any]]
    settings: Any
    linear: bool  # whether it is linear in the perimeter values
    axes: ClassVar[tuple[int, ...]] = (2,)  # of the subdomains that it can be for
    # Whether it is for equations that have their symmetries alone
    symmetric_only: ClassVar[bool] = False
    # Whether its values there are no worse than interpolated ones
    between_nodes: ClassVar[bool] = True
    # Whether hidden layers are computed again in a backward pass; of networks that can
    recompute: bool

    def prepare(self, points: torch.Tensor) -> Any:
        """Prepare points ``(Q, 2)`` or ``(B, Q, 2)``; a linear network's operator ``(Q, P)`` or ``(B, Q, P)``."""
        raise NotImplementedError

    def apply_prepared(self, g: torch.Tensor, prepared: Any) -> torch.Tensor:
        """Return the values ``(B, Q)`` for perimeters ``(B, P)`` at the prepared points, here by a linear operator."""
        return g @ prepared.T if prepared.ndim == 2 else torch.einsum("bp,bqp->bq", g, prepared)

    def forward(self, g: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """Return the values ``(B, Q)`` at points ``(Q, 2)`` or, one set each, ``(B, Q, 2)``."""
        return self.apply_prepared(g, self.prepare(points))


def require_counts(network: str, settings: Any) -> None:
    """Raise `ValueError` if a whole number among a network's settings is below 1."""
    counts = {f.name: getattr(settings, f.name) for f in fields(settings) if f.type is int}
    if min(counts.values()) < 1:
        raise ValueError(
            f"{network} needs {', '.join(counts)} of at least 1, got {tuple(counts.values())}"
        )


def extract_weights(network: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return the weights of a network as float32 arrays by name."""
    return {name: value.cpu().float().numpy() for name, value in network.state_dict().items()}


def insert_weights(network: torch.nn.Module, weights: dict[str, np.ndarray]) -> None:
    """Put weights into a network; `ValueError` if one is missing, unknown or of another shape."""
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


class FourierFeatures(torch.nn.Module):
    """Map points ``(..., axes)`` in ``[-1, 1]`` to ``(..., axes + 2 count)``.

    Parameters
    ----------
    count
        Number of random waves; 0 leaves the coordinates alone.
    sigma
        Standard deviation of their wave numbers, in radians per half side.
    """

    wave_numbers: torch.Tensor

    def __init__(self, count: int, sigma: float, axes: int = 2):
        super().__init__()
        self.size = axes + 2 * count
        self.register_buffer("wave_numbers", sigma * torch.randn(axes, count))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return coordinates, sines and cosines."""
        phase = points @ self.wave_numbers
        return torch.cat([points, torch.sin(phase), torch.cos(phase)], dim=-1)


def perceptron(inputs: int, width: int, depth: int, outputs: int) -> list[torch.nn.Module]:
    """Return so many hidden layers of a width, with GELU, and a linear last one."""
    layers: list[torch.nn.Module] = []
    for _ in range(depth):
        layers += [torch.nn.Linear(inputs, width), torch.nn.GELU()]
        inputs = width
    return [*layers, torch.nn.Linear(inputs, outputs)]


@dataclass(frozen=True)
class TrunkSettings:
    """Settings of networks in which a perceptron sees the position."""

    # width, depth: width ``D`` of hidden layers, and their number
    width: int = 128
    depth: int = 2
    # features, sigma: number of Fourier features and their scale, as `FourierFeatures`
    features: int = 64
    sigma: float = 5.0

    network: ClassVar[str] = "a network"

    def __post_init__(self) -> None:
        if min(self.width, self.depth) < 1 or self.features < 0 or not self.sigma > 0:
            raise ValueError(
                f"{self.network} needs width >= 1, depth >= 1, features >= 0 and sigma > 0, got "
                f"{self.width}, {self.depth}, {self.features} and {self.sigma}"
            )

    def layers(self, inputs: int) -> list[torch.nn.Module]:
        """Return a `perceptron` whose outputs are of this width, too."""
        return perceptron(inputs, self.width, self.depth, self.width)
