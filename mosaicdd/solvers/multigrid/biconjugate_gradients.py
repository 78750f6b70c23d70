"""Stabilised biconjugate gradients under a cycle, for equations with a velocity.

Of each iteration (van der Vorst, 1992) both directions are values of the cycle, float32 numbers that are exact as such, and
what the equations make of them is made of differences: none is a sum whose rounding would grow with the contrast, as where
directions are made orthogonal to earlier ones, and five vectors do for any number of iterations. Each direction counts as an
iteration, as it takes one cycle. The residual is computed anew as by `FlexibleGradients`, and the recurrence goes on.
"""

import math

import torch

from mosaicdd.solvers.monitor import ResidualMonitor
from mosaicdd.solvers.multigrid.conjugate_gradients import FlexibleGradients
from mosaicdd.solvers.multigrid.iteration import Product, State
from mosaicdd.solvers.multigrid.node_system import NodeEquations
from mosaicdd.solvers.multigrid.vector_operations import dot
from mosaicdd.solvers.settings import StoppingRule

# Of estimates, see `benchmarks/field_estimate.py`.
_SAFETY = 1.5
_SLOWEST = 0.9  # share of the residual that two steps leave, at most, for an estimate by a geometric series
# Of a residual and what is subtracted from it: where the angle is larger than so, a longer step than that to the smallest residual
# keeps the recurrence accurate (Sleijpen and van der Vorst, 1995).
_COSINE = 0.7
# Of a residual along the one that an iteration began with, beside both their sizes: less is nothing to go on from.
_LEAST = 1e-5


class StabilisedGradients(FlexibleGradients):
    """Solves equations of one medium whose couplings differ in both directions."""

    def __init__(self, system: NodeEquations):
        super().__init__(system)
        z = self._cycle.values
        self._p, self._v = self._product.p, self._product.q
        self._r, self._first, self._t = (torch.zeros_like(z) for _ in range(3))
        self._products = [
            Product(self._level, z, image, self._excess) for image in (self._v, self._t)
        ]
        # Of the last iteration: the residual along the first one, steps, and the unit of its vectors.
        self._along, self._alpha, self._omega, self._unit = 0.0, 1.0, 1.0, 1.0

    def error(self) -> tuple[torch.Tensor, float, float]:
        """Estimate the error of the last solve by the change of two more steps.

        Each takes as much as it can of the residual. It is an estimate, no bound: without symmetry there is none that
        would not cost as much as the solve.

        Returns
        -------
        Tensor, float, float
            What is changed in float32, 1 at most, until the next solve, and what makes the estimate of it; NaN, as there is
            no bound of the energy norm.
        """
        r, z, p, v, t = self._r, self._cycle.values, self._p, self._v, self._t
        r.copy_(self._cycle.right_hand_side)
        before = self._plain_norm(r)
        self._image(0)
        along, size = self._dots((v, r), (v, v))
        p.copy_(z)
        first = along / size if size else 0.0
        r.add_(v, alpha=-first)
        self._cycle.right_hand_side.copy_(r)
        self._image(1)
        (both,) = self._dots((v, t))
        back = both / size if size else 0.0
        t.add_(v, alpha=-back)
        along, size = self._dots((t, r), (t, t))
        second = along / size if size else 0.0
        r.add_(t, alpha=-second)
        z.mul_(second).add_(p, alpha=first - second * back)
        left = self._plain_norm(r) / before if before else 0.0
        largest = self._ranks.largest(float(torch.linalg.vector_norm(z, math.inf))) or 1.0
        z /= largest
        factor = _SAFETY / (1 - min(left, _SLOWEST))
        return z, factor * self._remains / self.system.scale * largest, math.nan

    def _begun(self, x: torch.Tensor, size: float) -> tuple[State, Product]:
        z, product = self._cycle.values, self._products[0]
        return State(
            x, self._cycle.right_hand_side, z, self._v, z, product.stretches, size
        ), product

    def _iterate(
        self, state: State, product: Product, size: float, judge: ResidualMonitor
    ) -> tuple[str | None, float]:
        r, p = self._r, self._p
        r.copy_(state.r)
        if state.energy:  # as the residual is another number of units now
            for vector in (p, self._v):
                vector *= self._unit / state.unit
            self._along *= self._unit / state.unit
        self._unit = state.unit
        largest = self.norm(r) * state.unit / size
        squares = math.inf
        while True:
            self._next_direction(state)
            for half, image in enumerate((self._v, self._t)):
                state.r.copy_(r if half else p)
                self._image(half)
                along, energy = self._along, 0.0
                if half:
                    along, energy = self._dots((image, r), (image, image))
                else:
                    (energy,) = self._dots((self._first, image))
                step = along / energy if energy else math.inf
                if half and along:
                    cosine = abs(along) / math.sqrt(energy * squares)
                    step *= max(1.0, _COSINE / cosine)
                if not (math.isfinite(step) and step):
                    left = largest if math.isfinite(along + energy) else math.nan
                    judge.note(0.0, left)
                    return "stagnated" if math.isfinite(left) else "diverged_nan", largest
                if half:
                    self._omega = step
                else:
                    self._alpha = step
                r.add_(image, alpha=-step)
                state.length = step * state.unit / self.system.scale
                state.settle()
                here = dot(r, r), self.system.square(self._cycle.values), *judge.calls()
                squares, square, *calls = self._total(*here)
                state.norm = math.sqrt(squares) * state.unit
                norm = self.norm(r) if self._weighted else math.sqrt(squares)
                residual = norm * state.unit / size
                update = abs(step) * state.unit / self.system.scale
                update *= math.sqrt(square / self.system.unknowns)
                end = judge.enter(state.x, update, residual, calls)
                largest = max(largest, residual)
                if end is not None:
                    state.energy = 0.0
                    return end, largest
            if self._is_small(residual, largest):
                return None, largest

    def _next_direction(self, state: State) -> None:
        """Let ``p`` be the next direction of residuals: from the last ones, or the residual itself."""
        r, p, first = self._r, self._p, self._first
        along, squares, sizes = self._dots((first, r), (r, r), (first, first))
        if state.energy and abs(along) > _LEAST * math.sqrt(squares * sizes):
            beta = along / self._along * self._alpha / self._omega
            p.add_(self._v, alpha=-self._omega).mul_(beta).add_(r)
        else:
            first.copy_(r)
            p.copy_(r)
            along = squares
        state.energy, self._along = 1.0, along

    def _image(self, number: int) -> None:
        """Apply the cycle to its right-hand side, and the operator to the result."""
        z = self._correction()
        product, image = self._products[number], (self._v, self._t)[number]
        for stretch in range(len(product.stretches)):
            product.of_stretch(stretch)
        self.system.add_excess(z, image)
        if self._copies is not None:
            self._copies.clear(image)

    def _dots(self, *pairs: tuple[torch.Tensor, torch.Tensor]) -> list[float]:
        """Return inner products over all ranks, of vectors whose copies are zero."""
        return self._total(*(dot(*pair) for pair in pairs))


