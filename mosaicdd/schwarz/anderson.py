"""Anderson acceleration for local solvers that are not linear, with the residual as its judge.

The next iterate is ``M`` of the combination of the last ones with the smallest residual
``M v - v``. Extrapolation can run away, or stand still where ``M v != v`` (a false fixed point), so
every iterate is judged by its own residual, measured by a true iteration: where that grows, the
combination is dropped and the iteration goes on from the best iterate, stationary for a step.
"""

import numpy as np
import torch

from mosaicdd.lattice.interface import Interface
from mosaicdd.schwarz.iteration import Iteration
from mosaicdd.schwarz.stopping import Monitor

_DEPTH = 5
_GROWTH = 1.0  # of the update, above which the combination is dropped


def anderson(iterate: Iteration, v: Interface, monitor: Monitor) -> tuple[Interface, list[str]]:
    """Drive ``v <- M v`` by Anderson acceleration of depth 5; ``v`` is overwritten.

    Returns
    -------
    Interface, list of str
        The last ``M v``, whose update is measured, and its status.
    """
    memory = _Memory(v)
    image = v.like_boundary()
    best, best_update = v.like(v.flat.clone()), np.inf
    while True:
        residual = iterate(v, image)
        if monitor.record(v, image, residual):
            return image, monitor.statuses
        update = monitor.history.update[-1]
        if update > _GROWTH * best_update:
            memory.forget()
            v.flat.copy_(best.flat)
            continue
        best.flat.copy_(image.flat)
        best_update = update
        memory.add(v.flat, image.flat)
        v.flat.copy_(memory.combine(monitor))


class _Memory:
    """The last iterates' images ``M v`` and residuals ``M v - v``, as flat vectors."""

    def __init__(self, v: Interface):
        shape = (_DEPTH + 1, len(v.flat))
        self._images = torch.empty(shape, device=v.flat.device, dtype=v.flat.dtype)
        self._residuals = torch.empty_like(self._images)
        self._owned = v.ownership().flat
        self._count = 0

    def forget(self) -> None:
        """Drop everything."""
        self._count = 0

    def add(self, old: torch.Tensor, image: torch.Tensor) -> None:
        """Keep an iterate, in the place of the oldest."""
        slot = self._count % len(self._images)
        self._images[slot] = image
        torch.sub(image, old, out=self._residuals[slot])
        self._count += 1

    def combine(self, monitor: Monitor) -> torch.Tensor:
        """Return the combination of images, with weights that add up to 1, of least residual."""
        kept = min(self._count, len(self._images))
        residuals = self._residuals[:kept]
        owned = residuals * self._owned
        gram = monitor.mean(owned @ residuals.T).reshape(kept, kept)
        weights = _weights(gram)
        return torch.mv(self._images[:kept].T, torch.as_tensor(weights).to(self._images))


def _weights(gram: np.ndarray) -> np.ndarray:
    """Minimise ``w^T G w`` under ``sum(w) = 1``; nearly dependent residuals are damped."""
    scale = np.trace(gram)
    if not scale > 0:
        return np.full(len(gram), 1 / len(gram))
    damped = gram / scale + 1e-14 * np.eye(len(gram))
    weights = np.linalg.solve(damped, np.ones(len(gram)))
    return weights / weights.sum()
