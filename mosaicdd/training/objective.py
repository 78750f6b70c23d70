"""The loss of one forward pass, as a module: what data-parallel wrappers reduce the gradient of.

Shape letters: ``B`` subdomains of this pass, ``P`` perimeter nodes, ``Q`` points.
"""

from typing import Any

import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.networks.network import Network
from mosaicdd.local_solvers.networks.registry import is_family
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.storage.dataset_file import Dataset
from mosaicdd.training.family import require_operators
from mosaicdd.training.losses import GridResidual, UnitOperator, data_loss, pde_residual
from mosaicdd.training.samples import Pass
from mosaicdd.training.settings import ExecutionSettings, TrainingSettings
from mosaicdd.unsupported import Unsupported

SIGNALS = ("data_loss", "pde_loss", "seconds", "stop", "save")


class Objective(torch.nn.Module):
    """A network and its losses.

    What the ranks tell each other beside the gradient travels inside it: `signals` is a parameter
    that stays zero, and whose gradient is whatever each rank puts there. So a step has one
    reduction, and all ranks know the loss, the clock of rank 0 and each other's interrupts.
    """

    def __init__(
        self,
        network: Network,
        operator: EllipticOperator | None,
        subdomain: Subdomain,
        settings: TrainingSettings,
    ):
        super().__init__()
        self.network = network
        self.signals = torch.nn.Parameter(next(network.parameters()).new_zeros(len(SIGNALS)))
        self._settings = settings
        self.grid_residual: GridResidual | None = None
        self._operator: UnitOperator | None = None
        if operator is None or not settings.pde_weight:
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
                self.signals.detach(),
            )

    def weights(self) -> list[torch.nn.Parameter]:
        """Return the parameters of the network."""
        return list(self.network.parameters())

    def forward(self, part: Pass, flags: torch.Tensor) -> torch.Tensor:
        """Return the loss of one pass, whose gradient also carries the loss and the flags."""
        if part.target is None:
            kind, loss = "pde_loss", self._pde_loss(part)
        else:
            kind, loss = "data_loss", self._data_loss(part, part.target)
        loss = part.share * loss
        position = SIGNALS.index(kind)
        tell = flags.clone()
        tell[position] = loss.detach()
        return _Complete.apply(loss, tell, self.signals, *self.network.parameters())

    def _data_loss(self, part: Pass, target: torch.Tensor) -> torch.Tensor:
        if part.points is None:
            return torch.nn.functional.mse_loss(self.network(part.g), target)
        bf16 = self._settings.precision == "bf16"
        with torch.autocast(part.g.device.type, dtype=torch.bfloat16, enabled=bf16):
            return data_loss(self.network, part.g, part.points, target)

    def _pde_loss(self, part: Pass) -> torch.Tensor:
        if self.grid_residual is not None and part.corner is not None:
            loss = self.grid_residual.loss(self.network, part.g, part.corner)
        elif self._operator is not None and part.points is not None:
            laplacian = self._settings.laplacian
            residual = pde_residual(self.network, self._operator, part.g, part.points, laplacian)
            loss = residual.square().mean()
        else:
            raise TypeError(
                "a pass of the PDE loss needs points, or a window of a discrete residual"
            )
        return self._settings.pde_weight * loss


def require_trainable(
    network: Network,
    settings: TrainingSettings,
    execution: ExecutionSettings,
    dataset: Dataset,
) -> None:
    """Check that a network can be trained on a dataset as the settings ask.

    Raises
    ------
    ValueError
        If the losses cannot tell the solution from other functions of the network, it cannot recompute
        its layers, it cannot represent the solutions of the dataset's equation, or that holds too few
        operators for a family.
    """
    operators = [operator for operator, _ in dataset.operators(slice(None))]
    if is_family(network) and (settings.pde_weight or not settings.labels):
        raise ValueError(
            "a network for a family learns from solutions alone: leave labels on and pde_weight 0"
        )
    if is_family(network):
        require_operators(network, dataset)
    elif len(operators) > 1:
        raise ValueError(
            f"the dataset is of {len(operators)} operators and this network learns one; train the "
            "network family, or generate data for fixed parameters"
        )
    if execution.recompute and not hasattr(network, "recompute"):
        raise Unsupported(
            "this network cannot recompute its hidden layers (mlp, sdnet and sdnet-concat can); leave "
            "recompute away"
        )
    if execution.recompute and settings.laplacian == "autograd":
        raise Unsupported("double backward cannot recompute hidden layers; use laplacian taylor")
    folds = getattr(network, "symmetry", None) is not None
    if folds and not operators[0].symmetric:
        raise ValueError(
            f"{dataset.pde} lacks the symmetries of the square that this network has; set its setting "
            "symmetric to false"
        )
    if folds and not settings.labels and settings.residual == "continuous":
        raise ValueError(
            "without labels a symmetric network has kinks where it folds points, which collocation "
            "points do not see; use residual multilevel, or a network that is not symmetric"
        )


class _Complete(torch.autograd.Function):
    """Make the signals and every weight a part of the loss's graph.

    The gradient of the signals is what is to be told, that of the weights nothing more: the PDE loss
    does not see a last bias, and a wrapper that waits for all gradients would wait on.
    """

    @staticmethod
    def forward(
        ctx: Any,
        loss: torch.Tensor,
        tell: torch.Tensor,
        signals: torch.Tensor,
        *weights: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(tell)
        ctx.count = len(weights)
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (tell,) = ctx.saved_tensors
        return grad, None, grad * tell, *([None] * ctx.count)
