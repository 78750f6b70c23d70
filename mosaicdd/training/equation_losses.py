"""The losses of a network that gives solutions of a linear equation: on data, and by the equation itself."""

import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.network import Network
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.training.losses import GridResidual, UnitOperator, data_loss, pde_residual
from mosaicdd.training.samples import Pass
from mosaicdd.training.settings import TrainingSettings


class EquationLosses:
    """Returns the mean loss of a pass.

    Attributes
    ----------
    grid_residual
        Of a discrete PDE loss; None for a continuous one.
    """

    def __init__(
        self,
        network: Network,
        operator: EllipticOperator,
        subdomain: Subdomain,
        settings: TrainingSettings,
    ):
        self._network, self._settings = network, settings
        self.grid_residual: GridResidual | None = None
        self._operator: UnitOperator | None = None
        if not settings.pde_weight:
            return
        if settings.residual == "continuous":
            self._operator = UnitOperator.of(operator, subdomain)
        else:
            # A linear network is evaluated on all nodes anyway.
            self.grid_residual = GridResidual(
                operator,
                subdomain,
                0 if network.linear else settings.collocation,
                settings.residual == "multilevel",
                next(network.parameters()).detach().new_empty(0),
            )

    def __call__(self, part: Pass) -> torch.Tensor:
        """Return the loss of a pass with targets on data, of one without by the equation."""
        if part.target is None:
            return self._settings.pde_weight * self._pde_loss(part)
        if part.points is None:
            raise TypeError("a pass of the data loss needs points")
        bf16 = self._settings.precision == "bf16"
        with torch.autocast(part.g.device.type, dtype=torch.bfloat16, enabled=bf16):
            return data_loss(self._network, part.g, part.points, part.target)

    def _pde_loss(self, part: Pass) -> torch.Tensor:
        if self.grid_residual is not None and part.corner is not None:
            return self.grid_residual.loss(self._network, part.g, part.corner)
        if self._operator is not None and part.points is not None:
            laplacian = self._settings.laplacian
            residual = pde_residual(self._network, self._operator, part.g, part.points, laplacian)
            return residual.square().mean()
        raise TypeError("a pass of the PDE loss needs points, or a window of a discrete residual")
