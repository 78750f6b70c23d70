"""The paper's subdomain network (section 3, Fig. 3): SDNet.

Circular 1-D convolutions embed the perimeter; behind them stands the split first layer and the
multilayer perceptron of `MLP`.

Shape letters: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``C`` channels.
"""

from dataclasses import dataclass

import torch

from mosaicdd.local_solvers.networks.mlp import MLP


@dataclass(frozen=True)
class SDNetSettings:
    """Settings of `SDNet`.

    Parameters
    ----------
    channels, kernel, convolutions
        Of the circular convolutions along the perimeter; ``kernel`` is odd.
    width, depth
        Of the perceptron: width ``D`` and hidden layers, the split one included.
    features, sigma
        Number of Fourier features and their scale, as `FourierFeatures`.
    symmetric
        Whether the equation has the symmetries of the square, and the network uses them: a point
        is folded into a triangle and sees the embedding of the perimeter moved along with it.
    """

    channels: int = 8
    kernel: int = 5
    convolutions: int = 2
    width: int = 64
    depth: int = 3
    features: int = 32
    sigma: float = 5.0
    symmetric: bool = True

    def __post_init__(self) -> None:
        counts = (self.channels, self.convolutions, self.width, self.depth)
        if min(counts) < 1 or self.features < 0 or not self.sigma > 0:
            raise ValueError(
                "an sdnet needs channels, convolutions, width and depth >= 1, features >= 0 and "
                f"sigma > 0, got {counts}, {self.features} and {self.sigma}"
            )
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"the kernel of an sdnet must be odd, got {self.kernel}")


class SDNet(MLP):
    """Convolutions, split first layer, perceptron.

    Parameters
    ----------
    perimeter
        Number of perimeter nodes, ``P = 4 m``.
    """

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
