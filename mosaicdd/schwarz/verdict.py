r"""Whether a status is true of the field that is handed out: the one place that decides it.

A method ends with a status that its own updates or recurrences have earned. `verdict` compares it with what was
measured of the field, and lets ``converged_*`` stand only if nothing measured contradicts it:

1. The estimated error is at most a tenth of the answer.
2. The discrete residual is at most what the status promises:

   - Where a certificate is asked for, ``certify``; nothing else counts.
   - Where the residual is what is iterated on (media, Newton's method), ``rtol``; where the update was small
     absolutely, the residual that the iteration ended with.
   - With the exact local solver for constant coefficients the equation holds between the lattice lines, so all of the
     residual lies on these, and of values that are off by $e$ it is $A e$: with $\eta$ the root mean square
     of $e$, $\lVert A \rVert \eta$ times the root of their number. An update of ``rtol`` times the
     size, taken ten times for what further ones would add, is $\eta$.
   - A network's field is off by the estimated error at all nodes, $\lVert A \rVert \eta$ times the root
     of their number. A residual above that proves the estimate wrong, for it bounds the error from below:
     $\lvert e \rvert \ge \lvert r \rvert / \lVert A \rVert$.
   - Where the estimate is made from the residual itself (averaged media), the
     residual can say nothing that the estimate does not: the first rule judges it.

3. What is more than that is no more than float64's rounding leaves: each product of ``A u`` and each value of ``u``
   is rounded, so some four units in the last place of $\lvert A \rvert \lvert u \rvert$. Such a status is
   ``converged_rounding``; so is that of an iteration that stagnated there. It says nothing of a residual above a
   thousandth of the right-hand side, unless the estimate is made from that residual and in differences, which lose
   nothing (multigrid); and it is no certificate.

Everything else is ``stagnated``.

Certified mode: from any start to a discrete residual that is measured, not believed.

The two-level iteration with the exact local solver goes on from the network's answer until the
filled field satisfies the discrete equation, ``|A u| <= rtol |b|``. It converges from any start, at
a rate that does not depend on the domain; a start that is not finite is replaced by zero.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.interface import Interface
from mosaicdd.schwarz.fixed_point import Iteration
from mosaicdd.schwarz.settings import CONVERGED
from mosaicdd.schwarz.stopping import Monitor

# The residual of the field is some 1e-2 of the last update with the exact local solver, and more or less with the
# data (benchmarks/certify.md): so updates ten times what is asked for come first, then ever smaller ones.
_LOOSER, _TIGHTER, _ROUNDS = 10.0, 1e-2, 3


Driver = Callable[[Iteration, Interface, Monitor], tuple[Interface, list[str]]]


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


PLAUSIBLE = 0.1  # share of the answer's size above which an estimated error is no convergence


EARNED = 10.0  # errors in updates: estimates are within that (`benchmarks/trust.py`)


ROUNDINGS = 4.0  # units in the last place of `|A| |u|`: 2.5 of five products and their sum, 1 of values, elimination


# Residual above which rounding leaves too little of the right-hand side to be an answer.
VISIBLE = 1e-3


@dataclass(frozen=True)
class Evidence:
    """What is known of a field when its solve ends; residuals relative to the right-hand side."""

    # error, size: estimated root mean square of the error, and that of the answer
    error: float
    size: float
    residual: float | None = None  # measured; None where not all of the field was filled
    promised: float = math.inf  # the largest residual that the status allows for
    rounding: float = 0.0  # the 2-norm of ``eps |A| |u|``; zero where that is no excuse
    # The largest share of the size that an error may have; infinite where there is no answer to be
    # a share of, or the aim is another
    plausible: float = PLAUSIBLE
    # The largest residual that rounding is an excuse for; infinite where the estimate sees what rounding makes of it
    visible: float = VISIBLE


def verdict(status: str, evidence: Evidence) -> str:
    """Return the status that the evidence leaves of the one that a method ended with."""
    converged = status in CONVERGED
    if not converged and status != "stagnated":
        return status
    if math.isfinite(evidence.plausible) and not (
        evidence.error <= evidence.plausible * evidence.size
    ):
        return "stagnated"
    residual = evidence.residual
    if residual is None:
        return status
    if converged and residual <= evidence.promised:
        return status
    excess = residual - evidence.promised if converged else residual
    # Rounding that float64 does not hold, beside values whose squares it does not, excuses nothing.
    hidden = excess <= ROUNDINGS * evidence.rounding < math.inf and residual <= evidence.visible
    return "converged_rounding" if hidden else "stagnated"


def suspected(status: str, residual: float, promised: float) -> bool:
    """Say whether a verdict would need to know the rounding."""
    return status == "stagnated" or (status in CONVERGED and not residual <= promised)
