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
from mosaicdd.time.frames import Frames, Record
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


class StepControl:
    """Where a march is, and how long its next step is.

    ``time``: with a tolerance, steps are chosen; else all are ``dt``.

    Attributes
    ----------
    position, length
        In units of ``dt``.
    scale
        What errors are relative to: the largest root mean square of the solution, steps that were only tried
        included, forgotten by half in ``dt``. So from zero on there is something to be accurate to, and
        where the solution passes through zero or ceases, steps do not chase it.
    """

    def __init__(self, time: TimeSettings):
        self._time = time
        self.position, self.length = Fraction(0), Fraction(1)
        self.scale = 0.0

    @property
    def chooses(self) -> bool:
        """Whether steps are chosen."""
        return self._time.tolerance is not None

    @property
    def ended(self) -> bool:
        """Whether the last time has been reached."""
        return self.position >= self._time.steps

    @property
    def kept(self) -> bool:
        """Whether the values at this position are kept."""
        return self.ended or self.position % self._time.every == 0

    @property
    def fits(self) -> bool:
        """Whether steps of this length meet the last time."""
        return (self._time.steps - self.position) % self.length == 0

    @property
    def shortest(self) -> bool:
        """Whether steps can be no shorter."""
        return self.length <= _SHORTEST

    def begin(self) -> None:
        """Let steps from here on be so short that one of them is judged before the end."""
        while self.position + (self._time.scheme.unjudged + 1) * self.length > self._time.steps:
            self.length /= 2

    def error(self, taken: StepResult, known: int) -> float | None:
        """Return the estimated error of a step from so many last values, root mean square; None if it shows later."""
        scheme = self._time.scheme
        if known < (scheme.unjudged + 1 if self.chooses else scheme.levels):
            return None
        return scheme.error_of(known)[0] * taken.difference

    def see(self, size: float) -> None:
        """Take the root mean square of a solution, or of one that was only tried, to the scale."""
        self.scale = max(self.scale, size)

    def accepts(self, error: float) -> bool:
        """Say whether a step is good enough."""
        return not self.chooses or error <= self._bound

    def advance(self, size: float) -> None:
        """Go to the end of a step."""
        self.position += self.length
        self.scale = max(size, self.scale * _FORGOTTEN ** -float(self.length))

    def shorten(self, error: float, known: int, *, sharp: bool) -> int:
        """Halve the step as often as its error asks for; return how often.

        ``sharp``: whether the error falls like the step only, as at a jump.
        """
        order = 0 if sharp else self._time.scheme.error_of(known)[1]
        over = error / self._bound if self._bound else math.inf
        wanted = math.ceil(min(math.log2(over), 1000.0) / (order + 1))
        times = int(math.log2(self.length / _SHORTEST))
        times = max(1, min(wanted, _MOST, times))
        self.length /= 2**times
        return times

    def may_double(self, error: float | None, known: int) -> bool:
        """Say, after a step, whether the next one may be twice as long."""
        if not self.chooses or error is None:
            return False
        twice, order = 2 * self.length, self._time.scheme.error_of(known)[1]
        fits = all(at % twice == 0 for at in (self.position, self._time.every, self._time.steps))
        return fits and 2.0 ** (order + 1) * error <= _GROW * self._bound

    @property
    def _bound(self) -> float:
        return (self._time.tolerance or 0.0) * self.scale