def gradients_of(system: NodeEquations) -> FlexibleGradients:
    """Return the Krylov method of a system: conjugate gradients, or with a velocity their stabilised kind."""
    return (StabilisedGradients if system.directed else FlexibleGradients)(system)


# Ratios of the equations' numbers from which levels and residuals are looked at. From about 1e9 on, conductors that hold no coarse node and are not
# driven can be wrong to any degree beside sides that drive large flows, unseen in any residual relative to these. By
# constant sources they are seen: in mixtures of two phases, node by node, of 1e6 to 1e14, residuals fall by 0.65 an
# iteration at best, in the conductors of `benchmarks/media.py` by 0.35.
_VARIED, _CONTRAST = 1e3, 1e6
_CONTRACTION, _TRIALS = 0.5, 8
# Iterations where residuals say little and estimates go by what is known of the spectrum alone.
_LEARNT = 24


def try_out(gradients: FlexibleGradients) -> None:
    """Try multigrid in a varying medium, and take aggregates if it does not contract; all ranks together.

    What iterations see of the spectrum is remembered, for estimates.
    """
    system = gradients.system
    told = system.scale <= _CONTRAST * system.least
    # Beside an outline single numbers on the diagonal are large, which every level knows: conductors are of couplings.
    if system.directed or (told and system.strongest <= _VARIED * system.least):
        return
    if not told and (system.dtype == torch.float64 or not _contracts(gradients)):
        gradients.correct()
    gradients.prepare()
    if not told:
        _tried(gradients, _LEARNT if system.dtype == torch.float64 else _TRIALS)


def _contracts(gradients: FlexibleGradients) -> bool:
    """Say whether first iterations contract well."""
    residuals = _tried(gradients, _TRIALS)
    largest = max(1.0, *residuals)  # as first steps may enlarge it
    return residuals[-1] <= _CONTRACTION ** (_TRIALS - 1) * largest


def _tried(gradients: FlexibleGradients, iterations: int) -> list[float]:
    """Return relative residuals of first iterations for a constant source."""
    system = gradients.system
    rule = StoppingRule(_CONTRACTION**iterations, 0.0, iterations)
    judge = ResidualMonitor(rule)
    gradients(system.vector(system.ones), system.vector(), math.sqrt(system.unknowns), judge)
    return judge.history.residual
