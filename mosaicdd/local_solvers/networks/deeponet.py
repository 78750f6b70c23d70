"""DeepONet (Lu et al. 2021): a branch network of the perimeter times a trunk of the position.

``u(x; g) = b(g) . t(x) + c``: both are perceptrons with GELU, so the points are evaluated once for
any number of perimeters, and the network is not linear in them.

Shape letters: ``B`` subdomains, ``P = 4 m`` perimeter nodes, ``Q`` query points, ``D`` width.
"""

from dataclasses import dataclass

import torch

from mosaicdd.local_solvers.networks.features import FourierFeatures, TrunkSettings
from mosaicdd.local_solvers.networks.network import Network
from mosaicdd.local_solvers.networks.taylor import (
    Coefficients,
    Jet,
    features_jet,
    trunk_jet,
    unit_directions,
)


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
