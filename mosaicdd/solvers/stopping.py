"""The history of an iteration, and how one ends that is judged by its residual.

``update`` is the root mean square of the change by one iteration, ``size`` that of the values.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from mosaicdd.solvers.settings import OUT_OF_ITERATIONS, StoppingRule

Progress = Callable[[int, float, float, float], None]


"""``progress(iteration, update, size, mae)``, called after every iteration."""


BLOW_UP = 1e6  # growth of the update, or of the residual, over the smallest so far that counts as divergence


@dataclass
class History:
    """One entry per iteration; NaN where a number was not measured.

    Parameters
    ----------
    update
        Root mean square of the change over the interface.
    residual
        Root mean square of ``T v - v`` over the lattice nodes, before the iteration; not in the
        inner iterations of GMRES.
    mae
        Mean absolute error over the interface, with a reference.
    seconds
        Since the start of the iteration.
    """

    update: list[float] = field(default_factory=list)
    residual: list[float] = field(default_factory=list)
    mae: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def followed_by(self, other: "History") -> "History":
        """Return this history and another that began when it ended."""
        begin = self.seconds[-1] if self.seconds else 0.0
        later = [begin + seconds for seconds in other.seconds]
        return History(
            self.update + other.update,
            self.residual + other.residual,
            self.mae + other.mae,
            self.seconds + later,
        )

    def times(self, factor: float) -> "History":
        """Return the history of data multiplied by a number."""
        update, mae = ([factor * size for size in sizes] for sizes in (self.update, self.mae))
        return dataclasses.replace(self, update=update, mae=mae)


def progress_times(progress: Progress | None, factor: float) -> Progress | None:
    """Return what shows measurements multiplied."""
    if progress is None:
        return None
    return lambda iteration, *sizes: progress(iteration, *(factor * size for size in sizes))


def judged(history: History, rule: StoppingRule, aim: float, patience: int) -> str | None:
    """Return how an iteration ends that is judged by its residual, if the last one was the last.

    Parameters
    ----------
    aim
        The relative residual that is small enough.
    patience
        Iterations without a smaller residual before one counts as stagnated.
    """
    residual, count, smallest = history.residual[-1], len(history.residual), min(history.residual)
    if not math.isfinite(residual):
        return "diverged_nan"
    if residual <= aim:
        return "converged_rtol"
    if rule.atol > 0 and history.update[-1] <= rule.atol:  # no step at all says nothing
        return "converged_atol"
    if residual > BLOW_UP * smallest:
        return "diverged_tolerance"
    if count >= rule.max_iterations:
        return OUT_OF_ITERATIONS
    return "stagnated" if count - history.residual.index(smallest) > patience else None
