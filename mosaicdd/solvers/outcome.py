r"""Outcomes of problems: histories, evidence, error estimates, and the verdict.

``update`` is the root mean square of the change by one iteration, ``size`` that of the values.

`verdict` is the one place that decides whether a status is true of the field that is handed out. A method
ends with a status that its own updates or recurrences have earned. That is compared with what was measured
of the field, and ``converged_*`` stands only if nothing measured contradicts it:

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

3. What is more than that is no more than float64's rounding leaves: each product of ``A u`` and each value of ``u``
   is rounded, so some four units in the last place of $\lvert A \rvert \lvert u \rvert$. Such a status is
   ``converged_rounding``; so is that of an iteration that stagnated there. It says nothing of a residual above a
   thousandth of the right-hand side, unless the estimate is made from that residual and in differences, which lose
   nothing (multigrid); and it is no certificate.

Everything else is ``stagnated``.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from mosaicdd.axes import Slices
from mosaicdd.parallel.layouts.layout import Layout
from mosaicdd.solvers.settings import CONVERGED

Progress = Callable[[int, float, float, float], None]
"""``progress(iteration, update, size, mae)``, called after every iteration."""

BLOW_UP = 1e6  # growth of the update, or of the residual, over the smallest so far that counts as divergence


@dataclass
class History:
    """One entry per iteration; NaN where a number was not measured.

    Parameters
    ----------
    update
        Root mean square of the change over the interface.
    residual
        Root mean square of ``T v - v`` over the lattice nodes, before the iteration; not in the
        inner iterations of GMRES.
    mae
        Mean absolute error over the interface, with a reference.
    seconds
        Since the start of the iteration.
    """

    update: list[float] = field(default_factory=list)
    residual: list[float] = field(default_factory=list)
    mae: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def followed_by(self, other: "History") -> "History":
        """Return this history and another that began when it ended."""
        begin = self.seconds[-1] if self.seconds else 0.0
        later = [begin + seconds for seconds in other.seconds]
        return History(
            self.update + other.update,
            self.residual + other.residual,
            self.mae + other.mae,
            self.seconds + later,
        )

    def times(self, factor: float) -> "History":
        """Return the history of data multiplied by a number."""
        update, mae = ([factor * size for size in sizes] for sizes in (self.update, self.mae))
        return dataclasses.replace(self, update=update, mae=mae)


def progress_times(progress: Progress | None, factor: float) -> Progress | None:
    """Return progress that shows measurements multiplied by a factor."""
    if progress is None:
        return None
    return lambda iteration, *sizes: progress(iteration, *(factor * size for size in sizes))


@dataclass(frozen=True)
class Certificate:
    """Certificate of a result.

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
    """Evidence of a field at the end of its solve; residuals are relative to the right-hand side."""

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


ERROR_STEP = {2: 16, 3: 8}
"""Of how many nodes along each axis one has an estimate where there is no lattice, by the number of axes."""


@dataclass(frozen=True)
class ErrorEstimate:
    """An estimated distance to the discrete solution.

    Parameters
    ----------
    rms
        Root mean square over the domain.
    interface
        Its part that is seen on the interface; the rest is of the fill along the edge.
    nodes
        Absolute values at this rank's lattice nodes, or of some nodes of the grid, see `ERROR_STEP`; ``place`` says where these belong
        among all of these.
    energy
        Bound for the energy norm, ``e . A e`` times the squared spacing under a root, where the method
        has one.
    """

    rms: float
    interface: float
    nodes: torch.Tensor
    place: Slices
    energy: float | None = None

    def times(self, factor: float) -> "ErrorEstimate":
        """Return the estimate whose distances are multiplied."""
        return dataclasses.replace(
            self,
            rms=factor * self.rms,
            interface=factor * self.interface,
            nodes=factor * self.nodes,
            energy=None if self.energy is None else factor * self.energy,
        )


@dataclass(frozen=True)
class Outcome:
    """Outcome of a problem, on every rank.

    Parameters
    ----------
    status
        One of ``converged_rtol``, ``converged_atol``, ``converged_rounding``,
        ``diverged_max_iterations``, ``diverged_tolerance``, ``diverged_nan``, ``interrupted``,
        ``stagnated``: as `verdict` has it.
    update, residual
        Root mean square over the interface of the last change, and of ``T v - v`` at the result.
        On the lattice lines, the field is ``T v``; None of a method on the whole grid.
    size
        Root mean square of the values over the interface.
    discrete_residual
        Relative residual of the discrete equation, ``|A u| / |b|``, in the 2-norm. Like ``residual``
        it is measured on the field, and None where not all of that was filled.
    rounding
        What float64's rounding alone leaves of it at least, ``eps |A| |u| / |b|``; None where that was not needed for
        the status.
    imbalance
        Where no value is given on any side, what flows in but not out, relative to all that flows.
    error_estimate
        Distance to the discrete solution, the local solver's own error included.
    certificate
        In certified mode, how the result was certified.
    outside
        Owned subdomains, ``(rows, columns)``, whose data are outside of the training range; None if
        the local solver has no such range. ``error_estimate.place`` says where they belong.
    interface, field
        This rank's interface, and its part of the field, ``(rows, columns)``, unless it went to a
        sink or was not wanted; ``place`` says where that belongs.
    layout
        How the field of the whole domain lies over the ranks.
    seconds
        Of this rank: ``iterate``, ``estimate`` and ``assemble``; of several problems, for all.
    failure
        Why it ended, where more is known than the status says.
    """

    status: str
    update: float
    size: float
    discrete_residual: float | None
    error_estimate: ErrorEstimate
    history: History
    place: Slices
    layout: Layout
    seconds: dict[str, float]
    residual: float | None = None
    rounding: float | None = None
    imbalance: float | None = None
    failure: str | None = None
    certificate: Certificate | None = None
    outside: torch.Tensor | None = None
    field: torch.Tensor | None = None
    interface: Any = None

    @property
    def converged(self) -> bool:
        """Whether the stopping rule was met."""
        return self.status in CONVERGED

    @property
    def iterations(self) -> int:
        """Iterations done, those of a certificate included."""
        return len(self.history.update)

    @property
    def sweeps(self) -> int:
        """Sweeps done in these iterations: one in each."""
        return self.iterations
