"""The last values in time, equally long steps apart, and what polynomials through them say."""

import numpy as np

# Weights of up to three values, the newest first, at another time on their polynomial.
_Weights = dict[int, tuple[float, ...]]
_NEXT: _Weights = {1: (1.0,), 2: (2.0, -1.0), 3: (3.0, -3.0, 1.0)}
_HALF_BACK: _Weights = {2: (0.5, 0.5), 3: (0.375, 0.75, -0.125)}
_TWO_BACK: _Weights = {2: (-1.0, 2.0), 3: (0.0, 0.0, 1.0)}
_FOUR_BACK: _Weights = {3: (3.0, -8.0, 6.0)}


class Levels:
    """Values at the last times, the newest first.

    Parameters
    ----------
    first
        The initial values.
    depth
        How many are kept.
    """

    def __init__(self, first: np.ndarray, depth: int):
        self._depth = depth
        self.values = [first]

    @property
    def newest(self) -> np.ndarray:
        """The last values."""
        return self.values[0]

    @property
    def complete(self) -> bool:
        """Whether there are as many as are kept."""
        return len(self.values) == self._depth

    def add(self, values: np.ndarray) -> None:
        """Take the values after a step."""
        self.values = [values, *self.values][: self._depth]

    def next(self) -> np.ndarray:
        """Return what comes next, extrapolated."""
        return self._at(_NEXT)

    def halve(self) -> None:
        """Let the values be half as far apart."""
        if len(self.values) > 1:
            self.values = [self.newest, self._at(_HALF_BACK), self.values[1]][: len(self.values)]

    def double(self) -> None:
        """Let the values be twice as far apart."""
        further = [self._at(weights) for weights in (_TWO_BACK, _FOUR_BACK) if self._knows(weights)]
        self.values = [self.newest, *further]

    def weighted(self, weights: tuple[float, ...]) -> np.ndarray:
        """Return a sum of the last values, each times its weight; a new array."""
        total = weights[0] * self.values[0]
        part = np.empty_like(total) if len(weights) > 1 else total
        for weight, values in zip(weights[1:], self.values[1:], strict=False):
            if weight:
                total += np.multiply(values, weight, out=part)
        return total

    def _knows(self, weights: _Weights) -> bool:
        return len(self.values) in weights

    def _at(self, weights: _Weights) -> np.ndarray:
        return self.weighted(weights[len(self.values)])
