"""Optimisers by name, and the learning rate: warm-up, then linear decay to zero (section 5.2)."""

from collections.abc import Iterable

import torch

from mosaicdd.training.settings import TrainingSettings

_LARGEST_PRECONDITIONED = 512  # a QR factorisation of a wider one costs more than it gains


def build_optimiser(
    parameters: Iterable[torch.nn.Parameter], settings: TrainingSettings
) -> torch.optim.Optimizer:
    """Build the optimiser that the settings name; weight decay is zero, as in the paper."""
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=settings.lr, weight_decay=0.0)
    from pytorch_optimizer import SOAP  # takes a second to import

    return SOAP(
        parameters,
        lr=settings.lr,
        weight_decay=0.0,
        max_precondition_dim=_LARGEST_PRECONDITIONED,
    )


def learning_rate_factor(progress: float, warmup: float) -> float:
    """Return the fraction of the greatest learning rate.

    Parameters
    ----------
    progress
        Fraction of the training that is done: of its steps or of its time, whichever is greater.
    warmup
        Fraction over which the rate rises.
    """
    if progress < warmup:
        return max(progress, 1e-3) / warmup
    return max(0.0, (1.0 - progress) / (1.0 - warmup))
