"""The convergence monitor of iterations on the whole grid: history, end, progress, and checkpoints."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from mosaicdd.parallel.launcher import Watch
from mosaicdd.solvers.outcome import BLOW_UP, History, Progress
from mosaicdd.solvers.settings import OUT_OF_ITERATIONS, StoppingRule

_PATIENCE = 50


class ResidualMonitor:
    """Convergence monitor of one problem by its residual, the same on all ranks; vectors are those of the method.

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
        history: History | None = None,
        progress: Progress | None = None,
        watch: Watch | None = None,
        save: Callable[[Any, History], None] = lambda x, history: None,
        size: Callable[[Any], float] = lambda x: math.nan,
        patience: int = _PATIENCE,
    ):
        self.history = (history or History()).followed_by(History())
        self.aim = rule.rtol
        self._rule, self._progress, self._patience = rule, progress, patience
        self._watch, self._save, self._size = watch or Watch(), save, size
        self._before = self.history.seconds[-1] if self.history.seconds else 0.0
        self._begun = time.perf_counter()

    def calls(self) -> tuple[float, float]:
        """Return this rank's calls to stop and to save, to be added up over the ranks."""
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
        self.note(update, residual)
        status = self._judged(update)
        if self._progress is not None:
            self.show(self._size(x))
        return self.answer(x, status, calls)

    def reached(self, update: float) -> str | None:
        """Return the status by the tolerances, or if the residual is no number; None if none is reached.

        ``update``: of the last step, by which an absolute tolerance counts; infinite where it says nothing.
        """
        residual, rule = self.history.residual[-1], self._rule
        if not math.isfinite(residual):
            return "diverged_nan"
        if residual <= self.aim:
            return "converged_rtol"
        # no step at all says nothing
        return "converged_atol" if rule.atol > 0 and update <= rule.atol else None

    @property
    def exhausted(self) -> bool:
        """Whether no iterations are left."""
        return len(self.history.residual) >= self._rule.max_iterations

    def _judged(self, update: float) -> str | None:
        """Return the status of a linear iteration by the rule; None to go on."""
        residuals = self.history.residual
        smallest = min(residuals)
        if status := self.reached(update):
            return status
        if residuals[-1] > BLOW_UP * smallest:
            return "diverged_tolerance"
        if self.exhausted:
            return OUT_OF_ITERATIONS
        waited = len(residuals) - residuals.index(smallest)
        return "stagnated" if waited > self._patience else None

    def show(self, size: float) -> None:
        """Report the last iteration, with the root mean square of the values."""
        if self._progress is not None:
            updates = self.history.update
            self._progress(len(updates), updates[-1], size, math.nan)

    def answer(self, x: Any, status: str | None, calls: Sequence[float]) -> str | None:
        """Keep a checkpoint if any rank was called to, or there are no iterations left; return the status after that."""
        interrupted, due = (call > 0 for call in calls)
        if self._watch.save is not None and (interrupted or due or status == OUT_OF_ITERATIONS):
            self._save(x, self.history)
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
