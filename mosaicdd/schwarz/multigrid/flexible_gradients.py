"""Conjugate gradients under a cycle, both in float32, for values in float64.

Directions are float32 numbers, but exact as such, and the equations' left side of them is made of differences. So the recurrence of the residual follows the true one to some six
digits of what it began with. After four it is replaced by one that is computed anew, in float64 and in differences, and that
decides the end, too; directions go on as if nothing had happened. Rounding makes the cycle a slightly different matrix each
time, so new directions are made orthogonal to the last one in the energy itself (flexible).
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from mosaicdd.schwarz.error_estimate import least_ritz_value
from mosaicdd.schwarz.multigrid.cycle import Cycle
from mosaicdd.schwarz.multigrid.judge import Judge
from mosaicdd.schwarz.multigrid.node_system import NodeSystem
from mosaicdd.schwarz.multigrid.product import Product

# Of bounds: Ritz values approach the smallest eigenvalue from above, and here late, as conductors that hold no coarse node
# have one of their own each. With 1.5 bounds are 0.6 of the error at least (`scripts/bench_field_estimate.py`).
_SAFETY = 4.5
_STEP = 1e-4  # by which a residual falls before it is computed anew
# Of a true residual beside its recurrence, from which the last direction is of no use any more: where an exchange
# makes the equations of some nodes much larger than others, six digits of theirs are more than all of the others'.
_DRIFT = 1.5
_GAIN = (
    0.5  # of true residuals from one to the next, at least: there is little but rounding left else
)
# Of residuals, on average of so many iterations, above which elements take less time.
_CONTRACTION, _TRIALS = 0.7, 8

SLOW = "slow"
"""The status of an iteration that contracts too badly to go on."""


@dataclass(frozen=True)
class Ended:
    """How an iteration ended.

    Parameters
    ----------
    status
        Of the judge; ``stagnated`` where the true residual contradicts it.
    unit
        Of what the cycle's right-hand side is left with: the residual divided by it.
    least
        The smallest eigenvalue of the preconditioned operator that was seen.
    """

    status: str
    unit: float
    least: float


class _Views(NamedTuple):
    """The vectors of an iteration at the slots of a class in a stretch; views, made once."""

    x: torch.Tensor
    r: torch.Tensor
    p: torch.Tensor
    q: torch.Tensor
    z: torch.Tensor


@dataclass
class State:
    """Where an iteration is.

    Parameters
    ----------
    x
        The values, float64, without the last direction's part.
    r, p, q, z
        The residual divided by `unit`, the last direction, the left side of it divided by the equations' scale, and
        the cycle's values; float32.
    stretches
        Of slots, see `Parities`.
    energy
        ``p q``; 0 where there is no direction to go on from.
    length
        Of the last direction, to be added to the values.
    unit_before
        That in which the last direction was made.
    norm
        Of the residual by its recurrence, where all rows count alike.
    least
        The smallest eigenvalue that earlier steps have seen, of earlier solves, too.
    steps
        Of Lanczos' matrix.
    """

    x: torch.Tensor
    r: torch.Tensor
    p: torch.Tensor
    q: torch.Tensor
    z: torch.Tensor
    stretches: Sequence[slice]
    unit: float
    energy: float = 0.0
    length: float = 0.0
    unit_before: float = 1.0
    norm: float = math.inf
    least: float = 1.0
    steps: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        vectors = self.x, self.r, self.p, self.q, self.z
        self.parts = [
            [_Views(*(vector[of, s] for vector in vectors)) for of in range(len(self.x))]
            for s in self.stretches
        ]
        self._room = self.x.new_empty(max(s.stop - s.start for s in self.stretches))

    def add_direction(self, part: "_Views") -> None:
        """Add the last direction's part to the values of a class in a stretch."""
        if self.length:
            p = self._room[: len(part.p)].copy_(part.p)
            part.x.add_(p, alpha=self.length)

    def begin_again(self) -> None:
        """Forget the last direction; what its steps have seen of the spectrum is kept, where that is no rounding."""
        seen = least_ritz_value(self.steps)
        self.least = min(self.least, seen) if seen > 0 else self.least
        self.energy = 0.0
        self.steps.clear()

    def settle(self) -> None:
        """Add the last direction's part to all values."""
        for part in self.every():
            self.add_direction(part)
        self.length = 0.0

    def every(self) -> Iterator["_Views"]:
        """Yield all parts, stretch by stretch."""
        return itertools.chain.from_iterable(self.parts)

    def step(self, alpha: float) -> float:
        """Subtract ``alpha q`` from the residual; return its square."""
        squares = 0.0
        for part in self.every():
            part.r.add_(part.q, alpha=-alpha)
            squares += float(torch.dot(part.r, part.r))
        return squares


