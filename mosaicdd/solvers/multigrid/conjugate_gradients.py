"""Conjugate gradients under a cycle, both in float32 up to high contrasts, for values in float64.

Directions are float32 numbers, but exact as such, and the equations' left side of them is made of differences. So the recurrence of the residual follows the true one to some six
digits of what it began with. After four it is replaced by one that is computed anew, in float64 and in differences, and that
decides the end, too; directions go on as if nothing had happened. Rounding makes the cycle a slightly different matrix each
time, so new directions are made orthogonal to the last one in the energy itself (flexible).
"""

import math
from collections.abc import Callable

import numpy as np
import torch

from mosaicdd.parallel.machine import fits_beside
from mosaicdd.solvers.monitor import ResidualMonitor
from mosaicdd.solvers.multigrid.aggregates import CoarseAggregates
from mosaicdd.solvers.multigrid.cycle import Cycle
from mosaicdd.solvers.multigrid.iteration import Product, State
from mosaicdd.solvers.multigrid.node_system import NodeEquations
from mosaicdd.solvers.multigrid.vector_operations import dot

# Of bounds: Ritz values approach the smallest eigenvalue from above, and here late, as conductors that hold no coarse node
# have one of their own each. With 1.5 bounds are 0.6 of the error at least (`benchmarks/field_estimate.py`).
_SAFETY = 4.5
_STEP = 1e-4  # by which a residual falls before it is computed anew
# Of a true residual beside its recurrence, from which the last direction is of no use any more: where an exchange
# makes the equations of some nodes much larger than others, six digits of theirs are more than all of the others'.
_DRIFT = 1.5
# Of true residuals from one to the next, at least: there is little but rounding left else. What aggregates correct may
# enlarge a residual while it lessens the error.
_GAIN, _CORRECTED = 0.5, 0.9
# Of residuals, on average of so many iterations, above which aggregates pay.
_CONTRACTION, _TRIALS = 0.7, 8
_TO_JOIN = 70  # bytes per node that are in use a moment for it, see `pieces`
_PART = 2**16  # numbers at once, of which torch makes float64 ones before they are rounded

SLOW = "slow"
"""The status of an iteration that contracts too badly to go on as it does."""


