"""The last values of a march, from which the next ones are extrapolated, and those between them interpolated."""

import numpy as np
import torch

# Weights of up to three values, the newest first, at another time on their polynomial.
_Weights = dict[int, tuple[float, ...]]
_NEXT: _Weights = {1: (1.0,), 2: (2.0, -1.0), 3: (3.0, -3.0, 1.0)}
_HALF_BACK: _Weights = {2: (0.5, 0.5), 3: (0.375, 0.75, -0.125)}
_TWO_BACK: _Weights = {2: (-1.0, 2.0), 3: (0.0, 0.0, 1.0)}
_FOUR_BACK: _Weights = {3: (3.0, -8.0, 6.0)}


class Levels:
    """Values at the last times, equally long steps apart, the newest first.

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

    def add(self, values: np.ndarray) -> None:
        """Take the values after a step."""
        self.values = [values, *self.values][: self._depth]

    def next(self, out: np.ndarray | None = None) -> np.ndarray:
        """Return what comes next, extrapolated."""
        return self.weighted(_NEXT[len(self.values)], out)

    def halve(self) -> None:
        """Let the values be half as far apart."""
        known = len(self.values)
        if known > 1:
            between = self.weighted(_HALF_BACK[known])
            self.values = [self.newest, between, self.values[1]][:known]

    def double(self) -> None:
        """Let the values be twice as far apart."""
        known = len(self.values)
        further = [self.weighted(at[known]) for at in (_TWO_BACK, _FOUR_BACK) if known in at]
        self.values = [self.newest, *further]

    def weighted(self, weights: tuple[float, ...], out: np.ndarray | None = None) -> np.ndarray:
        """Return a sum of the last values, each times its weight; of as many as there are weights."""
        total = np.multiply(self.values[0], weights[0], out=out)
        accumulated = torch.from_numpy(total)
        for weight, values in zip(weights[1:], self.values[1:], strict=False):
            accumulated.add_(torch.from_numpy(values), alpha=weight)  # one pass, numpy needs two
        return total