class FlexibleGradients:
    """Solves equations of one medium; what depends on that alone is planned once.

    Parameters
    ----------
    alone
        Whether there is no other way to go where iterations contract badly; by default in space, where there are no
        condensed elements.
    """

    def __init__(self, system: NodeSystem, *, alone: bool | None = None):
        self.system = system
        self._ranks = system.blocks.ranks
        self._level = system.level()
        self._cycle = Cycle(self._level, system.blocks)
        self._copies = system.blocks.exchange(self._cycle.values)
        self._weighted = self._ranks.any(system.light is not None)
        self._least = 1.0
        self.alone = system.nodes.axes > 2 if alone is None else alone

    def __call__(self, b: torch.Tensor, x: torch.Tensor, size: float, judge: Judge) -> Ended:
        """Solve for a right-hand side, a vector, from values ``x``, which become the result.

        Parameters
        ----------
        size
            What residuals are relative to.
        judge
            Judges the iterations; its aim is of the true relative residual.
        """
        state, product = self._begun(x, size)
        status: str | None = None
        residual = self._renewed(state, b) / size
        if residual <= judge.aim and judge.confirms(x):
            status = judge.enter(x, 0.0, residual, (0.0, 0.0))
        while status is None:
            status, largest = self._iterate(state, product, size, judge)
            residual = self._renewed(state, b) / size
            judge.history.residual[-1] = residual
            if status in (None, "converged_rtol"):
                ended = residual <= judge.aim and judge.confirms(x)
                status = "converged_rtol" if ended else None
                if status is None and not residual <= _GAIN * largest:
                    status = "stagnated"
        state.begin_again()
        self._least = state.least
        return Ended(status, state.unit, state.least)

    def error(self, ended: Ended) -> tuple[torch.Tensor, float, float]:
        """Bound the error that the last solve left, by one more correction ``z`` of its residual.

        With ``e`` the error and ``M`` the cycle, whose smallest eigenvalue with ``A`` is ``theta``, ``z = M r = M A e``,
        so ``e A e <= (r, z) / theta``; ``e`` itself is ``z / theta`` at most where it has the shape of slow errors.

        Returns
        -------
        Tensor, float, float
            ``z`` in float32, 1 at most, until the next solve, and what makes ``z / theta`` of it; the energy norm's
            bound, NaN where there is none.
        """
        r, least = self._cycle.right_hand_side, ended.least
        z = self._correction()
        product = sum(float(torch.dot(a, b)) for a, b in zip(r, z, strict=True))
        energy = max(self._total(product)[0], 0.0) / least / self.system.scale
        largest = self._ranks.largest(float(torch.linalg.vector_norm(z, math.inf))) or 1.0
        z /= largest
        factor = ended.unit / self.system.scale / least * largest
        return z, factor, ended.unit * math.sqrt(_SAFETY * energy)

    def work(self, x: torch.Tensor, ended: Ended) -> float:
        """Return the product of values with the residual that the last solve left, before the next; all ranks together."""
        r = self._cycle.right_hand_side
        stretches = self.system.nodes.stretches()
        product = sum(
            float(torch.dot(values[s].float(), left[s]))
            for values, left in zip(x, r, strict=True)
            for s in stretches
        )
        return ended.unit * self._total(product)[0]

    def _begun(self, x: torch.Tensor, size: float) -> tuple[State, Product]:
        """Return where an iteration from values begins, and what computes the left side of its directions."""
        r, z = self._cycle.right_hand_side, self._cycle.values
        p, q = torch.zeros_like(r), torch.zeros_like(r)
        product = Product(self._level, p, q)
        # What earlier solves have seen of the spectrum: one that begins near its end sees little of it.
        return State(x, r, p, q, z, product.stretches, size, least=self._least), product

    def _iterate(
        self, state: State, product: Product, size: float, judge: Judge
    ) -> tuple[str | None, float]:
        """Iterate until the judge ends, or the residual's recurrence is far below the largest.

        Returns
        -------
        str or None, float
            How it ends, if it does; the largest relative residual.
        """
        largest = self._norm(state.r) * state.unit / size
        residuals = [largest]
        while True:
            self._correction()
            beta = 0.0
            if state.energy:
                along = sum(float(torch.dot(part.q, part.z)) for part in state.every())
                beta = -self._total(along)[0] / state.energy
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
            norm = self._norm(state.r) if self._weighted else math.sqrt(squares)
            residual = norm * state.unit / size
            update = abs(state.length) * math.sqrt(square / self.system.unknowns)
            if any(calls):
                state.settle()
            end = judge.enter(state.x, update, residual, calls)
            largest = max(largest, residual)
            if end is not None or self._is_small(residual, largest):
                return end, largest
            residuals.append(residual)
            if not self.alone and slow(residuals, judge.paid):
                return SLOW, largest

    @staticmethod
    def _is_small(residual: float, largest: float) -> bool:
        """Say whether a residual is so much smaller than the largest that it should be computed anew."""
        return residual <= _STEP * largest

    def _direction(self, state: State, product: Product, beta: float) -> list[float]:
        """Let ``p = z + beta p`` and ``q = A p``; return ``p q`` and ``r p``."""
        gamma = energy = 0.0
        for number, parts in enumerate(state.parts):
            for part in parts:
                state.add_direction(part)
                torch.add(part.z, part.p, alpha=beta, out=part.p)
                gamma += float(torch.dot(part.r, part.p))
            if number:  # whose neighbours are there now
                energy += product.of_stretch(number - 1)
        energy += product.of_stretch(len(product.stretches) - 1)
        energy += self.system.add_excess(state.p, state.q)
        if self._copies is not None:
            self._copies.clear(state.q)
            energy = sum(float(torch.dot(part.p, part.q)) for part in state.every())
        return self._total(energy, gamma)

    def _correction(self) -> torch.Tensor:
        """Return the cycle's values for the residual."""
        self._cycle()
        values = self._cycle.values
        if self._copies is not None:
            self._copies.refresh(values)
            self._copies.clear(self._cycle.right_hand_side)  # that it has refreshed
        return values

    def _renewed(self, state: State, b: torch.Tensor) -> float:
        """Compute the residual anew, in a unit that makes it about 1; return its norm."""
        state.settle()
        if self.system.copies is not None:
            self.system.copies.refresh(state.x)
        self.system.residual(b, state.x, state.r, state.unit)
        if self._copies is not None:
            self._copies.clear(state.r)
        norm = plain = self._norm(state.r)
        if self._weighted:
            plain = self._plain_norm(state.r)
        if plain * state.unit > _DRIFT * state.norm:
            state.begin_again()
        if norm > 0:
            state.r /= norm
            state.unit *= norm
        return norm and state.unit

    def _norm(self, r: torch.Tensor) -> float:
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
        (squares,) = self._total(sum(float(torch.dot(part, part)) for part in r))
        return math.sqrt(squares)

    def _total(self, *numbers: float) -> list[float]:
        """Add up numbers over the ranks."""
        return self._ranks.sum(np.array(numbers)).tolist()


def slow(residuals: list[float], paid: int) -> bool:
    """Say, now and then, whether the last iterations contracted badly, by residuals of one recurrence."""
    recent = residuals[-_TRIALS - 1 :]
    due = len(residuals) % _TRIALS == 1 and len(residuals) > paid
    return due and recent[-1] > _CONTRACTION ** (len(recent) - 1) * recent[0]
