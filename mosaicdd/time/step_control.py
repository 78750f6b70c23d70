"""How long steps are: all the same, or such that each one's error stays below a bound.

Positions are exact fractions of the step that was asked for. Chosen steps are that times powers of 2 and
begin at multiples of their length: few plans serve them all, and every time whose values are kept is met.
"""

import math
from fractions import Fraction

from mosaicdd.time.settings import TimeSettings
from mosaicdd.time.stepper import Taken

_SHORTEST = Fraction(1, 2**30)
_GROW = 0.5  # of the bound, that the error of a step twice as long may be expected to have
_MOST = 10  # times that a step is halved before it is tried again
_FORGOTTEN = 2.0  # by which the scale falls in a time of ``dt``


class StepControl:
    """Where a march is, and how long its next step is.

    Parameters
    ----------
    time
        With a tolerance, steps are chosen; else all are ``dt``.

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
    def shortest(self) -> bool:
        """Whether steps can be no shorter."""
        return self.length <= _SHORTEST

    def begin(self) -> None:
        """Let steps from here on be so short that one of them is judged before the end."""
        while self.position + (self._time.scheme.unjudged + 1) * self.length > self._time.steps:
            self.length /= 2

    def error(self, taken: Taken, known: int) -> float | None:
        """Return the estimated error of a step from so many last values, root mean square; None if it shows later."""
        scheme = self._time.scheme
        if known < (scheme.unjudged + 1 if self.chooses else scheme.levels):
            return None
        return scheme.error_of(known)[0] * taken.difference

    def see(self, size: float) -> None:
        """Take the root mean square of a solution, or of one that was only tried, to the scale."""
        self.scale = max(self.scale, size)

    def accepts(self, error: float | None) -> bool:
        """Say whether a step is good enough."""
        return error is None or not self.chooses or error <= self._bound

    def advance(self, size: float) -> None:
        """Go to the end of a step."""
        self.position += self.length
        self.scale = max(size, self.scale * _FORGOTTEN ** -float(self.length))

    def shorten(self, error: float, known: int, *, sharp: bool) -> int:
        """Halve the step as often as its error asks for; return how often.

        Parameters
        ----------
        sharp
            Whether the error falls like the step only, as at a jump.
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
        twice = 2 * self.length
        fits = all(at % twice == 0 for at in (self.position, self._time.every, self._time.steps))
        return (
            fits
            and 2.0 ** (self._time.scheme.error_of(known)[1] + 1) * error <= _GROW * self._bound
        )

    @property
    def _bound(self) -> float:
        return (self._time.tolerance or 0.0) * self.scale
