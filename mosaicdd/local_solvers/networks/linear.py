"""The network that is linear in the boundary: ``u(x) = t(x) . W g``.

The trunk ``t`` depends nonlinearly on the position, so at fixed points the network is a matrix
``(Q, P)``, evaluated once for any number of perimeters.

Shape letters: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q`` query points, ``D`` width.
"""

from dataclasses import dataclass
from typing import cast

import torch

from mosaicdd.local_solvers.networks.features import FourierFeatures, TrunkSettings
from mosaicdd.local_solvers.networks.network import Network
from mosaicdd.local_solvers.networks.symmetry import SquareSymmetry
from mosaicdd.local_solvers.networks.taylor import (
    Coefficients,
    Jet,
    features_jet,
    trunk_jet,
    unit_directions,
)


@dataclass(frozen=True)
class LinearSettings(TrunkSettings):
    """Settings of `LinearNetwork`: width is that of the branch, too."""

    sigma: float = 8.0
    # Whether the equation has the symmetries of the square, and the network uses them
    symmetric: bool = True

    network = "a linear network"


class LinearNetwork(Network):
    """Trunk of the position times a branch matrix."""

    Settings = LinearSettings
    linear = True

    def __init__(self, perimeter: int, settings: LinearSettings):
        super().__init__()
        self.settings = settings
        features = FourierFeatures(settings.features, settings.sigma)
        self.trunk = torch.nn.Sequential(features, *settings.layers(features.size))
        scale = (settings.width * perimeter) ** -0.5
        self.branch = torch.nn.Parameter(scale * torch.randn(settings.width, perimeter))
        self.symmetry = SquareSymmetry(perimeter) if settings.symmetric else None

    def prepare(self, points: torch.Tensor) -> torch.Tensor:
        """Return the operator ``(Q, P)`` at points ``(Q, 2)`` in ``[-1, 1]``, order (y, x); see `Network.prepare`."""
        if self.symmetry is None:
            return self.trunk(points) @ self.branch
        fold = self.symmetry.fold(points.reshape(-1, 2), merge=points.ndim == 2)
        rows = self.symmetry.unfold(self.trunk(fold.canonical) @ self.branch, fold)
        return rows.view(*points.shape[:-1], -1)

    def jet(self, g: torch.Tensor, points: torch.Tensor, a: Coefficients, second_only: bool) -> Jet:
        """Return values and derivatives ``(B, Q)`` at points ``(Q, 2)``, as `taylor`.

        Those of the operator, once for the whole batch; its rows are then applied to ``g``.
        """
        features, *layers = self.trunk
        if self.symmetry is None:
            canonical, directions = points, unit_directions(points)
        else:
            canonical, directions, nodes = self.symmetry.locate(points)
        features = cast(FourierFeatures, features)  # the first layer of the trunk
        entering = features_jet(features, canonical, directions, a)
        jet = trunk_jet(layers, entering, a, second_only).map(lambda part: part @ self.branch)
        if self.symmetry is not None:
            jet = jet.map(lambda rows: rows.gather(-1, nodes.expand_as(rows)))
        return jet.map(lambda rows: g @ rows.mT)
