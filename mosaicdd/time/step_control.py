"""How long steps are: all the same, or such that each one's error stays below a bound.

Positions are exact fractions of the step that was asked for. Chosen steps are that times powers of 2 and
begin at multiples of their length: few plans serve them all, and every time whose values are kept is met.
"""

from fractions import Fraction

from mosaicdd.time.settings import TimeSettings
from mosaicdd.time.stepper import Taken

_SHORTEST = Fraction(1, 2**20)
_GROW = 0.5  # of the bound, that the error of a step twice as long may be expected to have


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
    """

    def __init__(self, time: TimeSettings):
        self._time = time
        self.position, self.length = Fraction(0), Fraction(1)

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

    def accepts(self, taken: Taken) -> bool:
        """Say whether a step is good enough."""
        bound = self._time.tolerance
        return bound is None or taken.error is None or taken.error <= bound * taken.size

    def may_double(self, taken: Taken) -> bool:
        """Say, after a step, whether the next one may be twice as long."""
        if self._time.tolerance is None or taken.error is None:
            return False
        twice = 2 * self.length
        fits = all(at % twice == 0 for at in (self.position, self._time.every, self._time.steps))
        expected = 2.0 ** (self._time.scheme.order + 1) * taken.error
        return fits and expected <= _GROW * self._time.tolerance * taken.size
