"""Certified mode: from any start to a discrete residual that is measured, not believed.

The two-level iteration with the exact local solver goes on from the network's answer until the
filled field satisfies the discrete equation, ``|A u| <= rtol |b|``. It converges from any start, at
a rate that does not depend on the domain; a start that is not finite is replaced by zero.
"""

import dataclasses
import math
from dataclasses import dataclass

from mosaicdd.lattice.interface import Interface
from mosaicdd.problems.boundary import Boundary
from mosaicdd.schwarz.acceleration import Iteration, stationary
from mosaicdd.schwarz.discrete_residual import DiscreteResidual
from mosaicdd.schwarz.fill import Fill
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
    iterate, fill
        Two-level, with the exact local solver.
    """

    def __init__(self, iterate: Iteration, fill: Fill, discrete_residual: DiscreteResidual):
        self._iterate = iterate
        self._fill = fill
        self._discrete_residual = discrete_residual

    def __call__(
        self, v: Interface, boundary: Boundary, rtol: float, monitor: Monitor
    ) -> tuple[Interface, str, Certificate]:
        """Certify ``v``, which is overwritten; return the result, its status and certificate.

        Parameters
        ----------
        monitor
            Whose rule and history are new; its rule's tolerance is set here.
        """
        zero = v.like()
        zero.copy_boundary(v)
        first = self._first_updates(zero, monitor)
        if not math.isfinite(monitor.distance(v, zero)):
            v = zero
        for number in range(_ROUNDS):
            tolerance = _LOOSER * rtol * _TIGHTER**number
            monitor.rule = dataclasses.replace(monitor.rule, rtol=tolerance)
            v, status = stationary(self._iterate, v, monitor)
            self._fill(v)
            reached = self._discrete_residual(self._fill.region, boundary) <= rtol
            if reached or not status.startswith("converged"):
                break
        if reached:
            status = "converged_rtol"
        elif status.startswith("converged"):
            status = "stagnated"
        return v, status, _certificate(rtol, first, monitor.history.update)

    def _first_updates(self, v: Interface, monitor: Monitor) -> tuple[float, float]:
        """Return the updates of the first two iterations from a zero start."""
        one, two = v.like(), v.like()
        one.copy_boundary(v)
        two.copy_boundary(v)
        self._iterate(v, one)
        self._iterate(one, two)
        return monitor.distance(one, v), monitor.distance(two, one)


def _certificate(rtol: float, first: tuple[float, float], updates: list[float]) -> Certificate:
    """Turn the sizes of first updates into numbers of iterations."""
    series = updates if len(updates) > 1 else first
    saved = [math.nan, math.nan]
    if 0 < series[-1] < series[0] and updates[0] > 0:
        per_iteration = math.log(series[0] / series[-1]) / (len(series) - 1)
        saved = [math.log(update / updates[0]) / per_iteration for update in first]
    return Certificate(rtol, len(updates), *saved)
