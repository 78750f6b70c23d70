"""Smoothing on a level: Gauss-Seidel by colours, restriction of the residual, prolongation, and the sweep reversed.

Colours are groups of classes whose nodes are not coupled: odd and even ones where only nodes along the axes are
neighbours, else each class. The first sweep starts from zero, so it needs earlier colours only, and leaves a residual that
later ones make: a sum of positive terms without a difference, zero at the last colour. What is interpolated there the
second sweep replaces, so the last colour takes no part in the way to the coarse nodes and back. The step of a
symmetric level is symmetric. For levels with a velocity see `LineGaussSeidel`.
"""

import functools
from collections.abc import Callable, Iterable, Sequence

import torch

from mosaicdd.schwarz.multigrid.colour_layout import Class
from mosaicdd.schwarz.multigrid.interpolation import Interpolation
from mosaicdd.schwarz.multigrid.level_box import GhostExchange, LevelBox, PeriodicGhosts
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator, shifted
from mosaicdd.schwarz.multigrid.lines import LineSweeps, earlier, orders
from mosaicdd.schwarz.multigrid.sums import Residual, Row, Sum, in_turn, planned

Stage = Sequence[Callable[[slice], Row]]
"""Sums for some classes, by stretches."""


def colours(level: LevelOperator) -> list[list[Class]]:
    """Return the groups of classes, in the order of the first sweep."""
    classes, axes = level.nodes.classes, level.nodes.axes
    if max([sum(map(abs, step)) for step in level.steps], default=1) == 1:
        return [[of for of in classes if sum(of) % 2 == odd] for odd in (1, 0)]
    return [[of] for of in sorted(classes, key=sum)] if axes else []


class LevelStep:
    """The work of one level, between its right-hand side and its values.

    Attributes
    ----------
    right_hand_side, values
        ``(C, M)``.
    coarse
        ``(K, M)``, at the coarse nodes: after `pre_smooth_restrict` their residual, before `prolong_post_smooth` the correction.
    residual
        Of the classes where sweeps leave any, ``(M,)``.
    ones
        As many as a stretch has slots.
    """

    def __init__(self, level: LevelOperator, by: Interpolation):
        nodes = level.nodes
        self.level, self._by = level, by
        self.right_hand_side = nodes.new(level.inverse.dtype)
        self.values = nodes.new(level.inverse.dtype)
        self.coarse = level.inverse.new_zeros(len(by.to.classes), nodes.size)
        self.residual: dict[Class, torch.Tensor] = {}
        self._stretches = nodes.stretches()
        self.ones = self.coarse.new_ones(max(s.stop - s.start for s in self._stretches))
        self._down: list[Callable[[], object]] = []
        self._up: list[Callable[[], object]] = []

    def pre_smooth_restrict(self) -> None:
        """Sweep from zero, and take what is left to the coarse nodes."""
        for part in self._down:
            part()

    def prolong_post_smooth(self) -> None:
        """Add the interpolated correction, and sweep back."""
        for part in self._up:
            part()

    def in_turn(self, stages: Iterable[Stage]) -> Callable[[], object]:
        """Plan stages, stretch by stretch."""
        each = ([[of(s) for of in stage] for s in self._stretches] for stage in stages)
        return planned([step for part in in_turn(each) for step in part])

    def restricted(self) -> Stage:
        """Return the sums at the coarse nodes: of their residual, and of others by the weights."""
        return [self._restricted(of) for of in self._by.to.classes]

    def _restricted(self, coarse: Class) -> Callable[[slice], Sum]:
        nodes, number = self.level.nodes, self._by.to.number[coarse]
        own, weighted = self.residual.get(coarse), []
        for of, left in self.residual.items():
            for corner, weight in self._by.back.get(of, {}).items():
                there, distance = nodes.neighbours[of, corner]
                if there == coarse:
                    weighted.append((weight, left, -distance))
        return lambda s: Sum(
            self.coarse[number, s],
            None if own is None else own[s],
            [(shifted(weight, s, back), shifted(r, s, back)) for weight, r, back in weighted],
        )

    def interpolated(self, of: Class) -> Callable[[slice], Sum]:
        """Return the sums of a class's values and the correction."""
        nodes, number = self.level.nodes, self.level.nodes.number[of]
        weights, to = self._by.of(of), self._by.to

        def of_stretch(s: slice) -> Sum:
            values, products = self.values[number, s], []
            for corner, weight in weights.items():
                there, distance = nodes.neighbours[of, corner]
                coarse = shifted(self.coarse[to.number[there]], s, distance)
                products.append((self.ones[: len(coarse)] if weight is None else weight[s], coarse))
            return Sum(values, values, products)

        return of_stretch


