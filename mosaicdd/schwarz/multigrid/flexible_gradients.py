"""Conjugate gradients in float64 under a cycle in float32.

Rounding makes the cycle a slightly different matrix each time, so new directions are made orthogonal to the last one in
the energy itself (flexible). It drives the recurrence of the residual off, too: the end is decided by a residual that is
computed anew, in differences, from which the iteration begins again where it is too large.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from mosaicdd.lattice.axes import even
from mosaicdd.schwarz.multigrid.cycle import Cycle
from mosaicdd.schwarz.multigrid.node_system import NodeSystem, Product
from mosaicdd.schwarz.ritz import least_ritz_value

_SAFETY = 1.5  # of bounds: Ritz values approach the smallest eigenvalue from above
_ROUNDS = 5
_GAIN = 0.5  # of a round that begins again, at least: there is little but rounding left else
# Of residuals in so many iterations: above it levels that are too coarse for the medium are given up.
_CONTRACTION, _LOOK = 0.5, 8
_STRETCH = 2**14  # numbers of a vector that are handled at once, for the cache


@dataclass(frozen=True)
class Iterated:
    """What an iteration ended with.

    Parameters
    ----------
    values
        A vector.
    status
        ``converged_rtol``, ``stagnated``, ``diverged_nan`` or ``diverged_max_iterations``.
    residual
        The true one, relative to the right-hand side.
    energy
        Bound of the error in the energy norm.
    history
        Relative residuals by recurrence after each iteration.
    """

    values: torch.Tensor
    status: str
    residual: float
    energy: float
    history: list[float]


class FlexibleGradients:
    """Solves equations of one medium; what depends on that alone is planned once."""

    def __init__(self, equations: NodeSystem):
        self.equations = equations
        self._ranks = equations.blocks.ranks
        self._cycle = Cycle(equations.level(), equations.blocks, held=equations.held)
        self._copies = equations.blocks.exchange(self._cycle.values)
        self._stretches = even(equations.vector().numel(), _STRETCH)

    def __call__(
        self, b: torch.Tensor, *, rtol: float = 1e-8, max_iterations: int = 200
    ) -> Iterated:
        """Solve for a right-hand side, a vector; where nothing holds the values, for a mean of zero."""
        self._p, self._q = self.equations.vector(), self.equations.vector()
        self._product = Product(self.equations, self._p, self._q)
        b = self._without_constant(self._owned(b))
        x, r, size = torch.zeros_like(b), b.clone(), self._norm(b)
        history: list[float] = []
        steps: list[tuple[float, float]] = []
        status, residual, least = "converged_rtol", float(size > 0), 1.0
        for _ in range(_ROUNDS):
            if residual <= rtol:
                break
            steps = []
            status = self._iterate(x, r, size, rtol, max_iterations, history, steps)
            least = min(least, least_ritz_value(steps))
            before, residual = residual, self._residual(b, self._without_constant(x), r, size)
            if status != "converged_rtol" or residual > _GAIN * before:
                break
        if status == "converged_rtol" and not residual <= rtol:
            status = "stagnated"
        energy = self._energy(r, least)
        del self._product, self._p, self._q
        return Iterated(x, status, residual, energy, history)

    def _iterate(
        self,
        x: torch.Tensor,
        r: torch.Tensor,
        size: float,
        rtol: float,
        max_iterations: int,
        history: list[float],
        steps: list[tuple[float, float]],
    ) -> str:
        """Iterate from a residual until its recurrence is small; ``x`` and ``r`` are overwritten."""
        p, q = self._p.view(-1), self._q.view(-1)
        values, residual = x.view(-1), r.view(-1)
        energy = beta = 0.0
        before = 1.0
        room = self._room = p.new_empty(
            max(_STRETCH, *(s.stop - s.start for s in self._product.stretches))
        )
        squares = self._norm(r) ** 2
        while True:
            if not math.isfinite(squares):
                return "diverged_nan"
            if math.sqrt(squares) <= rtol * size:
                return "converged_rtol"
            if len(history) >= max_iterations:
                return "diverged_max_iterations"
            norm = math.sqrt(squares)
            z = self._correction(r, norm)
            if energy:
                along = sum(float(torch.dot(q[s], _float64(z[s], room))) for s in self._stretches)
                beta = -self._total(along)[0] / energy
            energy, gamma = self._direction(r, z, beta)
            if not energy > 0:
                return "stagnated" if math.isfinite(energy) else "diverged_nan"
            alpha, squares = gamma / energy, 0.0
            for s in self._stretches:
                values[s].add_(p[s], alpha=alpha)
                residual[s].add_(q[s], alpha=-alpha)
                squares += float(torch.dot(residual[s], residual[s]))
            (squares,) = self._total(squares)
            # As of corrections that are not divided by their residuals' norms.
            steps.append((alpha / norm * self.equations.scale, beta * norm / before))
            before = norm
            history.append(math.sqrt(squares) / size)
            if _slow(history) and self._cycle.factorise():
                energy = beta = 0.0  # of a better cycle
                steps.clear()

    def _direction(self, r: torch.Tensor, z: torch.Tensor, beta: float) -> list[float]:
        """Let ``p = z + beta p`` and ``q = A p``; return ``p q`` and ``r p``."""
        gamma, product = 0.0, self._product
        z = z.view_as(r)
        for number, s in enumerate(product.stretches):
            for of in range(len(r)):
                p = self._p[of, s]
                torch.add(_float64(z[of, s], self._room), p, alpha=beta, out=p)
                gamma += float(torch.dot(r[of, s], p))
            if number:  # whose neighbours are there now
                product.of_stretch(number - 1)
        product.of_stretch(len(product.stretches) - 1)
        product.finish()
        p, q = self._p.view(-1), self._owned(self._q).view(-1)
        return self._total(sum(float(torch.dot(p[s], q[s])) for s in self._stretches), gamma)

    def _correction(self, r: torch.Tensor, scale: float) -> torch.Tensor:
        """Return the cycle's values for a residual, divided by a scale; flat, float32."""
        right_hand_side = self._cycle.right_hand_side.view(-1)
        for s in self._stretches:
            torch.mul(r.view(-1)[s], 1 / scale, out=right_hand_side[s])
        self._cycle()
        values = self._without_constant(self._cycle.values)
        if self._copies is not None:
            self._copies.refresh(values)
        return values.view(-1)

    def _residual(self, b: torch.Tensor, x: torch.Tensor, r: torch.Tensor, size: float) -> float:
        """Write ``b - A x``; return its relative norm."""
        if self.equations.copies is not None:
            self.equations.copies.refresh(x)
        self._p.copy_(x)
        self._product()
        torch.sub(b, self._owned(self._q), out=r)
        self._p.zero_()
        return self._norm(r) / size

    def _energy(self, r: torch.Tensor, least: float) -> float:
        """Bound the error's energy norm by one more correction of the residual."""
        size = self._norm(r)
        if size == 0 or not least > 0:
            return 0.0 if size == 0 else math.inf
        z = self._correction(r, size).double()
        product = self._total(float(torch.dot(r.view(-1), z)))[0] * size / self.equations.scale
        return math.sqrt(_SAFETY * max(product, 0.0) / least)

    def _without_constant(self, values: torch.Tensor) -> torch.Tensor:
        """Take the mean off, where nothing holds the values; copies are zero then."""
        if not self.equations.held:
            nodes, count = self.equations.nodes, self.equations.blocks.whole.count
            (total,) = self._total(self._owned(values).sum(dtype=torch.float64).item())
            for _, of_class, _ in nodes.by_class(values):
                of_class -= total / count
            self._owned(values)
        return values

    def _owned(self, values: torch.Tensor) -> torch.Tensor:
        """Let the copies in a vector be zero, so that products count each node once."""
        if self._copies is not None:
            self._copies.clear(values)
        return values

    def _norm(self, values: torch.Tensor) -> float:
        """Return the 2-norm of a vector whose copies are zero."""
        flat = values.view(-1)
        return math.sqrt(self._total(float(torch.dot(flat, flat)))[0])

    def _total(self, *numbers: float) -> list[float]:
        """Add up numbers over the ranks."""
        return self._ranks.sum(np.array(numbers)).tolist()


def _slow(history: list[float]) -> bool:
    """Say, now and then, whether the last iterations contracted badly."""
    recent = history[-_LOOK - 1 :]
    return len(history) % _LOOK == 0 and recent[-1] > _CONTRACTION**_LOOK * max(
        recent[0], recent[1]
    )


def _float64(values: torch.Tensor, room: torch.Tensor) -> torch.Tensor:
    """Return float32 values in float64, in room for them."""
    return room[: len(values)].copy_(values)
