"""Optimisers by name, and the learning rate: warm-up, then polynomial decay to zero (section 5.2).

SOAP comes from pytorch_optimizer, AdamW and Muon from torch, LAMB from `training.lamb`. Weight decay
is zero in all of them, as in the paper.
"""

from collections.abc import Iterable

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from mosaicdd.training.lamb import Lamb
from mosaicdd.training.muon import MuonWithAdamW
from mosaicdd.training.settings import TrainingSettings

_LARGEST_PRECONDITIONED = 512  # a QR factorisation of a wider one costs more than it gains


def build_optimiser(
    parameters: Iterable[torch.nn.Parameter], settings: TrainingSettings, sharded: bool = False
) -> torch.optim.Optimizer:
    """Build the optimiser that the settings name.

    Parameters
    ----------
    sharded
        Whether each rank keeps the state of a part of the weights only (ZeRO-1).
    """
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
    """Return the fraction of the greatest learning rate.

    Parameters
    ----------
    progress
        Fraction of the training that is done: of its steps or of its time, whichever is greater.
    warmup
        Fraction over which the rate rises.
    exponent
        Of the decay ``(1 - t)**exponent`` over the time ``t`` after the warm-up.
    """
    if progress < warmup:
        return max(progress, 1e-3) / warmup
    return max(0.0, (1.0 - progress) / (1.0 - warmup)) ** exponent