class StepSequence:
    """What takes steps one after another, on all ranks together.

    Parameters
    ----------
    first
        The initial values at the nodes that this rank holds.
    frames
        Take the fields that are kept.

    Attributes
    ----------
    levels, control, record, frames
        What the next step depends on, and what is said and kept of those before; a checkpoint holds them.
    failure
        Why it ended early, where more is known than the status says.
    """

    def __init__(
        self, stepper: TimeIntegrator, time: TimeSettings, first: np.ndarray, frames: Frames
    ):
        self.stepper, self.first, self.frames = stepper, first, frames
        self._time = time
        self.control, self.record = StepControl(time), Record()
        self.levels = PreviousSteps(first, time.scheme.levels)
        self.failure: str | None = None
        self._anew = False  # whether the step at work is the first one after a jump

    def run(self, progress: Progress | None, interrupted: Callable[[], bool]) -> str:
        """Take steps to the last time, or as far as it goes; return how it ended.

        ``interrupted``: asked after every step: whether to stop there.
        """
        control, share = self.control, self.stepper.share
        if not self.frames.times:
            self.frames.add(0.0, self.stepper.shown(self.first))
        if (
            control.ended and self.frames.times[-1] < self._now
        ):  # of a checkpoint between two that are kept
            self.frames.add(self._now, self.stepper.shown(self.levels.newest))
        if control.chooses and self.record.time:
            self._fit()
        if control.chooses and not self.record.time:
            control.see(share.rms(share.without_ghosts(self.first)))
            self._begin()
        while not control.ended:
            try:
                status = self._step()
            except DataError as error:
                self.failure = str(error)
                return "diverged_nan"
            if status is not None:
                return status
            if progress is not None:
                progress(float(control.position / self._time.steps), self.record.note)
            if interrupted() and not control.ended:
                return "interrupted"
        return "converged_rtol"

    def _step(self) -> str | None:
        """Try steps from the last values until one is good enough; return how the march ends, if here."""
        control, self._anew = self.control, self._after_jump()
        before: float | None = None  # of the same values: the error that would be smooth now
        while True:
            known = len(self.levels.values)
            taken = self._tried()
            if not math.isfinite(taken.size):
                return "diverged_nan"
            if taken.report["status"] not in CONVERGED:
                return taken.report["status"]
            control.see(taken.size)
            error = control.error(taken, known)
            if error is None or control.accepts(error):
                self._advance(taken, error)
                return None
            if control.shortest and not self.record.unjudged:  # a jump, which is behind it then
                self._advance(taken, error)
                self._begin()
                return None
            if control.shortest:
                self.failure = (
                    f"at the time {self._now:g} steps of {float(control.length) * self._time.dt:.1e}, the shortest, have "
                    f"an estimated error of {error / control.scale:.1e}, relative to the solution: more than the "
                    "tolerance, which may be less than what the rtol of their solves leaves"
                )
                return "diverged_tolerance"
            if self.record.unjudged:
                self._go_back()
                control.shorten(error, known, sharp=False)
                continue
            sharp = before is not None and error > before
            times = control.shorten(error, known, sharp=sharp)
            before = error * _SMOOTH**-times
            if sharp:
                self._begin()
                before = None
            else:
                for _ in range(times):
                    self.levels.halve()

    def _tried(self) -> StepResult:
        """Take a step from the last values."""
        length = float(self.control.length) * self._time.dt
        atol = self._time.solver_share * self.record.last_error
        when = self._now, self._at(self.control.position + self.control.length), length
        taken = self.stepper(self.levels, *when, atol, anew=self._anew)
        if atol and taken.report["status"] == "stagnated":  # so large beside what has decayed since
            taken = self.stepper(self.levels, *when, 0.0, anew=self._anew)
        return taken

    @property
    def _now(self) -> float:
        """The time that was reached."""
        return self._at(self.control.position)

    def _at(self, position: Fraction) -> float:
        return float(position) * self._time.dt

    def _after_jump(self) -> bool:
        """Forget all but the last values where data jump now and steps know of several; say whether.

        Where steps are chosen, their errors find jumps.
        """
        control = self.control
        if control.chooses or len(self._time.scheme.steps) == 1 or len(self.levels.values) == 1:
            return False
        if not self.stepper.jumps(self._now, self._at(control.position + control.length)):
            return False
        self.levels.begin()
        return True

    def _begin(self) -> None:
        """Forget all but the last values: there may be a jump."""
        self.control.begin()
        self.levels.begin()

    def _fit(self) -> None:
        """Shorten the steps of a checkpoint of a march of another number of steps until they meet the end."""
        control = self.control
        if control.fits:
            return
        if self.record.unjudged:
            self._go_back()
            control.begin()
        while not control.fits:
            control.length /= 2
            self.levels.halve()

    def _go_back(self) -> None:
        """Take back the steps since it began, at first or at a jump, none of which has been judged."""
        count = self.record.unjudged
        self.control.position -= count * self.control.length
        self.record.drop(count)
        self.levels.go_back()
        times = self.frames.times
        kept = max(1, sum(time <= self._now for time in times))
        if kept < len(times):
            self.frames.keep(kept)

    def _advance(self, taken: StepResult, error: float | None) -> None:
        """Take the values after a step over."""
        control, known = self.control, len(self.levels.values)
        control.advance(taken.size)
        length = float(control.length) * self._time.dt
        amounts, rates = self._amounts(taken, length)
        self.levels.add(taken.values, amounts)
        if control.chooses and error is not None:
            self.record.judge(error)
        iterations = taken.report["iterations"]
        self.record.add(self._now, length, iterations, error, taken.solver_error, rates)
        if control.kept:
            self.frames.add(self._now, self.stepper.shown(taken.values))
        if control.may_double(error, known):
            control.length *= 2
            self.levels.double()

    def _amounts(self, taken: StepResult, length: float) -> tuple[np.ndarray, dict[str, float]]:
        """Return what flows in a step, as a vector, and per time by the names of `Balance.numbers`."""
        if taken.balance is None:
            return np.zeros(1), {}
        numbers = taken.balance.numbers()
        least = numbers.pop("least")
        amounts = self.levels.amounts_in(taken.step, length, np.array([*numbers.values()]))
        return amounts, dict(zip(numbers, (amounts / length).tolist(), strict=True)) | {
            "least": least
        }
