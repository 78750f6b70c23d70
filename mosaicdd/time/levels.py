"""The last values of a march, from which the next ones are extrapolated, and those between them interpolated."""

import numpy as np
import torch

from mosaicdd.time.settings import ImplicitStep

# Weights of up to three values, the newest first, at another time on their polynomial.
_Weights = dict[int, tuple[float, ...]]
_NEXT: _Weights = {1: (1.0,), 2: (2.0, -1.0), 3: (3.0, -3.0, 1.0)}
_HALF_BACK: _Weights = {2: (0.5, 0.5), 3: (0.375, 0.75, -0.125)}
_TWO_BACK: _Weights = {2: (-1.0, 2.0), 3: (0.0, 0.0, 1.0)}
_FOUR_BACK: _Weights = {3: (3.0, -8.0, 6.0)}


class PreviousSteps:
    """Values at the last times, equally long steps apart, the newest first, and what flowed until then.

    Parameters
    ----------
    first
        The initial values.
    depth
        How many are kept.

    Attributes
    ----------
    amounts
        What flowed, was made, consumed and stored until each of these times, less that until the newest; a vector each.
    """

    def __init__(self, first: np.ndarray, depth: int):
        self._depth = depth
        self.values = [first]
        self.amounts = [np.zeros(1)]

    @property
    def newest(self) -> np.ndarray:
        """The last values."""
        return self.values[0]

    def add(self, values: np.ndarray, amounts: np.ndarray) -> None:
        """Take the values after a step, and what flowed in it."""
        self.values = [values, *self.values][: self._depth]
        before = [known - amounts for known in self.amounts]
        self.amounts = [np.zeros(amounts.shape), *before][: self._depth]

    def amounts_in(self, step: ImplicitStep, length: float, rates: np.ndarray) -> np.ndarray:
        """Return what flows in a step, from what flows per time at its stage: by the method, as the values are found.

        So what is stored is what the values have more, and all that flows is of the order of the method.
        """
        past = zip(step.past, self.amounts, strict=False)
        stage = sum((weight * known for weight, known in past), length * rates) / step.weight
        return stage / step.share

    def begin(self) -> None:
        """Forget all but the newest."""
        self.values, self.amounts = self.values[:1], self.amounts[:1]

    def go_back(self) -> None:
        """Forget all but the oldest."""
        self.values, self.amounts = self.values[-1:], [np.zeros(1)]

    def next(self, out: np.ndarray | None = None) -> np.ndarray:
        """Return what comes next, extrapolated."""
        return self.weighted(_NEXT[len(self.values)], out)

    def halve(self) -> None:
        """Let the values be half as far apart."""
        if len(self.values) > 1:
            self._put_between(_HALF_BACK[len(self.values)])

    def _put_between(self, weights: tuple[float, ...]) -> None:
        known = len(self.values)
        between = self.weighted(weights), _sum(weights, self.amounts)
        self.values = [self.newest, between[0], self.values[1]][:known]
        self.amounts = [self.amounts[0], between[1], self.amounts[1]][:known]

    def double(self) -> None:
        """Let the values be twice as far apart."""
        known = len(self.values)
        further = [at[known] for at in (_TWO_BACK, _FOUR_BACK) if known in at]
        values = [self.weighted(weights) for weights in further]
        amounts = [_sum(weights, self.amounts) for weights in further]
        self.values, self.amounts = [self.newest, *values], [self.amounts[0], *amounts]

    def weighted(self, weights: tuple[float, ...], out: np.ndarray | None = None) -> np.ndarray:
        """Return a sum of the last values, each times its weight; of as many as there are weights."""
        total = np.multiply(self.values[0], weights[0], out=out)
        accumulated = torch.from_numpy(total)
        for weight, values in zip(weights[1:], self.values[1:], strict=False):
            accumulated.add_(torch.from_numpy(values), alpha=weight)  # one pass, numpy needs two
        return total


def _sum(weights: tuple[float, ...], vectors: list[np.ndarray]) -> np.ndarray:
    parts = zip(weights, vectors, strict=False)
    return sum((weight * vector for weight, vector in parts), np.zeros(1))
