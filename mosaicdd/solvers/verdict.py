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
"""

import math
from dataclasses import dataclass

from mosaicdd.solvers.settings import CONVERGED


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


PLAUSIBLE = 0.1  # share of the answer's size above which an estimated error is no convergence


EARNED = 10.0  # errors in updates: estimates are within that (`benchmarks/trust.py`)


ROUNDINGS = 4.0  # units in the last place of `|A| |u|`: 2.5 of five products and their sum, 1 of values, elimination


# Residual above which rounding leaves too little of the right-hand side to be an answer.
VISIBLE = 1e-3


@dataclass(frozen=True)
class StatusEvidence:
    """What is known of a field when its solve ends; residuals relative to the right-hand side."""

    # error, size: estimated root mean square of the error, and that of the answer
    error: float
    size: float
    residual: float | None = None  # measured; None where not all of the field was filled
    promised: float = math.inf  # the largest residual that the status allows for
    rounding: float = 0.0  # the 2-norm of ``eps |A| |u|``; zero where that is no excuse
    # The largest share of the size that an error may have; infinite where there is no answer to be
    # a share of, or the aim is another
    max_error_share: float = PLAUSIBLE
    # The largest residual that rounding is an excuse for; infinite where the estimate sees what rounding makes of it
    visible: float = VISIBLE


def verdict(status: str, evidence: StatusEvidence) -> str:
    """Return the status that the evidence leaves of the one that a method ended with."""
    converged = status in CONVERGED
    if not converged and status != "stagnated":
        return status
    if math.isfinite(evidence.max_error_share) and not (
        evidence.error <= evidence.max_error_share * evidence.size
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


def needs_rounding(status: str, residual: float, promised: float) -> bool:
    """Say whether a verdict would need to know the rounding."""
    return status == "stagnated" or (status in CONVERGED and not residual <= promised)
