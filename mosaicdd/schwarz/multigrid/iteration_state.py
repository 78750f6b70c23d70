"""Where an iteration on all nodes is: its vectors, stretch by stretch, and what it remembers of its steps."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from mosaicdd.schwarz.error_estimate import least_ritz_value
from mosaicdd.schwarz.multigrid.sums import dots


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
        for parts in self.parts:
            for part in parts:
                part.r.add_(part.q, alpha=-alpha)
            squares += dots((part.r, part.r) for part in parts)
        return squares
