"""Measures iterations by subdomains and decides when to stop, the same on all ranks.

All numbers are reduced over the ranks at once. NaN on one rank travels in the same sum, so all ranks leave together.
Several problems that are solved at once are judged one by one.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from mosaicdd.parallel.launcher import Watch
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.layouts import CALLS, SUMS, count_of_sums
from mosaicdd.schwarz.residuals import owned_difference, owned_squares
from mosaicdd.solvers.outcome import BLOW_UP, History, Progress
from mosaicdd.solvers.settings import CONVERGED, OUT_OF_ITERATIONS, StoppingRule

_PATIENCE = 50  # iterations without a smaller update before an iteration counts as stagnated
# Updates of so many units in the last place of the values are rounding's, if the smallest of so many is no smaller
# than that of as many before: Chebyshev's factors magnify rounding, and each cycle of them has fewer iterations.
_ROUNDING, _AT_ROUNDING = 100.0, 10
_CAUTION = 0.7  # an end that is foreseen too early costs one reduction, too late a whole sweep
# Of the largest size so far: values that are left of a start, where the truth is 0.
_VANISHED = 1e-9


class Monitor:
    """Measures iterations and decides when to stop, the same on all ranks.

    Parameters
    ----------
    v
        An interface of the block, for shapes.
    reference
        The true interface, for a rule with ``mae``.
    progress
        ``progress(iteration, update, size, mae)``, called after every iteration; of several problems
        those of the one with the largest update.
    watch
        What may interrupt the iteration, and keeps checkpoints of it.
    powers
        What the data of each problem were multiplied by, ``(n,)``, and with them all that is measured; by default 1.
        Of the data themselves are absolute tolerances, checkpoints, and what progress shows.
    """

    def __init__(
        self,
        ranks: Ranks,
        rule: StoppingRule,
        v: Interface,
        *,
        reference: Interface | None = None,
        progress: Progress | None = None,
        watch: Watch | None = None,
        powers: np.ndarray | None = None,
    ):
        self._ranks = ranks
        self._eps = float(torch.finfo(v.flat.dtype).eps)
        self._rule = rule
        self._powers = np.ones(v.problems) if powers is None else powers
        self._reference = reference
        self._progress = progress
        self._watch = watch or Watch()
        lattice = v.block.lattice
        self._unknowns, self._nodes = lattice.unknowns, math.prod(lattice.subdomains)
        self._local = np.zeros(count_of_sums(v.problems))
        self._start = time.perf_counter()
        self._results = v.like() if v.problems > 1 else None
        self.histories = [History() for _ in range(v.problems)]
        self.statuses: list[str | None] = [None] * v.problems
        self.sizes = np.zeros(v.problems)
        self.largest = np.zeros(v.problems)

    @property
    def history(self) -> History:
        """The history of the only problem."""
        (history,) = self.histories
        return history

    @property
    def size(self) -> float:
        """The size of the only problem's values."""
        (size,) = self.sizes
        return float(size)

    @property
    def iterations(self) -> int:
        """Iterations so far, of the problem that took most."""
        return max(len(history.update) for history in self.histories)

    @property
    def remaining(self) -> int:
        """Iterations left."""
        return self._rule.max_iterations - self.iterations

    @property
    def ended(self) -> bool:
        """Whether all problems have ended."""
        return all(self.statuses)

    @property
    def final_statuses(self) -> list[str]:
        """The statuses of all problems, when they have ended."""
        return [status for status in self.statuses if status is not None]

    def go_on(
        self, v: Interface, histories: Sequence[History], statuses: Sequence[str | None]
    ) -> None:
        """Go on from where an earlier run stopped, of which some problems had ended; all ranks together."""
        self.histories = [history.followed_by(History()) for history in histories]
        self.statuses = [None] * v.problems
        for i, status in enumerate(statuses):
            self.statuses[i] = status
        ended = [i for i, status in enumerate(self.statuses) if status]
        if ended:
            self._keep(v, ended)
            self.sizes[ended] = self.largest[ended] = self.size_of(v)[ended]

    def restart(self, rtol: float) -> None:
        """Go on from the values of the last iteration, to another tolerance."""
        self._rule = replace(self._rule, rtol=rtol)
        self.statuses = [None] * len(self.statuses)

    def result(self, v: Interface) -> Interface:
        """Return the values that each problem has ended with, or has now."""
        if self._results is None:
            return v
        running = [i for i, status in enumerate(self.statuses) if status is None]
        self._keep(v, running)
        return self._results

    def _keep(self, v: Interface, problems: list[int]) -> None:
        """Keep the values of problems that have just ended, where there are several."""
        if self._results is not None:
            for lines, values in zip(self._results.lines, v.lines, strict=True):
                lines[problems] = values[problems]

    def mean(self, *values: torch.Tensor) -> np.ndarray:
        """Add up values of all ranks, one after another in one array, per interface node."""
        mine = torch.cat([v.reshape(-1).double() for v in values]).cpu().numpy()
        return self._ranks.sum(mine) / self._unknowns

    def total(self, mine: np.ndarray) -> np.ndarray:
        """Add up what the ranks measured."""
        return self._ranks.sum(mine)

    def size_of(self, v: Interface) -> np.ndarray:
        """Return the root mean square of the values on the interface, of each problem."""
        return np.sqrt(self._ranks.sum(owned_squares(v, v)[1]) / self._unknowns)

    def distance(self, v: Interface, other: Interface) -> np.ndarray:
        """Return the root mean square of a difference over the interface, of each problem."""
        return np.sqrt(self._ranks.sum(owned_squares(v, other)[0]) / self._unknowns)

    def record(
        self,
        old: Interface,
        new: Interface,
        residual: torch.Tensor,
        failures: Mapping[int, str] | None = None,
    ) -> list[int]:
        """Measure an iteration at once; return the problems that have ended by it.

        ``residual``: ``R (T v - v)`` at the owned lattice nodes, ``v`` the old values; ``failures``: statuses of
        problems that end with this iteration, unless it has converged.
        """
        ended = self.enter(self.total(self.measure(old, new, residual)), new)
        for problem, status in (failures or {}).items():
            if self.statuses[problem] not in CONVERGED:
                self.statuses[problem] = status
                self._keep(new, [problem])
                ended.append(problem)
        return ended

    def measure_settled(self, old: Interface, new: Interface) -> np.ndarray:
        """Return this rank's share of what `measure` takes of the parts to which no other block contributes."""
        return owned_squares(new, old, Interface.settled_parts)

    def measure(
        self,
        old: Interface,
        new: Interface,
        residual: torch.Tensor,
        settled: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return this rank's share of the numbers by which `enter` judges an iteration.

        It is a buffer that the next call overwrites.
        ``settled``: what `measure_settled` returned, where the old values are overwritten since.
        """
        self._local[:CALLS] = self._watch.calls()
        sums = self._local[CALLS:].reshape(SUMS, -1)
        if settled is None:
            sums[:2] = owned_squares(new, old)
        else:
            sums[:2] = settled + owned_squares(new, old, Interface.late_parts)
        squares = residual.double().square().flatten(1).sum(dim=1).cpu().numpy()
        sums[2] = squares * (self._unknowns / self._nodes)
        if self._reference is not None:
            sums[3] = owned_difference(new, self._reference)
        return self._local

    def enter(self, totals: np.ndarray, new: Interface) -> list[int]:
        """Judge the iteration that led to ``new`` by the sums of what the ranks measured.

        Returns the problems that have ended by it.
        """
        called, means = totals[:CALLS] > 0, totals[CALLS:].reshape(SUMS, -1) / self._unknowns
        # Python's numbers: one by one, numpy's are slow.
        updates, sizes, residuals = np.sqrt(means[:3]).tolist()
        maes = means[3].tolist() if self._reference is not None else [math.nan] * len(updates)
        running = [i for i, status in enumerate(self.statuses) if status is None]
        for i in running:
            self.largest[i] = max(self.largest[i], sizes[i], updates[i])
            self.sizes[i] = max(sizes[i], _VANISHED * self.largest[i])
            status = self.reached(i, updates[i], self.sizes[i], maes[i])
            self._enter(i, updates[i], residuals[i], maes[i], status)
        slowest = max(running, key=lambda i: self.histories[i].update[-1])
        self._report(slowest)
        self._keep(new, [i for i in running if self.statuses[i]])
        interrupted, due = called
        out = any(self.statuses[i] == OUT_OF_ITERATIONS for i in running)
        if self._watch.save is not None and (interrupted or due or out):
            self._watch.keep(*self._as_given(self.result(new)), None, self.statuses, 0)
        if interrupted:
            self.statuses = [status or "interrupted" for status in self.statuses]
            self._keep(new, running)
        return [i for i in running if self.statuses[i]]

    def expects_end(self) -> bool:
        """Say whether the next iteration will probably be the last, to go by the last two."""
        if self.remaining <= 1:
            return True
        return all(status is not None or self._nearly(i) for i, status in enumerate(self.statuses))

    def reached(self, problem: int, update: float, size: float, mae: float) -> str | None:
        """Return the status by the rule of a problem with these measurements, if it ends."""
        power = float(self._powers[problem])
        return self._rule.reached(update / power, size / power, mae / power)

    def _nearly(self, problem: int) -> bool:
        """Say whether one more iteration that contracts as the last did will reach the rule."""
        history, size = self.histories[problem], self.sizes[problem]
        if len(history.update) < 2 or not history.update[-2] > 0:
            return False
        factor = history.update[-1] / history.update[-2]
        mae = history.mae[-1] * (history.mae[-1] / history.mae[-2]) if history.mae[-2] > 0 else 0.0
        return self.reached(problem, _CAUTION * factor * history.update[-1], size, mae) is not None

    def predict(self, updates: np.ndarray) -> dict[int, str]:
        """Enter an iteration whose updates, ``(n,)``, are known without measuring them.

        Returns the problems that cannot go on, with their statuses; none of them has ended yet.
        """
        running = [i for i, status in enumerate(self.statuses) if status is None]
        for i in running:
            self._enter(i, updates[i], np.nan, np.nan, None)
        self._report(max(running, key=lambda i: self.histories[i].update[-1]))
        failures = {i: status for i in running if (status := self.statuses[i])}
        for i in failures:
            self.statuses[i] = None
        return failures

    def _enter(
        self, problem: int, update: float, residual: float, mae: float, status: str | None
    ) -> None:
        history = self.histories[problem]
        history.update.append(float(update))
        history.residual.append(float(residual))
        history.mae.append(float(mae))
        history.seconds.append(time.perf_counter() - self._start)
        self.statuses[problem] = status or self._cannot_go_on(history, self.sizes[problem])

    def _report(self, problem: int) -> None:
        if self._progress is not None:
            history, power = self.histories[problem], float(self._powers[problem])
            sizes = history.update[-1], float(self.sizes[problem]), history.mae[-1]
            self._progress(self.iterations, *(size / power for size in sizes))

    def _as_given(self, v: Interface) -> tuple[Interface, list[History]]:
        """Return values and histories as those of the data themselves."""
        each = (1 / self._powers).tolist()
        return v.times(1 / self._powers), list(map(History.times, self.histories, each))

    def _cannot_go_on(self, history: History, size: float) -> str | None:
        updates = history.update
        if not math.isfinite(updates[-1]):
            return "diverged_nan"
        smallest = min(updates)
        if updates[-1] > BLOW_UP * smallest:
            return "diverged_tolerance"
        if len(updates) >= self._rule.max_iterations:
            return OUT_OF_ITERATIONS
        last, before = updates[-_AT_ROUNDING:], updates[-2 * _AT_ROUNDING : -_AT_ROUNDING]
        if (
            smallest <= _ROUNDING * self._eps * size
            and len(before) == len(last)
            and min(last) >= min(before)
        ):
            return "stagnated"
        if len(updates) - updates.index(smallest) > _PATIENCE:
            return "stagnated"
        return None


@dataclass
class UpdateSums:
    """The sums by which an iteration is judged, from its values and those before, which the next one overwrites.

    ``residual``: ``R (T v - v)`` at the owned lattice nodes.
    """

    monitor: Monitor
    old: Interface
    new: Interface
    residual: torch.Tensor
    _settled: np.ndarray | None = None

    def settled(self) -> None:
        """Measure, while halos travel, where no other block contributes."""
        self._settled = self.monitor.measure_settled(self.old, self.new)

    def rest(self) -> np.ndarray:
        """Measure the rest; return this rank's share of the numbers by which the iteration is judged."""
        return self.monitor.measure(self.old, self.new, self.residual, self._settled)
