"""Networks of a trunk, a perceptron of the position, which is evaluated once for any number of perimeters.

One is linear in the boundary, ``u(x) = t(x) . W g``: at fixed points it is a matrix ``(Q, P)``. The other is DeepONet (Lu
et al. 2021), ``u(x; g) = b(g) . t(x) + c``, whose branch ``b`` of the perimeter is a perceptron with GELU, too.

Shape letters: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q`` query points, ``D`` width.
"""

from dataclasses import dataclass
from typing import cast

import torch

from mosaicdd.networks.network import FourierFeatures, Network, Symmetry, TrunkSettings
from mosaicdd.networks.taylor import Coefficients, Jet, features_jet, trunk_jet, unit_directions


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
        self.symmetry = Symmetry(perimeter) if settings.symmetric else None

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


@dataclass(frozen=True)
class DeepONetSettings(TrunkSettings):
    """Settings of `DeepONet`: width and depth are those of both networks."""

    network = "a deeponet"


class DeepONet(Network):
    """Branch times trunk."""

    Settings = DeepONetSettings
    linear = False
    symmetry = None

    def __init__(self, perimeter: int, settings: DeepONetSettings):
        super().__init__()
        self.settings = settings
        self.features = FourierFeatures(settings.features, settings.sigma)
        self.branch = torch.nn.Sequential(*settings.layers(perimeter))
        self.trunk = torch.nn.Sequential(*settings.layers(self.features.size))
        self.constant = torch.nn.Parameter(torch.zeros(()))

    def prepare(self, points: torch.Tensor) -> torch.Tensor:
        """Return the trunk at points ``(..., Q, 2)``: ``(..., Q, D)``."""
        return self.trunk(self.features(points))

    def apply_prepared(self, g: torch.Tensor, prepared: torch.Tensor) -> torch.Tensor:
        """Return the values ``(B, Q)`` for perimeters ``(B, P)`` at the prepared points."""
        if prepared.ndim == 2:
            return torch.addmm(self.constant, self._branch(g), prepared.T)
        return torch.einsum("bd,bqd->bq", self._branch(g), prepared) + self.constant

    def jet(self, g: torch.Tensor, points: torch.Tensor, a: Coefficients, second_only: bool) -> Jet:
        """Return values and derivatives ``(B, Q)`` at points ``(Q, 2)``, as `taylor`.

        The trunk alone depends on the points: it is differentiated once for the whole batch.
        """
        features = features_jet(self.features, points, unit_directions(points), a)
        coefficients = self._branch(g)
        jet = trunk_jet(self.trunk, features, a, second_only)
        jet = jet.map(lambda part: coefficients @ part.mT)
        if jet.value is None:
            return jet
        return Jet(jet.value + self.constant, jet.first, jet.second)

    def _branch(self, g: torch.Tensor) -> torch.Tensor:
        """Return the branch ``(B, D)``, scaled so that values of order 1 come out."""
        return self.branch(g) / self.settings.width**0.5
