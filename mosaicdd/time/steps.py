"""The steps of a march: how long they are, which are good enough, and which are taken back and tried anew.

They are all of the same length, or such that each one's error stays below a bound. Positions are exact fractions of
the step that was asked for. Chosen steps are that times powers of 2 and begin at multiples of their length: few plans
serve them all, and every time whose values are kept is met.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from mosaicdd.report.progress import Progress
from mosaicdd.solvers.settings import CONVERGED
from mosaicdd.time.frames import FrameStore, Record
from mosaicdd.time.levels import PreviousSteps
from mosaicdd.time.settings import TimeSettings
from mosaicdd.time.stepper import DataError, StepResult, TimeIntegrator

_SHORTEST = Fraction(1, 2**30)
_GROW = 0.5  # of the bound, that the error of a step twice as long may be expected to have
_MOST = 10  # times that a step is halved before it is tried again
_FORGOTTEN = 2.0  # by which the scale falls in a time of ``dt``
# By which the error of a smooth solution at least falls with half the step, that at a jump not: between the 2 of a
# jump and the 4 of a first-order method.
_SMOOTH = 2.0**1.5


class StepSequence:
    """The steps of one problem, one after another, on all ranks together.

    `ValueError` or `TypeError` on all ranks, if the problem's data are not sound.

    Parameters
    ----------
    time
        With a tolerance, steps are chosen; else all are ``dt``.
    number
        Of the problem.
    store
        Takes the fields that are kept.

    Attributes
    ----------
    position, length
        Where the march is, and how long its next step is, in units of ``dt``.
    scale
        What errors are relative to: the largest root mean square of the solution, steps that were only tried
        included, forgotten by half in ``dt``. So from zero on there is something to be accurate to, and
        where the solution passes through zero or ceases, steps do not chase it.
    levels, record
        The last values, and what is said of the steps before. With the position, the length and the scale they are what the
        next step depends on, and what a checkpoint holds.
    """

    def __init__(self, stepper: TimeIntegrator, time: TimeSettings, number: int, store: FrameStore):
        self._stepper, self._first, self._store = stepper, stepper.begin(number), store
        self._time, self._scheme = time, time.scheme
        self._first_frame = number * time.frames
        self._chooses = time.tolerance is not None
        self.position, self.length, self.scale = Fraction(0), Fraction(1), 0.0
        self.levels, self.record = PreviousSteps(self._first, time.scheme.levels), Record()
        self._anew = False  # whether the step at work is the first one after a jump

    def keep_frames(self, count: int) -> None:
        """Drop all fields but the first ones; raise `ValueError` on all ranks, if the store has fewer."""
        self._store.keep(self._first_frame + count)
        del self.record.frames[count:]

    def _keep_frame(self, values: np.ndarray) -> None:
        """Keep the field of this time."""
        number = self._first_frame + len(self.record.frames)
        if number == 0:
            self._store.keep(0)  # what an earlier run has left
        self._store.write(number, self._stepper.shown(values))
        self.record.frames.append(self._now)

    def run(self, progress: Progress | None, interrupted: Callable[[], bool]) -> str:
        """Take steps to the last time, or as far as it goes; return how it ended, as the record says, too.

        ``interrupted``: asked after every step: whether to stop there.
        """
        self.record.status = self._run(progress, interrupted)
        return self.record.status

    def _run(self, progress: Progress | None, interrupted: Callable[[], bool]) -> str:
        record, share = self.record, self._stepper.share
        if not record.frames:
            self._keep_frame(self._first)
        if self._ended and record.frames[-1] < self._now:  # a checkpoint between two that are kept
            self._keep_frame(self.levels.newest)
        if self._chooses and record.time:
            self._fit()
        elif self._chooses:
            self.scale = max(self.scale, share.rms(share.without_ghosts(self._first)))
            self._begin()
        while not self._ended:
            try:
                status = self._step()
            except DataError as error:
                record.failure = str(error)
                return "diverged_nan"
            if status is not None:
                return status
            if progress is not None:
                progress(float(self.position / self._time.steps), record.note)
            if interrupted() and not self._ended:
                return "interrupted"
        return "converged_rtol"

    @property
    def _ended(self) -> bool:
        """Whether the last time has been reached."""
        return self.position >= self._time.steps

    @property
    def _now(self) -> float:
        """The time that was reached."""
        return float(self.position) * self._time.dt

    @property
    def _next(self) -> float:
        """The end of the next step."""
        return float(self.position + self.length) * self._time.dt

    @property
    def _bound(self) -> float:
        """The largest error of a step that is good enough."""
        return (self._time.tolerance or 0.0) * self.scale

    def _step(self) -> str | None:
        """Try steps from the last values until one is good enough; return how the march ends, if here."""
        self._anew = self._after_jump()
        before: float | None = None  # of the same values: the error that would be smooth now
        while True:
            known, shortest = len(self.levels.values), self.length <= _SHORTEST
            taken = self._tried()
            if not math.isfinite(taken.size):
                return "diverged_nan"
            if taken.report["status"] not in CONVERGED:
                return taken.report["status"]
            self.scale = max(self.scale, taken.size)
            error = self._error(taken, known)
            if error is None or not self._chooses or error <= self._bound:
                self._advance(taken, error)
                return None
            if shortest and not self.record.unjudged:  # a jump, which is behind it then
                self._advance(taken, error)
                self._begin()
                return None
            if shortest:
                self.record.failure = (
                    f"at the time {self._now:g} steps of {float(self.length) * self._time.dt:.1e}, the shortest, have "
                    f"an estimated error of {error / self.scale:.1e}, relative to the solution: more than the "
                    "tolerance, which may be less than what the rtol of their solves leaves"
                )
                return "diverged_tolerance"
            if self.record.unjudged:
                self._go_back()
                self._shorten(error, known, sharp=False)
                continue
            sharp = before is not None and error > before
            times = self._shorten(error, known, sharp=sharp)
            before = None if sharp else error * _SMOOTH**-times
            if sharp:
                self._begin()
            else:
                for _ in range(times):
                    self.levels.halve()

    def _tried(self) -> StepResult:
        """Take a step from the last values."""
        when = self._now, self._next, float(self.length) * self._time.dt
        atol = self._time.solver_share * self.record.last_error
        taken = self._stepper(self.levels, *when, atol, anew=self._anew)
        if atol and taken.report["status"] == "stagnated":  # so large beside what has decayed since
            taken = self._stepper(self.levels, *when, 0.0, anew=self._anew)
        return taken

    def _error(self, taken: StepResult, known: int) -> float | None:
        """Return the estimated error of a step from so many last values, root mean square; None if it shows later."""
        scheme = self._scheme
        if known < (scheme.unjudged + 1 if self._chooses else scheme.levels):
            return None
        return scheme.error_of(known)[0] * taken.difference

    def _shorten(self, error: float, known: int, *, sharp: bool) -> int:
        """Halve the step as often as its error asks for; return how often.

        ``sharp``: whether the error falls like the step only, as at a jump.
        """
        order = 0 if sharp else self._scheme.error_of(known)[1]
        over = error / self._bound if self._bound else math.inf
        wanted = math.ceil(min(math.log2(over), 1000.0) / (order + 1))
        times = max(1, min(wanted, _MOST, int(math.log2(self.length / _SHORTEST))))
        self.length /= 2**times
        return times

    def _after_jump(self) -> bool:
        """Forget all but the last values where data jump now and steps know of several; say whether.

        Where steps are chosen, their errors find jumps.
        """
        if self._chooses or len(self._scheme.steps) == 1 or len(self.levels.values) == 1:
            return False
        if not self._stepper.jumps(self._now, self._next):
            return False
        self.levels.begin()
        return True

    def _begin(self) -> None:
        """Forget all but the last values: there may be a jump."""
        self._begin_short()
        self.levels.begin()

    def _begin_short(self) -> None:
        """Shorten the steps until one of them is judged before the end."""
        while self.position + (self._scheme.unjudged + 1) * self.length > self._time.steps:
            self.length /= 2

    def _fit(self) -> None:
        """Shorten the steps of a checkpoint until they meet the end of this march."""

        def fits() -> bool:
            return (self._time.steps - self.position) % self.length == 0

        if not fits() and self.record.unjudged:
            self._go_back()
            self._begin_short()
        while not fits():
            self.length /= 2
            self.levels.halve()

    def _go_back(self) -> None:
        """Take back the steps since the begin or a jump, none of which has been judged."""
        count, frames = self.record.unjudged, self.record.frames
        self.position -= count * self.length
        self.record.drop(count)
        self.levels.go_back()
        kept = max(1, sum(time <= self._now for time in frames))
        if kept < len(frames):
            self.keep_frames(kept)

    def _advance(self, taken: StepResult, error: float | None) -> None:
        """Accept a step: its values, its record, and the length of the next one."""
        known, length = len(self.levels.values), float(self.length) * self._time.dt
        self.position += self.length
        self.scale = max(taken.size, self.scale * _FORGOTTEN ** -float(self.length))
        amounts, rates = self._amounts(taken, length)
        self.levels.add(taken.values, amounts)
        if self._chooses and error is not None:
            self.record.judge(error)
        self.record.add(
            time=self._now,
            step=length,
            iterations=taken.report["iterations"],
            time_error=math.nan if error is None else error,
            solver_error=taken.solver_error,
            balance=rates,
        )
        if self._ended or self.position % self._time.every == 0:
            self._keep_frame(taken.values)
        if self._chooses and error is not None:
            twice, order = 2 * self.length, self._scheme.error_of(known)[1]
            ends = self.position, self._time.every, self._time.steps
            grown = 2.0 ** (order + 1) * error
            if all(at % twice == 0 for at in ends) and grown <= _GROW * self._bound:
                self.length = twice
                self.levels.double()

    def _amounts(self, taken: StepResult, length: float) -> tuple[np.ndarray, dict[str, float]]:
        """Return the amounts that flow in a step, and rates by the names of `Balance.numbers`."""
        if taken.balance is None:
            return np.zeros(1), {}
        numbers = taken.balance.numbers()
        least = numbers.pop("least")
        amounts = self.levels.amounts_in(taken.step, length, np.array([*numbers.values()]))
        rates = dict(zip(numbers, (amounts / length).tolist(), strict=True))
        return amounts, rates | {"least": least}
