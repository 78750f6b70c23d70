"""The loss of one forward pass, as a module: what data-parallel wrappers reduce the gradient of."""

from collections.abc import Callable
from typing import Any

import torch

SIGNALS = ("data_loss", "pde_loss", "seconds", "stop", "save")


class Objective(torch.nn.Module):
    """A network and its losses.

    What the ranks tell each other beside the gradient travels inside it: `signals` is a parameter
    that stays zero, and whose gradient is whatever each rank puts there. So a step has one
    reduction, and all ranks know the loss, the clock of rank 0 and each other's interrupts.

    Parameters
    ----------
    loss
        Returns the mean loss of a pass, by the network.
    """

    def __init__(self, network: torch.nn.Module, loss: Callable[[Any], torch.Tensor]):
        super().__init__()
        self.network = network
        self.signals = torch.nn.Parameter(next(network.parameters()).new_zeros(len(SIGNALS)))
        self._loss = loss

    def weights(self) -> list[torch.nn.Parameter]:
        """Return the parameters of the network."""
        return list(self.network.parameters())

    def forward(self, part: Any, flags: torch.Tensor) -> torch.Tensor:
        """Return the loss of one pass, whose gradient also carries the loss and the flags."""
        loss = part.share * self._loss(part)
        tell = flags.clone()
        tell[SIGNALS.index(part.kind)] = loss.detach()
        return _Complete.apply(loss, tell, self.signals, *self.network.parameters())


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
