"""Where an iteration on all nodes is: its vectors, stretch by stretch, the left side of its directions, and its steps.

The judge of an iteration on all nodes: its history, when it ends, and what is kept of it by the way.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg
import torch

from mosaicdd.parallel.launcher import Watch
from mosaicdd.solvers.multigrid.level_operator import LevelOperator
from mosaicdd.solvers.multigrid.vector_operations import Image, adding, planned, stepping, turning
from mosaicdd.solvers.outcome import History, Progress, judged
from mosaicdd.solvers.settings import OUT_OF_ITERATIONS, StoppingRule


@dataclass
class State:
    """Where an iteration is.

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


_PATIENCE = 50


class ResidualMonitor:
    """Judges the iterations of one problem, the same on all ranks; vectors are what the method takes for these.

    Parameters
    ----------
    rule
        Whose ``rtol`` bounds the relative residual.
    history
        Of an earlier run that goes on.
    progress
        Called after every iteration.
    watch
        What may interrupt the iteration, and when a checkpoint is due.
    save
        Keeps a checkpoint of a vector, with a history.
    size
        Returns the root mean square of a vector, as this rank knows it.
    patience
        Iterations without a smaller residual before one counts as stagnated.

    Attributes
    ----------
    history
        ``residual`` is the relative one.
    aim
        The relative residual that is small enough.
    """

    def __init__(
        self,
        rule: StoppingRule,
        history: History | None,
        progress: Progress | None,
        watch: Watch | None,
        save: Callable[[Any, History], None],
        size: Callable[[Any], float],
        patience: int = _PATIENCE,
    ):
        self.history = (history or History()).followed_by(History())
        self.aim = rule.rtol
        self._rule, self._progress, self._patience = rule, progress, patience
        self._watch, self._save, self._size = watch or Watch(), save, size
        self._before = self.history.seconds[-1] if self.history.seconds else 0.0
        self._begun = time.perf_counter()

    def calls(self) -> tuple[float, float]:
        """Return what this rank was called to do, to be added up over the ranks."""
        return self._watch.calls()

    def enter(self, x: Any, update: float, residual: float, calls: Sequence[float]) -> str | None:
        """Enter an iteration; return how it ends, if it was the last.

        Parameters
        ----------
        x
            The values after it.
        update
            The root mean square of the step.
        residual
            The relative one.
        calls
            Of all ranks.
        """
        history = self.history
        self.note(update, residual)
        status = judged(history, self._rule, self.aim, self._patience)
        if self._progress is not None:
            self._progress(len(history.update), update, self._size(x), math.nan)
        interrupted, due = (call > 0 for call in calls)
        ended = status == OUT_OF_ITERATIONS
        if self._watch.save is not None and (interrupted or due or ended):
            self._save(x, history)
        return status or ("interrupted" if interrupted else None)

    def confirms(self, x: Any) -> bool:
        """Say whether values whose true residual is as small as `aim` are the end; all ranks together.

        If not, the iteration goes on as if nothing had happened, to an aim that is smaller now.
        """
        return True

    def note(self, update: float, residual: float) -> None:
        """Enter an iteration that has ended otherwise."""
        history = self.history
        history.update.append(update)
        history.residual.append(residual)
        history.mae.append(math.nan)
        history.seconds.append(self._before + time.perf_counter() - self._begun)


def least_ritz_value(steps: Sequence[tuple[float, float]]) -> float:
    """Return the smallest eigenvalue of Lanczos' matrix by the coefficients ``(alpha, beta)``."""
    alpha, beta = np.array([step for step in steps if step[0] > 0]).reshape(-1, 2).T
    if len(alpha) == 0 or not np.isfinite(alpha).all():
        return 1.0
    diagonal = 1.0 / alpha
    diagonal[1:] += beta[1:] / alpha[:-1]
    beside = np.sqrt(np.maximum(beta[1:], 0.0)) / alpha[:-1]
    return float(scipy.linalg.eigvalsh_tridiagonal(diagonal, beside)[0])
