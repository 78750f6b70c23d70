"""A step of a level with a velocity: sweeps node by node from all corners, to the coarse nodes, back, and the sweeps again.

Whatever way a flow goes, one of the sweeps goes with it, and leaves nothing of an error that is carried along; colours
carry it from one node to the next only. Residuals are of differences, so they are those of the values that sweeps leave,
rounding included.

A rank sweeps over the nodes that it owns and copies around them, and between sweeps copies become what their owners have
found. What a sweep has carried to the end of a rank the next one takes on, so iterations depend on ranks a little here.
"""

import functools
from collections.abc import Callable

import torch

from mosaicdd.schwarz.multigrid.blocks import Blocks
from mosaicdd.schwarz.multigrid.interpolation import Interpolation
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator
from mosaicdd.schwarz.multigrid.lines import LineSweeps, earlier, orders
from mosaicdd.schwarz.multigrid.parities import Class
from mosaicdd.schwarz.multigrid.smoothing import LevelStep
from mosaicdd.schwarz.multigrid.sums import Sum


class Downstream(LevelStep):
    """The step of a level with a velocity, whose excess is there."""

    def __init__(self, level: LevelOperator, by: Interpolation, blocks: Blocks):
        super().__init__(level, by)
        nodes, b, x = level.nodes, self.right_hand_side, self.values
        self._left, self._less, self._minus = torch.zeros_like(x), -level.excess, -self.ones
        self.residual = {of: self._left[number] for of, number in nodes.number.items()}
        copies = blocks.exchange(x)
        refresh = [] if copies is None else [functools.partial(copies.refresh, x)]
        # Couplings of the outermost copies are not known.
        box = [
            (first + (first < low), last - (last > high))
            for (first, last), (low, high) in zip(nodes.box, blocks.owned, strict=True)
        ]
        lines = LineSweeps(level, box)
        self._down.append(x.zero_)
        for number, order in enumerate(orders(nodes.axes)):
            steps = level.steps if number else [s for s in level.steps if earlier(s, order)]
            self._down += [lines.sweep(order, steps, b, x), *refresh]
            self._up += [*(refresh if number else []), lines.sweep(order, level.steps, b, x)]
        flows, remaining = (
            [of_class(of) for of in nodes.classes] for of_class in (self._flow, self._remaining)
        )
        self._down.append(self.in_turn([flows, remaining, [self.restricted()]]))
        self._up.insert(0, self.in_turn([[self.interpolated(of) for of in nodes.classes]]))

    def _flow(self, of: Class) -> Callable[[slice], Sum]:
        """Return the sums of what flows from a class's nodes to all around them."""
        level, number = self.level, self.level.nodes.number[of]
        return lambda s: Sum(
            self.residual[of][s],
            None,
            [(level.coupling(of, q, s), level.beside(self.values, of, q, s)) for q in level.steps],
            own=self.values[number, s],
        )

    def _remaining(self, of: Class) -> Callable[[slice], Sum]:
        """Return the sums of what is left of the right-hand side without that flow and the excess."""
        number = self.level.nodes.number[of]

        def of_stretch(s: slice) -> Sum:
            left, values = self.residual[of][s], self.values[number, s]
            products = [(self._minus[: len(left)], left), (self._less[number, s], values)]
            return Sum(left, self.right_hand_side[number, s], products)

        return of_stretch
