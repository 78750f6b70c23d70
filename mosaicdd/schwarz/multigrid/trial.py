"""A trial of multigrid on all of a medium of high contrast, before anything is solved with it."""

import math

import torch

from mosaicdd.schwarz.multigrid.flexible_gradients import FlexibleGradients
from mosaicdd.schwarz.multigrid.judge import Judge
from mosaicdd.schwarz.settings import StoppingRule

# Ratio of the equations' numbers from which it is made. From about 1e9 on, conductors that hold no coarse node and are not
# driven can be wrong to any degree beside sides that drive large flows, unseen in any residual relative to these. By
# constant sources they are seen: in mixtures of two phases, node by node, of 1e6 to 1e14, residuals fall by 0.65 an
# iteration at best, in the conductors of `scripts/media.py` by 0.35.
_CONTRAST = 1e6
_CONTRACTION, _TRIALS = 0.5, 8
# Iterations where residuals say little and estimates go by what is known of the spectrum alone.
_LEARNT = 24


def try_out(gradients: FlexibleGradients) -> None:
    """In a medium of high contrast see whether multigrid contracts, and take aggregates if not; all ranks together.

    What iterations see of the spectrum is remembered, for estimates.
    """
    system = gradients.system
    if system.directed or system.scale <= _CONTRAST * system.least:
        return
    if system.dtype == torch.float64:
        gradients.add_aggregates()
        _tried(gradients, _LEARNT)
    elif not _contracts(gradients):
        gradients.add_aggregates()
        _tried(gradients, _TRIALS)


def _contracts(gradients: FlexibleGradients) -> bool:
    """Say whether first iterations contract well."""
    residuals = _tried(gradients, _TRIALS)
    largest = max(1.0, *residuals)  # as first steps may enlarge it
    return residuals[-1] <= _CONTRACTION ** (_TRIALS - 1) * largest


def _tried(gradients: FlexibleGradients, iterations: int) -> list[float]:
    """Return relative residuals of first iterations for a constant source."""
    system = gradients.system
    rule = StoppingRule(_CONTRACTION**iterations, 0.0, iterations)
    judge = Judge(rule, None, None, None, lambda x, history: None, system.size_here)
    gradients(system.vector(system.ones), system.vector(), math.sqrt(system.unknowns), judge)
    return judge.history.residual
