"""Certified mode: from any start to a discrete residual that is measured, not believed.

The two-level iteration with the exact local solver goes on from the network's answer until the
filled field satisfies the discrete equation, ``|A u| <= rtol |b|``. It converges from any start, at
a rate that does not depend on the domain; a start that is not finite is replaced by zero.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from mosaicdd.schwarz.fixed_point import Iteration
from mosaicdd.schwarz.interface import Interface
from mosaicdd.schwarz.monitor import Monitor
from mosaicdd.solvers.verdict import Certificate

# The residual of the field is some 1e-2 of the last update with the exact local solver, and more or less with the
# data (benchmarks/certify.md): so updates ten times what is asked for come first, then ever smaller ones.
_LOOSER, _TIGHTER, _ROUNDS = 10.0, 1e-2, 3


Driver = Callable[[Iteration, Interface, Monitor], tuple[Interface, list[str]]]


def updates_from_zero(zero: Interface, monitor: Monitor, iterate: Iteration) -> list[list[float]]:
    """Return the sizes of the first two updates from zero, of each problem, ``(2, n)``.

    ``zero``: with the values on the edge of the domain, overwritten; ``iterate``: as of `certify`. The first two of all
    iterates: no other need be there yet.
    """
    first, updates = zero.like_boundary(), []
    for old, new in ((zero, first), (first, zero)):
        iterate(old, new)
        updates.append(monitor.distance(new, old).tolist())
    return updates


def certify(
    v: Interface,
    rtol: float,
    monitor: Monitor,
    updates: Sequence[Sequence[float]],
    *,
    iterate: Iteration,
    drive: Driver,
    discrete_residual: Callable[[Interface], np.ndarray],
) -> tuple[Interface, list[str], list[Certificate]]:
    """Drive an interface, which is overwritten, to a discrete residual; return the result, statuses and certificates.

    Parameters
    ----------
    monitor
        Whose rule and history are new; its rule's tolerance is set here.
    updates
        What `updates_from_zero` returned.
    iterate
        Two-level, with the exact local solver.
    drive
        What drives the iteration, as `stationary`.
    discrete_residual
        Of the fields that an interface is filled to, ``(n,)``.
    """
    for problem in np.flatnonzero(~np.isfinite(monitor.size_of(v))).tolist():
        for axis, inner in enumerate(map(v.block.inner, range(len(v.lines)))):
            v.lines[axis][problem][inner] = 0.0
    for number in range(_ROUNDS):
        tolerance = min(rtol**0.5, _LOOSER * rtol * _TIGHTER**number)  # below 1
        monitor.rule = dataclasses.replace(monitor.rule, rtol=tolerance)
        monitor.statuses = [None] * v.problems
        v, statuses = drive(iterate, v, monitor)
        reached = discrete_residual(v) <= rtol
        if reached.all() or not all(status.startswith("converged") for status in statuses):
            break
    for i, status in enumerate(statuses):
        if reached[i] or status.startswith("converged"):
            statuses[i] = "converged_rtol" if reached[i] else "stagnated"
    certificates = [
        _certificate(rtol, from_zero, history.update)
        for *from_zero, history in zip(*updates, monitor.histories, strict=True)
    ]
    return v, statuses, certificates


def _certificate(rtol: float, first: list[float], updates: list[float]) -> Certificate:
    """Turn the sizes of updates, the first two from zero and those made, into numbers of iterations."""
    series = updates if len(updates) > 1 else first
    saved = [math.nan, math.nan]
    if 0 < series[-1] < series[0] and min(updates[0], *first) > 0:
        per_iteration = math.log(series[0] / series[-1]) / (len(series) - 1)
        saved = [math.log(update / updates[0]) / per_iteration for update in first]
    return Certificate(rtol, len(updates), *saved)
