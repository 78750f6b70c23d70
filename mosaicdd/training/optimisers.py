"""Optimisers by name, and the learning rate: warm-up, then polynomial decay to zero (section 5.2).

SOAP comes from pytorch_optimizer, AdamW and Muon from torch. Weight decay is zero in all of them, as
in the paper.

LAMB (You et al. 2020) is apex's FusedLAMB, which the paper used, with its switch in the open: Adam
with bias correction, whose update of each weight is then scaled by the ratio of the weight's norm to
the update's. FusedLAMB leaves that scaling out when the weight decay is zero, so the paper's runs
were Adam; ``always_adapt`` keeps it. (The `Lamb` of pytorch_optimizer corrects no bias and caps the
weights' norm at 10: another method.)
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from mosaicdd.training.settings import TrainingSettings

_LARGEST_PRECONDITIONED = 512  # a QR factorisation of a wider one costs more than it gains


def build_optimiser(
    parameters: Iterable[torch.nn.Parameter], settings: TrainingSettings, sharded: bool = False
) -> torch.optim.Optimizer:
    """Build the optimiser that the settings name; sharded, of each rank's part of the weights (ZeRO-1)."""
    optimiser, options = _choice(settings)
    if sharded:
        return ZeroRedundancyOptimizer(list(parameters), optimizer_class=optimiser, **options)
    return optimiser(parameters, **options)


def _choice(settings: TrainingSettings) -> tuple[type[torch.optim.Optimizer], dict]:
    """Return the class of an optimiser and its options."""
    options = {"lr": settings.lr, "weight_decay": 0.0}
    if settings.optimizer == "adamw":
        return torch.optim.AdamW, options
    if settings.optimizer == "lamb":
        return Lamb, options | {"always_adapt": settings.always_adapt}
    if settings.optimizer == "muon":
        return MuonWithAdamW, {"lr": settings.lr}
    from pytorch_optimizer import SOAP  # takes a second to import

    return SOAP, options | {"max_precondition_dim": _LARGEST_PRECONDITIONED}


def learning_rate_factor(progress: float, warmup: float, exponent: float = 1.0) -> float:
    """Return the fraction of the greatest learning rate, at a fraction of the training that is done.

    It rises over the warm-up, then decays as ``(1 - t)**exponent`` over the time ``t`` after that.
    """
    if progress < warmup:
        return max(progress, 1e-3) / warmup
    return max(0.0, (1.0 - progress) / (1.0 - warmup)) ** exponent


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

    # torch declares two: with a closure, whose loss is returned, and without.
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
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


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for the matrices, AdamW for all else: biases and convolutions.

    Muon's step is scaled to the size of AdamW's, so one learning rate serves both.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float):
        super().__init__(parameters, {"lr": lr})
        weights = [p for group in self.param_groups for p in group["params"]]
        matrices = [p for p in weights if p.ndim == 2]
        others = [p for p in weights if p.ndim != 2]
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            self._parts.append(
                torch.optim.Muon(matrices, lr=lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
            )
        if others:
            self._parts.append(torch.optim.AdamW(others, lr=lr, weight_decay=0.0))

    # torch declares two: with a closure, whose loss is returned, and without.
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all weights that have a gradient; a closure is not called."""
        for part in self._parts:
            part.param_groups[0]["lr"] = self.param_groups[0]["lr"]
            part.step()

    def state_dict(self) -> dict:
        """Return the state of both optimisers."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict) -> None:
        """Take up the state of both optimisers."""
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)


class TrainingDivergedError(RuntimeError):
    """The loss or the gradient became NaN or infinite; the message names the step."""


def require_finite_step(loss: float, norm: float, step: int, steps: int, lr: float) -> None:
    """Raise `TrainingDivergedError` before a step whose loss or gradient's norm is not finite."""
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise TrainingDivergedError(
            f"the loss is {loss} and the gradient's norm {norm} at step {step} of {steps}; "
            f"lower lr (now {lr:g})"
        )
