"""The paper's subdomain network (section 3, Fig. 3): SDNet.

Circular 1-D convolutions embed the perimeter; behind them stands the split first layer and the
multilayer perceptron of `MLP`.

Beside it the paper's baseline for the split layer (section 3.2), with concatenated inputs: the embedded perimeter is
copied for every query point and concatenated with the position (eqs. 5 and 6). The function, and the weights, are those
of `SDNet` without symmetry; only time and memory differ.

Shape letters: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q`` query points, ``C`` channels, ``F`` features of a
position, ``D`` width.
"""

from dataclasses import dataclass

import torch

from mosaicdd.local_solvers.networks.mlp import MLP, MLPSettings, PreparedPoints


@dataclass(frozen=True)
class SDNetSettings(MLPSettings):
    """Settings of `SDNet`: besides those of its perceptron, of the convolutions along the perimeter."""

    channels: int = 8
    kernel: int = 5  # odd
    convolutions: int = 2

    network = "an sdnet"

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.channels, self.convolutions) < 1:
            raise ValueError(
                f"{self.network} needs channels and convolutions >= 1, got {self.channels} and "
                f"{self.convolutions}"
            )
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"the kernel of {self.network} must be odd, got {self.kernel}")


class SDNet(MLP):
    """Convolutions, split first layer, perceptron."""

    Settings = SDNetSettings

    def __init__(self, perimeter: int, settings: SDNetSettings):
        super().__init__(perimeter, settings)
        layers: list[torch.nn.Module] = []
        size = 1
        for _ in range(settings.convolutions):
            layers.append(
                torch.nn.Conv1d(
                    size,
                    settings.channels,
                    settings.kernel,
                    padding=settings.kernel // 2,
                    padding_mode="circular",
                )
            )
            layers.append(torch.nn.GELU())
            size = settings.channels
        self.convolutions = torch.nn.Sequential(*layers)

    @property
    def channels(self) -> int:
        """Channels ``C`` of the last convolution."""
        return self.settings.channels

    def embed(self, g: torch.Tensor) -> torch.Tensor:
        """Convolve perimeters ``(B, P)`` to embeddings ``(B, C P)``."""
        return self.convolutions(g[:, None]).flatten(1)


@dataclass(frozen=True)
class SDNetConcatSettings(SDNetSettings):
    """Settings of `SDNetConcat`: those of `SDNet`, without symmetry."""

    symmetric: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.symmetric:
            raise ValueError(
                "an sdnet-concat sees the perimeter as it is: leave symmetric false, or use sdnet"
            )


class SDNetConcat(SDNet):
    """Convolutions, concatenated first layer, perceptron."""

    Settings = SDNetConcatSettings

    def _position(self, features: torch.Tensor) -> torch.Tensor:
        """Keep the features as they are: they are concatenated."""
        return features

    def _first_layer(self, g: torch.Tensor, prepared: PreparedPoints) -> torch.Tensor:
        """Return ``[g, X] [W1, W2]^T``, ``(B, Q, D)``."""
        features = prepared.position
        copies = self.embed(g)[:, None].expand(-1, features.shape[-2], -1)  # (B, Q, C P)
        inputs = torch.cat([copies, features.expand(len(g), -1, -1)], dim=-1)
        weight = torch.cat([self.boundary_layer.weight, self.point_layer.weight], dim=1)
        return torch.nn.functional.linear(inputs, weight, self.point_layer.bias)