class Smoothing(LevelStep):
    """The step of a symmetric level, by colours.

    Parameters
    ----------
    copies
        That are to be refreshed before the sweep back, if any.
    """

    def __init__(
        self,
        level: LevelOperator,
        by: Interpolation,
        copies: GhostExchange | PeriodicGhosts | None = None,
    ):
        super().__init__(level, by)
        groups = colours(level)
        self._turn = {of: turn for turn, group in enumerate(groups) for of in group}
        not_last = [of for group in groups[:-1] for of in group]
        self.residual = {of: self.coarse.new_zeros(level.nodes.size) for of in not_last}
        sweep = [[self._relaxed(of, first=True) for of in group] for group in groups]
        remaining = [self._remaining(of) for of in not_last]
        self._down.append(self.in_turn([*sweep, remaining, self.restricted()]))
        back = [[self._relaxed(of, first=False) for of in group] for group in groups[::-1]]
        not_first = [of for group in groups[-2::-1] for of in group]
        if copies is not None:
            self._up.append(functools.partial(copies.refresh, self.values))
        self._up.append(self.in_turn([[self.interpolated(of) for of in not_first], *back]))
        for of in groups[-1] if groups else ():
            by.weights.pop(of, None)  # which only the level below was made with

    def _relaxed(self, of: Class, *, first: bool) -> Callable[[slice], Sum]:
        level, number, turn = self.level, self.level.nodes.number[of], self._turn
        b, x = self.right_hand_side, self.values
        read = [
            not first or turn[of_class] < turn[of] for of_class in level.nodes.classes
        ]  # of values at neighbours
        return lambda s: Sum(
            x[number, s],
            b[number, s],
            [(k, x[there, at]) for _, k, there, at in level.row(of, s) if read[there]],
            level.inverse[number, s],
        )

    def _remaining(self, of: Class) -> Callable[[slice], Sum]:
        level, turn, x = self.level, self._turn, self.values
        later = [turn[of_class] > turn[of] for of_class in level.nodes.classes]
        return lambda s: Sum(
            self.residual[of][s],
            None,
            [(k, x[there, at]) for _, k, there, at in level.row(of, s) if later[there]],
        )


class LineGaussSeidel(LevelStep):
    """The step of a level with a velocity: sweeps node by node from all corners, to the coarse nodes, back, and these again.

    Whatever way a flow goes, one of the sweeps goes with it, and leaves nothing of an error that is carried along; colours
    carry it from one node to the next only. Residuals are of differences, so they are those of the values that sweeps
    leave, rounding included.

    A rank sweeps over the nodes that it owns and copies around them, and between sweeps copies become what their owners
    have found. What a sweep has carried to the end of a rank the next one takes on, so iterations depend on ranks a little.
    The excess of the level is there.
    """

    def __init__(self, level: LevelOperator, by: Interpolation, blocks: LevelBox):
        super().__init__(level, by)
        nodes, b, x = level.nodes, self.right_hand_side, self.values
        self._left = torch.zeros_like(x)
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
        remaining: Stage = [self._remaining(of) for of in nodes.classes]
        self._down.append(self.in_turn([remaining, self.restricted()]))
        self._up.insert(0, self.in_turn([[self.interpolated(of) for of in nodes.classes]]))

    def _remaining(self, of: Class) -> Callable[[slice], Residual]:
        level, number, x = self.level, self.level.nodes.number[of], self.values
        return lambda s: Residual(
            self.residual[of][s],
            self.right_hand_side[number, s],
            x[number, s],
            [(k, None, x[there, at]) for _, k, there, at in level.row(of, s)],
            level.excess[number, s],
        )
