"""The judge of an iteration on all nodes: its history, when it ends, and what is kept of it by the way."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from mosaicdd.parallel.watch import Watch
from mosaicdd.schwarz.settings import OUT_OF_ITERATIONS, StoppingRule
from mosaicdd.schwarz.stopping import History, Progress, judged

_PATIENCE = 50


class Judge:
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
