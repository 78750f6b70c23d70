"""What sees a position: its coordinates, sines and cosines of random waves, and a perceptron of these."""

from dataclasses import dataclass
from typing import ClassVar

import torch


class FourierFeatures(torch.nn.Module):
    """Map points ``(..., 2)`` in ``[-1, 1]`` to ``(..., 2 + 2 count)``.

    Parameters
    ----------
    count
        Number of random waves; 0 leaves the coordinates alone.
    sigma
        Standard deviation of their wave numbers, in radians per half side.
    """

    wave_numbers: torch.Tensor

    def __init__(self, count: int, sigma: float):
        super().__init__()
        self.size = 2 + 2 * count
        self.register_buffer("wave_numbers", sigma * torch.randn(2, count))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return coordinates, sines and cosines."""
        phase = points @ self.wave_numbers
        return torch.cat([points, torch.sin(phase), torch.cos(phase)], dim=-1)


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
        """Return hidden layers with GELU and a linear last one, all of this width."""
        made: list[torch.nn.Module] = []
        for _ in range(self.depth):
            made += [torch.nn.Linear(inputs, self.width), torch.nn.GELU()]
            inputs = self.width
        return [*made, torch.nn.Linear(inputs, self.width)]
