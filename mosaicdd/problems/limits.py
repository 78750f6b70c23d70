"""One-sided limits in time: data at the begin and at the end of a step.

Within a step ``(t, t + tau)`` data are those of the open interval. So a source ``1.0 * (t < 5)`` and one
``1.0 * (t <= 5)`` give the same in steps that end at 5. What cannot jump is taken at the very time.
"""

from typing import Self

_BESIDE = 2.0**-48  # of a time: some roundings, as ``3 * 0.1`` is no 0.3


class TimeLimit(float):
    """A time just before or after an `exact` one, by some roundings."""

    exact: float

    @classmethod
    def of(cls, t: float, beside: float) -> Self:
        """Return the time at a small distance ``beside`` another one."""
        limit = cls(t + beside)
        limit.exact = t
        return limit


def just_before(t: float, length: float) -> TimeLimit:
    """Return the limit from the left, at the end of a step of a length."""
    return TimeLimit.of(t, -_BESIDE * max(abs(t), length))


def just_after(t: float, length: float) -> TimeLimit:
    """Return the limit from the right, at the begin of a step of a length."""
    return TimeLimit.of(t, _BESIDE * max(abs(t), length))


def stage_time(t: float, later: float, share: float) -> float:
    """Return the time of a step's stage, a share of the step after its begin."""
    return just_before(later, later - t) if share == 1.0 else t + share * (later - t)


def exact(t: float) -> float:
    """Return the exact time of a limit, or a time itself."""
    return t.exact if isinstance(t, TimeLimit) else t
