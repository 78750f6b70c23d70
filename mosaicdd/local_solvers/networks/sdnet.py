"""The paper's subdomain network (section 3, Fig. 3): SDNet.

Circular 1-D convolutions embed the perimeter; the first layer is split into a part of the boundary
and a part of the position (eqs. 7 and 8), ``phi(g W1^T + X W2^T)``, so the boundary is not copied
for every point; a multilayer perceptron with GELU follows.

Shape letters: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q`` query points, ``D`` width, ``C``
channels, ``F`` features of a position.
"""

from dataclasses import dataclass

import torch

from mosaicdd.local_solvers.networks.features import FourierFeatures
from mosaicdd.local_solvers.networks.symmetry import SquareSymmetry


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

    def __post_init__(self):
        counts = (self.channels, self.convolutions, self.width, self.depth)
        if min(counts) < 1 or self.features < 0 or not self.sigma > 0:
            raise ValueError(
                "an sdnet needs channels, convolutions, width and depth >= 1, features >= 0 and "
                f"sigma > 0, got {counts}, {self.features} and {self.sigma}"
            )
        if self.kernel < 1 or self.kernel % 2 == 0:
            raise ValueError(f"the kernel of an sdnet must be odd, got {self.kernel}")


@dataclass(frozen=True)
class PreparedPoints:
    """What depends on the points only.

    Parameters
    ----------
    position
        The position's part of the first layer, ``(Q, D)`` or ``(B, Q, D)``.
    boundary
        For the perimeter as it is and, if any point needs it, read backwards: the boundary's part
        of the first layer for ``R`` starting nodes, ``(C P, R D)``.
    index
        ``(Q,)`` or ``(B, Q)`` which of all the ``R`` belongs to a point.
    """

    position: torch.Tensor
    boundary: list[tuple[bool, torch.Tensor]]
    index: torch.Tensor


class SDNet(torch.nn.Module):
    """Convolutions, split first layer, perceptron.

    Parameters
    ----------
    perimeter
        Number of perimeter nodes, ``P = 4 m``.
    """

    Settings = SDNetSettings
    linear = False

    def __init__(self, perimeter: int, settings: SDNetSettings):
        super().__init__()
        self.settings = settings
        self.perimeter = perimeter
        self.symmetry = SquareSymmetry(perimeter) if settings.symmetric else None
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
        self.features = FourierFeatures(settings.features, settings.sigma)
        inputs = settings.channels * perimeter
        self.boundary_layer = torch.nn.Linear(inputs, settings.width, bias=False)  # W1
        self.point_layer = torch.nn.Linear(self.features.size, settings.width)  # W2
        tail: list[torch.nn.Module] = [torch.nn.GELU()]
        for _ in range(settings.depth - 1):
            tail += [torch.nn.Linear(settings.width, settings.width), torch.nn.GELU()]
        self.perceptron = torch.nn.Sequential(*tail, torch.nn.Linear(settings.width, 1))

    def embed(self, g: torch.Tensor) -> torch.Tensor:
        """Convolve perimeters ``(B, P)`` to embeddings ``(B, C P)``."""
        return self.convolutions(g[:, None]).flatten(1)

    def prepare(self, points: torch.Tensor) -> PreparedPoints:
        """Fold points ``(..., Q, 2)`` and prepare both parts of the first layer."""
        index = torch.zeros(points.shape[:-1], dtype=torch.long, device=points.device)
        if self.symmetry is None:
            boundary = [(False, self.boundary_layer.weight.T)]
        else:
            fold = self.symmetry.fold(points.reshape(-1, 2), merge=False)
            elements, flat = torch.unique(fold.element, return_inverse=True)
            points, index = fold.canonical.view(points.shape), flat.view(index.shape)
            boundary = self._moved_boundary_layer(elements.tolist())
        return PreparedPoints(self.point_layer(self.features(points)), boundary, index)

    def _moved_boundary_layer(self, elements: list[int]) -> list[tuple[bool, torch.Tensor]]:
        """Return the boundary layer for perimeters moved by symmetries, rotations first.

        Circular convolutions commute with a change of the starting node, so it is moved to the
        weights: one embedding serves all rotations, and one of the reversed perimeter all
        reflections.
        """
        weight = self.boundary_layer.weight.view(-1, self.settings.channels, self.perimeter)
        groups: dict[bool, list[torch.Tensor]] = {}
        for element in elements:
            source = self.symmetry.images[element].argsort()  # moved g is g[source]
            first, reflected = int(source[0]), bool(source[-1] == (source[0] + 1) % self.perimeter)
            shift = self.perimeter - 1 - first if reflected else first
            groups.setdefault(reflected, []).append(weight.roll(shift, dims=2).flatten(1))
        return [(reflected, torch.cat(group).T) for reflected, group in groups.items()]

    def apply_prepared(self, g: torch.Tensor, prepared: PreparedPoints) -> torch.Tensor:
        """Return the values ``(B, Q)`` for perimeters ``(B, P)`` at the prepared points."""
        parts = [
            self.embed(g.flip(1) if reflected else g) @ weight
            for reflected, weight in prepared.boundary
        ]
        boundary = torch.cat(parts, dim=1).view(len(g), -1, self.settings.width)  # (B, R, D)
        if boundary.shape[1] > 1:
            index = prepared.index.expand(len(g), -1)[..., None]
            boundary = boundary.gather(1, index.expand(-1, -1, boundary.shape[-1]))
        return self.perceptron(boundary + prepared.position).squeeze(-1)

    def forward(self, g: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """Return the values ``(B, Q)`` at points ``(Q, 2)`` or, one set each, ``(B, Q, 2)``."""
        return self.apply_prepared(g, self.prepare(points))
