r"""Newton's method for one nonlinear problem, whose steps are solves in a medium.

Each step solves $J(u) \delta = -F(u)$, only as well as it pays (Eisenstat and Walker,
1996: the bound of a step's residual falls with that of the nonlinear one), and goes on by
$u + t \delta$ with the largest $t$ of 1, 1/2, 1/4, ... that lowers the residual, and of an energy, of which it is
the derivative, leads not far beyond its least along the step.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from mosaicdd.axes import Slices
from mosaicdd.parallel.safe_norms import is_safe, norm, safe_power
from mosaicdd.problems.operators.jacobian import NotEllipticError, OutOfRangeError, is_beyond
from mosaicdd.solvers.measure import driven
from mosaicdd.solvers.monitor import ResidualMonitor
from mosaicdd.solvers.newton.newton_equations import LinearForm, NewtonEquations
from mosaicdd.solvers.newton.newton_steps import NewtonContext, Step
from mosaicdd.solvers.outcome import (
    ERROR_STEP,
    Certificate,
    ErrorEstimate,
    StatusEvidence,
    needs_rounding,
)
from mosaicdd.solvers.prepared_system import Change
from mosaicdd.solvers.settings import CONVERGED, OUT_OF_ITERATIONS

# Bounds of a step's linear residual: this, and times the nonlinear one. Early steps, which change much anyway, are
# cheap so, and late ones still converge faster than linearly.
_LOOSEST, _FORCING = 1e-2, 0.1
_SHORTEST = 2.0**-30  # of a step: the first one may be far too long
_SLOWEST = 0.67  # part of its last update that a step may leave, for an error estimate
_MARGIN = 10.0  # of the residual that a derivative taken before is expected to leave
_FAST = 0.1  # part of its last update below which the last derivative shows the next one
_SAFETY = 2.0  # of error estimates, which are linear
_ESTIMATE = 0.1  # linear residual that is enough for an error estimate
_NOTHING = 1e-300  # beside which no residual is small


class Newton:
    """Newton's method for one problem.

    Parameters
    ----------
    equations
        Of the problem.
    ways
        To find steps from values on, the first of which is taken that does.
    smooth
        The equation linearised at smooth values, by which residuals are measured.
    monitor
        Whose rule ends it: ``rtol`` bounds the residual.

    Attributes
    ----------
    u
        Values at the nodes that are held here.
    status, relative, size, history
        How it went: ``relative`` is the residual by its measure.
    failure
        Why there was no way on, if it stagnated.
    """

    def __init__(
        self,
        steps: NewtonContext,
        equations: NewtonEquations,
        ways: Sequence[Callable[[np.ndarray], Step]],
        smooth: LinearForm,
        monitor: ResidualMonitor,
    ):
        self._steps, self._place = steps, steps.place
        self._equations, self._monitor = equations, monitor
        self._weights = smooth.weights
        self._rtol = monitor.aim
        self._measure = self._measured(smooth)
        self._ways = list(ways)
        self._linear: Step | None = None
        self._kept = False  # whether the next step is to go by the derivative of the last one
        self._far = False  # whether steps have led far since the residual was measured last
        self.history = monitor.history
        self.status: str | None = None
        self.failure: str | None = None

    def run(
        self, u: np.ndarray, step: Step | None = None, residual: np.ndarray | None = None
    ) -> None:
        """Iterate from values on until the residual is small, or nothing makes it smaller.

        ``step`` and ``residual``: by the derivative there, and the one there, if they have been taken.
        """
        self._take(u, residual)
        self._linear = step
        while True:
            self._step()
            if self.status is not None:
                return
            if not self._kept:
                self._linear = None

    @property
    def relative(self) -> float:
        """The residual by its measure."""
        return self._norm / self._measure

    @property
    def evidence(self) -> StatusEvidence:
        """The evidence of the values by their residual; without the estimate of their error."""
        promised, rounding = self._rtol, 0.0
        if self._steps.settings.certify is None:
            if self.status == "converged_atol":
                promised = max(promised, self.history.residual[-1])
            if needs_rounding(self.status or "", self.relative, promised):
                rounding = self._rounding()
        return StatusEvidence(0.0, self.size, self.relative, promised, rounding)

    def _rounding(self) -> float:
        """Return the residual that rounding leaves, zero where the derivative does not say; all ranks."""
        try:
            diagonal = self._steps.ranks.run_on_all(lambda: self._equations.diagonal(self.u))
        except NotEllipticError:
            return 0.0
        products = self._place.without_ghosts(2 * self._weights * diagonal * self.u)
        return float(np.finfo(float).eps) * norm(self._steps.ranks, products) / self._measure

    @property
    def certificate(self) -> Certificate | None:
        """The certificate, if one is asked for: the tolerance bounds the residual itself."""
        certify = self._steps.settings.certify
        if certify is None:
            return None
        return Certificate(certify, len(self.history.update), 0.0, 0.0)

    def estimate(self) -> ErrorEstimate:
        r"""Estimate the error by what one more step would change, with the last derivative if steps fall fast.

        What the steps after that would change is the geometric series of what these two leave. The energy
        of the change $\delta$ is $-\delta \cdot F$. The derivative is forgotten.
        """
        last = self.history.update[-1]
        if not math.isfinite(self._norm):
            return self._unknown()
        try:
            change = self._solved(_ESTIMATE)
            if change.size > _FAST * last:
                self._linear = None
                change = self._solved(_ESTIMATE)
        except NotEllipticError:
            return self._unknown()
        finally:
            self._linear = None
        if change.status not in CONVERGED or not math.isfinite(change.size + change.error):
            return self._unknown()
        share = min(change.size / last, _SLOWEST) if last > 0 else 0.0
        scale = _SAFETY * (1.0 + change.error / change.size) / (1.0 - share) if change.size else 1.0
        energy = None
        if self._equations.self_adjoint:
            units = self._units(change)
            energy = scale * math.sqrt(abs(self._slope(change, units)))
            energy /= math.sqrt(units[0]) * math.sqrt(units[1])
        rms, nodes = scale * change.size, scale * change.at_samples(self._place.partition)
        return ErrorEstimate(
            rms, rms, nodes.to(**self._steps.settings.tensors), self._samples, energy
        )

    @property
    def _samples(self) -> Slices:
        return self._place.partition.samples(ERROR_STEP[len(self._place.owned)])

    def _unknown(self) -> ErrorEstimate:
        """Return the estimate where there is no derivative to go by: infinite."""
        shape = [part.stop - part.start for part in self._samples]
        nodes = torch.full(shape, math.inf, **self._steps.settings.tensors)
        return ErrorEstimate(math.inf, math.inf, nodes, self._samples)

    def _step(self) -> None:
        """Take a step, and judge it; by the last derivative, if that is enough for the last step."""
        before = self._norm
        if before == 0 or not math.isfinite(before):
            self._enter(before)
            self.status = "diverged_nan" if before else "converged_rtol"
            return
        aim = 0.5 * self._rtol / max(self.relative, 1e-300)
        try:
            change = self._solved(max(min(_LOOSEST, _FORCING * self.relative), min(aim, _LOOSEST)))
        except OutOfRangeError as error:  # on all ranks, as the next
            self._enter(math.inf)
            self.status, self.failure = "diverged_nan", f"values overflow on the way: {error}"
            return
        except NotEllipticError as error:
            self._enter(0.0)
            self._stagnate(str(error))
            return
        if not math.isfinite(change.size):
            self._enter(change.size)
            self.status = "diverged_nan"
            return
        u, length = self.u, 1.0
        begin, units = self._place.without_ghosts(u), self._units(change)
        slope = self._slope(change, units)
        while True:
            self._take(self._place.with_ghosts(begin + length * change.values))
            long = length * change.size > math.sqrt(self._rtol) * self.size
            if self._norm < before and not (long and is_beyond(slope, self._slope(change, units))):
                break
            if length < _SHORTEST:
                break
            length /= 2
        improved = self._norm < before
        if not improved:
            self._take(u)
        self._far |= long
        if self._far and self.relative <= self._rtol:
            self._remeasure()
        self._enter(length * change.size)
        self._monitor.show(self.size)
        share = self._norm / before
        if self._kept and not improved:
            # The derivative at these values may do what that at others did not.
            self._kept = False
        else:
            # What is left of an error by the derivative at it, by that before it is twice as much of the next.
            self._kept = (
                improved and length == 1.0 and _MARGIN * share * self.relative <= self._rtol
            )
            # A part of a step is short however far the values are: its size says nothing of their error.
            whole = change.size if improved and length == 1.0 else math.inf
            self._judge(change.status, whole, improved=improved)
        calls = self._steps.ranks.sum(np.array(self._monitor.calls())).tolist()
        self.status = self._monitor.answer(self.u, self.status, calls)

    def _units(self, change: Change) -> tuple[float, float]:
        """Return powers of two for a change and the residual by which float64 holds their products."""
        return safe_power(change.size), safe_power(self._norm)

    def _slope(self, change: Change, units: tuple[float, float]) -> float:
        """Return the slope of the energy along a change, zero without an energy; in units of both."""
        if not self._equations.self_adjoint:
            return 0.0
        values = change.values if units[0] == 1.0 else units[0] * change.values
        residual = self._place.without_ghosts(self._residual)
        rises = values * (residual if units[1] == 1.0 else units[1] * residual)
        return float(self._steps.ranks.sum(np.array([rises.sum()]))[0])

    def _remeasure(self) -> None:
        """Measure a residual that seems small after long steps by the values that these led to, too.

        Those of the first values may be larger by any factor, as of a sinh of them.
        """
        self._far = False
        try:
            form = self._steps.ranks.run_on_all(
                lambda: self._equations.linear_form(self.u, self._residual)
            )
        except NotEllipticError:  # as the next step will find, too
            self._measure = _NOTHING
        else:
            self._measure = min(self._measure, self._measured(form))

    def _measured(self, form: LinearForm) -> float:
        """Return the scale of residuals: the norm of right-hand side and source less a constant, or 1."""
        b, constant = (
            self._place.without_ghosts(self._weights * values)
            for values in (form.right + self._equations.source, form.constant)
        )
        size = norm(self._steps.ranks, b)
        power = safe_power(size)
        b = b if power == 1.0 else power * b
        products = np.array([np.vdot(b, b), np.vdot(b, constant), np.vdot(constant, constant)])
        measure, _ = driven(*self._steps.ranks.sum(products), rtol=self._rtol)
        return float(measure) / power or 1.0

    def _enter(self, update: float) -> None:
        """Enter a step into the history."""
        self._monitor.note(update, self.relative)

    def _judge(self, linear: str, whole: float, *, improved: bool) -> None:
        """Decide the status after a step by its linear status, and its size ``whole`` if it was a whole one."""
        # By another measure the residual grows, and it is not smaller for many steps: neither ends the iteration.
        if reached := self._monitor.reached(whole):
            self.status = reached
        elif not improved and linear in CONVERGED:
            self._stagnate("no part of the next one lowers the residual")
        elif linear == "stagnated":
            self._stagnate(
                "rounding leaves too much of its linear problem, or the derivative is not positive definite there"
            )
        elif not improved or linear in ("diverged_nan", "diverged_tolerance"):
            self.status = "stagnated" if linear == OUT_OF_ITERATIONS else linear
            self.failure = f"the linear problem of a step of Newton's method ended as {linear}"
        elif self._monitor.exhausted:
            self.status = OUT_OF_ITERATIONS

    def _stagnate(self, why: str) -> None:
        """End where there is no way on."""
        self.status = "stagnated"
        self.failure = (
            f"Newton's method finds no step to go on by: {why}. For these data the equation may have no solution, "
            "or none that is reached from this start"
        )

    def _take(self, u: np.ndarray, residual: np.ndarray | None = None) -> None:
        """Go to other values: evaluate their residual, if it is not known, its 2-norm and their root mean square over all ranks."""
        steps, self.u = self._steps, u
        with steps.clock.part("residual"):
            if residual is None:
                residual = steps.ranks.run_on_all(lambda: self._equations.residual(u))
            self._residual = residual
            nodes = self._place.without_ghosts(u)
            weighted = self._place.without_ghosts(self._weights * residual)
            with np.errstate(over="ignore"):  # of a step that is too long
                mine = [np.square(weighted).sum(), np.square(nodes).sum(), nodes.size]
        squares, total, count = steps.ranks.sum(np.array(mine)).tolist()
        self._norm = norm(steps.ranks, weighted, squares)
        size = math.sqrt(total / count) if total >= 0 else math.nan
        self.size = size if is_safe(size) else norm(steps.ranks, nodes, total) / math.sqrt(count)

    def _solved(self, rtol: float) -> Change:
        """Solve for the change that the derivative asks for; the last derivative is kept."""
        if self._norm == 0:
            return Change(
                np.zeros_like(self._place.without_ghosts(self.u)), 0.0, 0.0, "converged_rtol"
            )
        while True:
            if self._linear is None:
                self._linear = self._ways[0](self.u)
            change = self._linear(-self._residual, rtol)
            if change is not None:
                return change
            self._linear = None
            del self._ways[0]
