"""The paper's baseline for its split layer (section 3.2): SDNet with concatenated inputs.

The embedded perimeter is copied for every query point and concatenated with the position (eqs. 5
and 6). The function, and the weights, are those of `SDNet` without symmetry; only time and memory
differ.

Shape letters: ``B`` subdomains, ``Q`` query points, ``C P`` the embedded perimeter, ``F`` features
of a position, ``D`` width.
"""

from dataclasses import dataclass

import torch

from mosaicdd.local_solvers.networks.mlp import PreparedPoints
from mosaicdd.local_solvers.networks.sdnet import SDNet, SDNetSettings


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
