"""Certified mode: from any start to a discrete residual that is measured, not believed.

The two-level iteration with the exact local solver goes on from the network's answer until the
filled field satisfies the discrete equation, ``|A u| <= rtol |b|``. It converges from any start, at
a rate that does not depend on the domain; a start that is not finite is replaced by zero.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mosaicdd.lattice.interface import Interface
from mosaicdd.schwarz.acceleration import stationary
from mosaicdd.schwarz.iteration import Iteration
from mosaicdd.schwarz.stopping import Monitor

# With the exact local solver the residual of the field is far below the last update: 1e-2 of it.
_LOOSER = 10.0
_TIGHTER = 1e-2
_ROUNDS = 3


@dataclass(frozen=True)
class Certificate:
    """How a result was certified.

    Parameters
    ----------
    rtol
        The relative discrete residual that was asked for.
    iterations
        With the exact local solver, from the network's answer.
    saved_from_zero, saved_from_coarse
        Iterations that this start saved against starting at zero and at the coarse solution, by the
        first updates from these starts and the measured contraction.
    """

    rtol: float
    iterations: int
    saved_from_zero: float
    saved_from_coarse: float


class Certifier:
    """Drives interfaces of one block to a discrete residual.

    Parameters
    ----------
    iterate
        Two-level, with the exact local solver.
    discrete_residual
        Of the field that an interface is filled to.
    relaxation
        As of `stationary`.
    """

    def __init__(
        self,
        iterate: Iteration,
        discrete_residual: Callable[[Interface], float],
        relaxation: Sequence[float] = (1.0,),
    ):
        self._iterate = iterate
        self._relaxation = relaxation
        self._discrete_residual = discrete_residual

    def __call__(
        self, v: Interface, rtol: float, monitor: Monitor
    ) -> tuple[Interface, str, Certificate]:
        """Certify ``v``, which is overwritten; return the result, its status and certificate.

        Parameters
        ----------
        monitor
            Whose rule and history are new; its rule's tolerance is set here.
        """
        zero = v.like_boundary()
        first = self._first_updates(zero, monitor)
        if not math.isfinite(monitor.distance(v, zero)[0]):
            v = zero
        for number in range(_ROUNDS):
            tolerance = _LOOSER * rtol * _TIGHTER**number
            monitor.rule = dataclasses.replace(monitor.rule, rtol=tolerance)
            monitor.statuses = [None]
            v, (status,) = stationary(self._iterate, v, monitor, self._relaxation)
            reached = self._discrete_residual(v) <= rtol
            if reached or not status.startswith("converged"):
                break
        if reached:
            status = "converged_rtol"
        elif status.startswith("converged"):
            status = "stagnated"
        return v, status, _certificate(rtol, first, monitor.history.update)

    def _first_updates(self, v: Interface, monitor: Monitor) -> tuple[float, float]:
        """Return the updates of the first two iterations from a zero start."""
        one, two = v.like_boundary(), v.like_boundary()
        self._iterate(v, one)
        self._iterate(one, two)
        return float(monitor.distance(one, v)[0]), float(monitor.distance(two, one)[0])


def _certificate(rtol: float, first: tuple[float, float], updates: list[float]) -> Certificate:
    """Turn the sizes of first updates into numbers of iterations."""
    series = updates if len(updates) > 1 else first
    saved = [math.nan, math.nan]
    if 0 < series[-1] < series[0] and updates[0] > 0:
        per_iteration = math.log(series[0] / series[-1]) / (len(series) - 1)
        saved = [math.log(update / updates[0]) / per_iteration for update in first]
    return Certificate(rtol, len(updates), *saved)
