"""The state of a Krylov iteration: its vectors, stretch by stretch, the product of its directions, and its steps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
import torch

from mosaicdd.solvers.multigrid.level_operator import LevelOperator
from mosaicdd.solvers.multigrid.vector_operations import Image, adding, planned, stepping, turning


@dataclass
class State:
    """State of a Krylov iteration.

    Parameters
    ----------
    x
        The values, float64, without the last direction's part.
    r, p, q, z
        The residual divided by `unit`, the last direction, the left side of it divided by the equations' scale, and
        the cycle's values; float32.
    stretches
        Of slots, see `ColourLayout`.
    energy
        ``p q``; 0 where there is no direction to go on from.
    length
        Of the last direction, to be added to the values.
    unit_before
        That in which the last direction was made.
    norm
        Of the residual by its recurrence, where all rows count alike.
    least
        The smallest eigenvalue that earlier steps have seen, of earlier solves, too.
    steps
        Of Lanczos' matrix.
    """

    x: torch.Tensor
    r: torch.Tensor
    p: torch.Tensor
    q: torch.Tensor
    z: torch.Tensor
    stretches: Sequence[slice]
    unit: float
    energy: float = 0.0
    length: float = 0.0
    unit_before: float = 1.0
    norm: float = math.inf
    least: float = 1.0
    steps: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._add = adding(self.x, self.p)
        self._turn = turning(self.p, self.z, self.r)
        self._step = stepping(self.r, self.q)

    def turn(self, stretch: int, beta: float) -> float:
        """Let ``p = z + beta p`` in a stretch, and the values have the last direction's part; return ``r p``."""
        s = self.stretches[stretch]
        if self.length:
            self._add(self.length, s)
        return self._turn(beta, s)

    def begin_again(self) -> None:
        """Forget the last direction; what its steps have seen of the spectrum is kept, where that is no rounding."""
        seen = least_ritz_value(self.steps)
        self.least = min(self.least, seen) if seen > 0 else self.least
        self.energy = 0.0
        self.steps.clear()

    def settle(self) -> None:
        """Add the last direction's part to all values."""
        if self.length:
            for s in self.stretches:
                self._add(self.length, s)
        self.length = 0.0

    def step(self, alpha: float) -> float:
        """Subtract ``alpha q`` from the residual; return its square."""
        return self._step(-alpha)


class Product:
    """Computes ``q = A p`` of two vectors in float32 and in differences; planned once.

    Parameters
    ----------
    excess
        Of the diagonal, ``(C, M)``; None where it is not part of it.

    Attributes
    ----------
    p, q
        The vectors.
    stretches
        Of slots.
    """

    def __init__(
        self,
        level: LevelOperator,
        p: torch.Tensor,
        q: torch.Tensor,
        excess: torch.Tensor | None,
    ):
        self._level, self.p, self.q, self._excess = level, p, q, excess
        self.stretches = level.nodes.stretches()
        self._images = [self._of_stretch(s) for s in self.stretches]

    def _of_stretch(self, stretch: slice) -> Callable[..., float]:
        """Plan a stretch."""
        level, images = self._level, []
        for number, of in enumerate(level.nodes.classes):
            row = level.row(of, stretch)
            products = [(k, self.p[beside, there]) for _, k, beside, there in row]
            excess = None if self._excess is None else self._excess[number, stretch]
            images.append(Image(self.q[number, stretch], self.p[number, stretch], products, excess))
        return planned(images)

    def of_stretch(self, number: int) -> float:
        """Compute it in a stretch; return what that makes of ``p q``."""
        return self._images[number]()


def least_ritz_value(steps: Sequence[tuple[float, float]]) -> float:
    """Return the smallest eigenvalue of Lanczos' matrix by the coefficients ``(alpha, beta)``."""
    alpha, beta = np.array([step for step in steps if step[0] > 0]).reshape(-1, 2).T
    if len(alpha) == 0 or not np.isfinite(alpha).all():
        return 1.0
    diagonal = 1.0 / alpha
    diagonal[1:] += beta[1:] / alpha[:-1]
    beside = np.sqrt(np.maximum(beta[1:], 0.0)) / alpha[:-1]
    return float(scipy.linalg.eigvalsh_tridiagonal(diagonal, beside)[0])
