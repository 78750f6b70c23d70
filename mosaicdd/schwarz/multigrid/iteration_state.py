"""Where an iteration on all nodes is: its vectors, stretch by stretch, the left side of its directions, and its steps."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from mosaicdd.schwarz.error_estimate import least_ritz_value
from mosaicdd.schwarz.multigrid.combinations import Combination, combining
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator
from mosaicdd.schwarz.multigrid.sums import Sum, planned


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
        numbers = range(len(self.x))
        self._settling, self._turning = (
            [combining([of(number, s) for number in numbers]) for s in self.stretches]
            for of in (self._settled, self._turned)
        )
        r = self.r.view(-1)
        self._stepping = combining([Combination(self.q.view(-1), r, r, r)])

    def _settled(self, number: int, s: slice) -> Combination:
        x = self.x[number, s]
        return Combination(self.p[number, s], x, x)

    def _turned(self, number: int, s: slice) -> Combination:
        p = self.p[number, s]
        return Combination(p, p, self.z[number, s], self.r[number, s])

    def turn(self, stretch: int, beta: float) -> float:
        """Let ``p = z + beta p`` in a stretch, and the values have the last direction's part; return ``r p``."""
        if self.length:
            self._settling[stretch](self.length)
        return self._turning[stretch](beta)

    def begin_again(self) -> None:
        """Forget the last direction; what its steps have seen of the spectrum is kept, where that is no rounding."""
        seen = least_ritz_value(self.steps)
        self.least = min(self.least, seen) if seen > 0 else self.least
        self.energy = 0.0
        self.steps.clear()

    def settle(self) -> None:
        """Add the last direction's part to all values."""
        for add in self._settling if self.length else []:
            add(self.length)
        self.length = 0.0

    def step(self, alpha: float) -> float:
        """Subtract ``alpha q`` from the residual; return its square."""
        return self._stepping(-alpha)


class Product:
    """Computes ``q = A p`` of two vectors in float32 and in differences; planned once.

    Parameters
    ----------
    excess
        Of the diagonal, ``(C, M)``; None where it is not part of it.

    Attributes
    ----------
    p, q
        The vectors.
    stretches
        Of slots.
    """

    def __init__(
        self,
        level: LevelOperator,
        p: torch.Tensor,
        q: torch.Tensor,
        excess: torch.Tensor | None,
    ):
        self._level, self.p, self.q, self._excess = level, p, q, excess
        self.stretches = level.nodes.stretches()
        # That of which values have all as their difference.
        self._zero = p.new_zeros(max(s.stop - s.start for s in self.stretches))
        self._sums = [self._of_stretch(s) for s in self.stretches]
        self._energies = [
            combining([Combination(a, by=b) for a, b in zip(p[:, s], q[:, s], strict=True)])
            for s in self.stretches
        ]

    def _of_stretch(self, stretch: slice) -> Callable[[], None]:
        """Return the sums of a stretch."""
        level, sums = self._level, []
        for number, of in enumerate(level.nodes.classes):
            products = [
                (level.coupling(of, q, stretch), level.beside(self.p, of, q, stretch))
                for q in level.steps
            ]
            own = self.p[number, stretch]
            if self._excess is not None:
                products.append((self._excess[number, stretch], self._zero[: len(own)]))
            sums.append(Sum(self.q[number, stretch], None, products, own=own))
        return planned(sums)

    def of_stretch(self, number: int) -> float:
        """Compute it in a stretch; return what that makes of ``p q``."""
        self._sums[number]()
        return self._energies[number](0.0)
