"""Balancing within the cycle: deflation of a level by its aggregates, before it and after it (Mandel, 1993).

Nothing is left of the residual's sum over any aggregate.

With ``Q = W inverse(W' A W) W'`` and ``C`` for the cycle from that level on, it is ``Q + (1 - Q A) C (1 - A Q)``: symmetric
and positive as the cycle is.
"""

import math
from collections.abc import Callable

import numpy as np
import torch

from mosaicdd.schwarz.multigrid.aggregates import Aggregates
from mosaicdd.schwarz.multigrid.coupled import CoupledLevel
from mosaicdd.schwarz.multigrid.iteration_state import Product
from mosaicdd.schwarz.multigrid.level_box import LevelBox
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator
from mosaicdd.schwarz.multigrid.vectors import dot

# By axes, of a constant source what iterations leave of it where aggregates are not worth their set-up. Where coarse levels see all
# it is 0.04 at most, in values that are independent; in space, where conductors hold no node of theirs, 0.1 to 30. In the plane
# this level has a quarter of all nodes: checkerboards, with 4 and more, gain a third, but channels, with 0.5 to 2.2, take 20
# iterations of 29 in nearly twice the seconds, at 1024 x 1024 (`scripts/bench_fields.py`).
_LEFT, _TRIALS = {1: 0.7, 2: 3.0, 3: 0.1}, 4


class Balancing:
    """What is done before and after a level; all ranks that share the level make and call it together.

    Parameters
    ----------
    level
        With its excess.
    right_hand_side, values
        Of the level's step, ``(C, M)``.
    """

    def __init__(
        self,
        level: LevelOperator,
        blocks: LevelBox,
        right_hand_side: torch.Tensor,
        values: torch.Tensor,
    ):
        self._aggregates = Aggregates(CoupledLevel(level, blocks))
        self._copies = blocks.exchange(values)
        self._b, self._values, self._image = right_hand_side, values, torch.zeros_like(values)
        self._product = Product(level, values, self._image, level.excess)
        self._constants = np.zeros(self._aggregates.count)

    def deflate(self) -> None:
        """Let the right-hand side have no sum over any aggregate."""
        self._clear(self._b)
        self._constants = self._aggregates.coarse_solve(self._b)
        self._values.zero_()
        self._aggregates.prolong_add(self._constants, self._values)
        self._multiply()
        self._b -= self._image
        if self._copies is not None:
            self._copies.refresh(self._b)

    def correct(self) -> None:
        """Let the values be those of the right-hand side before, and leave no sum over any aggregate."""
        if self._copies is not None:
            self._copies.refresh(self._values)
        self._multiply()
        self._clear(self._b)
        self._clear(self._image)
        left = self._aggregates.coarse_solve(self._b, self._image)
        self._aggregates.prolong_add(self._constants + left, self._values)
        self._b.zero_()  # as nodes that are put between others have no other right-hand side

    def _multiply(self) -> None:
        for number in range(len(self._product.stretches)):
            self._product.of_stretch(number)

    def _clear(self, vector: torch.Tensor) -> None:
        if self._copies is not None:
            self._copies.clear(vector)


def contracts(
    level: LevelOperator,
    blocks: LevelBox,
    right_hand_side: torch.Tensor,
    values: torch.Tensor,
    cycle: Callable[[], None],
) -> bool:
    """Say whether conjugate gradients under a cycle contract on a level, by a constant source; all ranks together.

    Parameters
    ----------
    right_hand_side, values
        What the cycle reads and writes; see `Balancing`.
    """
    copies, ranks = blocks.exchange(values), blocks.ranks
    r, p, q = (torch.zeros_like(values) for _ in range(3))
    product = Product(level, p, q, level.excess)
    for number, of_class in enumerate(r):
        own = level.nodes.slots_of(number, blocks.owned)
        inverse = level.nodes.at_slots(level.inverse[number])[own]
        level.nodes.at_slots(of_class)[own] = (inverse > 0).to(r)

    def total(*numbers: float) -> list[float]:
        return ranks.sum(np.array(numbers)).tolist()

    (first,) = total(dot(r, r))
    energy, beta, sound = 0.0, 0.0, True
    for _ in range(_TRIALS):
        right_hand_side.copy_(r)
        if copies is not None:
            copies.refresh(right_hand_side)
        cycle()
        if copies is not None:
            copies.refresh(values)
        if energy:
            (along,) = total(dot(q, values))
            beta = -along / energy
        p.mul_(beta).add_(values)
        for number in range(len(product.stretches)):
            product.of_stretch(number)
        if copies is not None:
            copies.clear(q)
        energy, along = total(dot(q, p), dot(r, p))
        sound = energy > 0 and math.isfinite(along)
        if not sound:
            break
        r.add_(q, alpha=-along / energy)
    right_hand_side.zero_()  # see `Balancing.after`
    (squares,) = total(dot(r, r))
    return sound and squares <= _LEFT[level.nodes.axes] ** 2 * first