class FlexibleGradients:
    """Conjugate gradients for the equations of one medium, which are planned once."""

    def __init__(self, system: NodeEquations):
        self.system = system
        self._ranks = system.blocks.ranks
        self._level = system.level()
        p, q = (system.nodes.new(system.dtype) for _ in range(2))
        self._excess = None if system.few else self._level.excess
        self._product = Product(self._level, p, q, self._excess)
        self._cycle = Cycle(self._level, system.blocks)
        self._copies = system.blocks.exchange(self._cycle.values)
        self._weighted = self._ranks.any(system.light is not None)
        # The smallest eigenvalue of the preconditioned operator that was seen.
        self._least = 1.0
        self._remains = 1.0  # unit of what the last solve has left in the cycle's right-hand side
        self._aggregates: CoarseAggregates | None = None
        # Whether there is no more to be done where iterations contract badly.
        self._as_it_is = False

    def __call__(
        self, b: torch.Tensor, x: torch.Tensor, size: float, judge: ResidualMonitor
    ) -> str:
        """Solve for a right-hand side, a vector, from values ``x``, which become the result; return how it ended.

        That is the judge's status, or ``stagnated`` where the true residual contradicts it.

        Parameters
        ----------
        size
            What residuals are relative to.
        judge
            Judges the iterations; its aim is of the true relative residual.
        """
        state, product = self._begun(x, size)
        status: str | None = None
        left = self._left(b, state)
        residual = self._renewed(state, left) / size
        if residual <= judge.aim and judge.confirms(x):
            status = "converged_rtol"
            if not judge.history.update:  # of an earlier run that had come so far
                status = judge.enter(x, 0.0, residual, (0.0, 0.0))
        while status is None:
            status, largest = self._iterate(state, product, size, judge)
            if status == SLOW:
                self.add_aggregates()
                state.begin_again()
                status, largest = None, math.inf
                state.least = 1.0  # the spectrum is another
            residual = self._renewed(state, left) / size
            judge.history.residual[-1] = residual
            if status in (None, "converged_rtol"):
                aimed = residual <= judge.aim
                status = "converged_rtol" if aimed and judge.confirms(x) else None
                gain = _GAIN if self._aggregates is None else _CORRECTED
                # Who does not confirm aims lower.
                if status is None and not aimed and not residual <= gain * largest:
                    status = "stagnated"
        state.begin_again()
        self._least, self._remains = state.least, state.unit
        return status

    def prepare(self) -> None:
        """Let the cycle know aggregates of its second level, if it does not contract there; all ranks together."""
        if not self._cycle.contracts() and self._cycle.balance():
            self._least = 1.0

    def add_aggregates(self) -> bool:
        """Take aggregates that are not taken yet; say if there are any. All ranks together.

        At first the cycle takes those of its second level; then residuals have nothing of the finest's.
        """
        if self._cycle.balance():
            self._least = 1.0
            return True
        return self.correct()

    def correct(self) -> bool:
        """From now on let residuals have nothing of the finest aggregates, if memory allows; say if that is new. All ranks together."""
        new = not self._as_it_is and fits_beside(self._ranks, _TO_JOIN * self.system.nodes.count)
        self._as_it_is = True
        if new:
            self._aggregates, self._least = CoarseAggregates(self.system), 1.0
        return new

    def error(self) -> tuple[torch.Tensor, float, float]:
        """Bound the error that the last solve left, by one more correction ``z`` of its residual.

        With ``e`` the error and ``M`` the cycle, whose smallest eigenvalue with ``A`` is ``theta``, ``z = M r = M A e``,
        so ``e A e <= (r, z) / theta``; ``e`` itself is ``z / theta`` at most where it has the shape of slow errors.

        Returns
        -------
        Tensor, float, float
            ``z`` in float32, 1 at most, until the next solve, and what makes ``z / theta`` of it; the energy norm's
            bound, NaN where there is none.
        """
        r, least = self._cycle.right_hand_side, self._least
        z = self._correction()
        energy = max(self._total(dot(r, z))[0], 0.0) / least / self.system.scale
        largest = self._ranks.largest(float(torch.linalg.vector_norm(z, math.inf))) or 1.0
        z /= largest
        factor = self._remains / self.system.scale / least * largest
        if self._aggregates is not None:  # then errors are of all wavelengths alike
            factor *= math.sqrt(_SAFETY) if self.system.dtype == torch.float32 else _SAFETY
        return z, factor, self._remains * math.sqrt(_SAFETY * energy)

    def work(self, x: torch.Tensor) -> float:
        """Return the product of values with the residual that the last solve left, before the next; all ranks together."""
        return self._remains * self._total(dot(self._cycle.right_hand_side, x))[0]

    def _begun(self, x: torch.Tensor, size: float) -> tuple[State, Product]:
        """Return the state of an iteration from values, and the product of its directions."""
        r, z = self._cycle.right_hand_side, self._cycle.values
        product = self._product
        product.p.zero_()
        # What earlier solves have seen of the spectrum: one that begins near its end sees little of it.
        return State(
            x, r, product.p, product.q, z, product.stretches, size, least=self._least
        ), product

    def _iterate(
        self, state: State, product: Product, size: float, judge: ResidualMonitor
    ) -> tuple[str | None, float]:
        """Iterate until the judge ends, or the residual's recurrence is far below the largest.

        Returns
        -------
        str or None, float
            How it ends, if it does; the largest relative residual.
        """
        largest = self.norm(state.r) * state.unit / size
        residuals = [largest]
        while True:
            self._correction()
            beta = 0.0
            if state.energy:
                beta = -self._total(dot(state.q, state.z))[0] / state.energy
            state.energy, gamma = self._direction(state, product, beta)
            if not state.energy > 0:
                status = "stagnated" if math.isfinite(state.energy) else "diverged_nan"
                left = largest if math.isfinite(state.energy) else math.nan
                judge.note(0.0, left)
                return status, largest
            alpha = gamma / state.energy
            state.length = alpha * state.unit / self.system.scale
            # As of directions that are not divided by their units.
            state.steps.append((alpha, beta * state.unit / state.unit_before))
            state.unit_before = state.unit
            numbers = state.step(alpha), self.system.square(state.p), *judge.calls()
            squares, square, *calls = self._total(*numbers)
            state.norm = math.sqrt(squares) * state.unit
            norm = self.norm(state.r) if self._weighted else math.sqrt(squares)
            residual = norm * state.unit / size
            update = abs(state.length) * math.sqrt(square / self.system.unknowns)
            if any(calls):
                state.settle()
            end = judge.enter(state.x, update, residual, calls)
            largest = max(largest, residual)
            if end is not None or self._is_small(residual, largest):
                return end, largest
            residuals.append(residual)
            if not self._as_it_is and slow(residuals):
                return SLOW, largest

    @staticmethod
    def _is_small(residual: float, largest: float) -> bool:
        """Say whether a residual is so much smaller than the largest that it should be computed anew."""
        return residual <= _STEP * largest

    def _direction(self, state: State, product: Product, beta: float) -> list[float]:
        """Let ``p = z + beta p`` and ``q = A p``; return ``p q`` and ``r p``."""
        gamma = energy = 0.0
        count = len(state.stretches)
        for number in range(count):
            gamma += state.turn(number, beta)
            if number:  # whose neighbours are there now
                energy += product.of_stretch(number - 1)
        energy += product.of_stretch(count - 1)
        energy += self._of_few(state)
        if self._aggregates is not None:
            # Without what aggregates have of it, and with what rounding has left there.
            self._aggregates.prolong_add(-self._aggregates.coarse_solve(state.q, state.r), state.p)
            energy = sum(map(product.of_stretch, range(count)))
            energy += self._of_few(state)
            gamma = dot(state.r, state.p)
        if self._copies is not None:
            energy = dot(state.p, state.q)
        return self._total(energy, gamma)

    def _of_few(self, state: State) -> float:
        """Add the excess of few nodes to the left side of a direction, whose copies become zero; return what that adds to ``p q``."""
        added = self.system.add_excess(state.p, state.q)
        if self._copies is not None:
            self._copies.clear(state.q)
        return added

    def _correction(self) -> torch.Tensor:
        """Return the cycle's values for the residual."""
        self._cycle()
        values = self._cycle.values
        if self._copies is not None:
            self._copies.refresh(values)
            self._copies.clear(self._cycle.right_hand_side)  # that it has refreshed
        return values

    def _left(self, b: torch.Tensor, state: State) -> Callable[[], None]:
        """Return the computation of the true residual of a right-hand side; of values that are zero, at once."""
        differences = self.system.residual(b, state.x, state.r)
        at_zero = not self._ranks.any(bool(state.x.any()))

        def compute() -> None:
            nonlocal at_zero
            if at_zero:
                parts = b.view(-1).split(_PART), state.r.view(-1).split(_PART)
                for right, r in zip(*parts, strict=True):
                    torch.mul(right, 1 / state.unit, out=r)
            else:
                if self.system.copies is not None:
                    self.system.copies.refresh(state.x)
                differences(state.unit)
            at_zero = False
            if self._copies is not None:
                self._copies.clear(state.r)

        return compute

    def _renewed(self, state: State, left: Callable[[], None]) -> float:
        """Compute the residual anew, in a unit that makes it about 1; return its norm."""
        state.settle()
        left()
        if self._aggregates is not None:
            unit = state.unit / self.system.scale
            self._aggregates.prolong_add(unit * self._aggregates.coarse_solve(state.r), state.x)
            left()
        norm = plain = self.norm(state.r)
        if self._weighted:
            plain = self._plain_norm(state.r)
        if plain * state.unit > _DRIFT * state.norm:
            state.begin_again()
        if norm > 0:
            state.r /= norm
            state.unit *= norm
        return norm and state.unit

    def norm(self, r: torch.Tensor) -> float:
        """Return the 2-norm of a residual whose copies are zero, as its rows count."""
        flat, light = r.view(-1), self.system.light
        if light is None:
            return self._plain_norm(r)
        places, weights = light
        full = flat[places]
        flat[places] = full * weights.to(full)
        norm = self._plain_norm(r)
        flat[places] = full
        return norm

    def _plain_norm(self, r: torch.Tensor) -> float:
        (squares,) = self._total(dot(r, r))
        return math.sqrt(squares)

    def _total(self, *numbers: float) -> list[float]:
        """Add up numbers over the ranks."""
        return self._ranks.sum(np.array(numbers)).tolist()


def slow(residuals: list[float]) -> bool:
    """Say, now and then, whether the last iterations contracted badly, by residuals of one recurrence."""
    recent = residuals[-_TRIALS - 1 :]
    due = len(residuals) % _TRIALS == 1
    return due and recent[-1] > _CONTRACTION ** (len(recent) - 1) * recent[0]
