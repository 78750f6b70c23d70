"""LAMB (You et al. 2020), as apex's FusedLAMB that the paper used, with its switch in the open.

Adam with bias correction; the update of each weight is then scaled by the ratio of the weight's
norm to the update's. FusedLAMB leaves that scaling out when the weight decay is zero, so the
paper's runs were Adam; ``always_adapt`` keeps it. The global clip of the gradient belongs to the
training step, which all optimisers share.

The `Lamb` of pytorch_optimizer corrects no bias and caps the weights' norm at 10: another method.
"""

from collections.abc import Iterable

import torch


class Lamb(torch.optim.Optimizer):
    """Adam whose update of each weight has the size of the weight itself.

    Parameters
    ----------
    betas
        Of the means of the gradient and of its square.
    weight_decay
        Coefficient of the weights in the update (decoupled).
    always_adapt
        Whether the update is scaled without weight decay, too.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        always_adapt: bool = False,
    ):
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "always_adapt": always_adapt,
        }
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure=None) -> None:
        """Update all weights that have a gradient; a closure is not called."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group)

    def _update(self, weight: torch.nn.Parameter, group: dict) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros(())
            state["mean"] = torch.zeros_like(weight)
            state["square"] = torch.zeros_like(weight)
        beta1, beta2 = group["betas"]
        state["step"] += 1
        steps = state["step"].item()
        state["mean"].lerp_(weight.grad, 1 - beta1)
        state["square"].mul_(beta2).addcmul_(weight.grad, weight.grad, value=1 - beta2)
        size = (state["square"] / (1 - beta2**steps)).sqrt_().add_(group["eps"])
        update = state["mean"] / (1 - beta1**steps) / size
        update.add_(weight, alpha=group["weight_decay"])
        if group["weight_decay"] or group["always_adapt"]:
            ours, its = torch.linalg.vector_norm(weight), torch.linalg.vector_norm(update)
            update.mul_(torch.where((ours > 0) & (its > 0), ours / its, torch.ones_like(ours)))
        weight.add_(update, alpha=-group["lr"])
