"""A step of one level: a sweep of Gauss-Seidel by colours, to the coarse nodes, back, and the sweep reversed.

Colours are groups of classes whose nodes are not coupled: odd and even ones where only nodes along the axes are
neighbours, else each class. The first sweep starts from zero, so it needs earlier colours only, and leaves a residual that
later ones make: a sum of positive terms without a difference, zero at the last colour. What is interpolated there the
second sweep replaces, so the last colour takes no part in the way to the coarse nodes and back. The step of a
symmetric level is symmetric.
"""

from collections.abc import Callable

from mosaicdd.schwarz.multigrid.interpolation import Interpolation, towards
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator, shifted
from mosaicdd.schwarz.multigrid.parities import Class
from mosaicdd.schwarz.multigrid.sums import Sum, in_turn, planned


def colours(level: LevelOperator) -> list[list[Class]]:
    """Return the groups of classes, in the order of the first sweep."""
    classes, axes = level.nodes.classes, level.nodes.axes
    if all(sum(map(abs, step)) == 1 for step in level.steps):
        return [[of for of in classes if sum(of) % 2 == odd] for odd in (1, 0)]
    return [[of] for of in sorted(classes, key=sum)] if axes else []


class Smoothing:
    """The sums of one level's step, between its right-hand side and its values.

    Attributes
    ----------
    right_hand_side, values
        ``(C, M)``.
    coarse
        ``(M,)``, at the slots of the coarse nodes: after `down` the residual that they take, before `up` the
        correction.
    """

    def __init__(self, level: LevelOperator, by: Interpolation):
        nodes = level.nodes
        self._level, self._by = level, by
        self.right_hand_side = nodes.new(level.excess.dtype)
        self.values = nodes.new(level.excess.dtype)
        self.coarse = level.excess.new_zeros(nodes.size)
        groups = colours(level)
        self._turn = {of: turn for turn, group in enumerate(groups) for of in group}
        self._not_last = [of for group in groups[:-1] for of in group]
        self._residual = {of: self.coarse.new_zeros(nodes.size) for of in self._not_last}
        self._stretches = nodes.stretches()
        self._ones = self.coarse.new_ones(max(s.stop - s.start for s in self._stretches))
        groups_back = groups[::-1]
        self._down = self._in_turn(
            *([self._relaxed(of, first=True) for of in group] for group in groups),
            [self._remaining(of) for of in self._not_last],
            [self._restricted()],
        )
        self._up = self._in_turn(
            [self._interpolated(of) for of in self._not_last],
            *([self._relaxed(of, first=False) for of in group] for group in groups_back),
        )

    def down(self) -> None:
        """Sweep from zero, and take what is left to the coarse nodes."""
        self._down()

    def up(self) -> None:
        """Add the interpolated correction, and sweep in the reversed order."""
        self._up()

    def _in_turn(self, *stages: list[Callable[[slice], Sum]]) -> Callable[[], None]:
        """Plan stages, each a sum for some classes, stretch by stretch."""
        each = ([[of(s) for of in stage] for s in self._stretches] for stage in stages)
        return planned([step for part in in_turn(each) for step in part])

    def _relaxed(self, of: Class, *, first: bool) -> Callable[[slice], Sum]:
        level, number, turn = self._level, self._level.nodes.number[of], self._turn
        steps = [
            step
            for step in level.steps
            if not first or turn[level.nodes.neighbour(of, step)[0]] < turn[of]
        ]
        return lambda s: Sum(
            self.values[number, s],
            self.right_hand_side[number, s],
            [(level.coupling(of, q, s), level.beside(self.values, of, q, s)) for q in steps],
            level.inverse[number, s],
        )

    def _remaining(self, of: Class) -> Callable[[slice], Sum]:
        level, turn = self._level, self._turn
        later = [q for q in level.steps if turn[level.nodes.neighbour(of, q)[0]] > turn[of]]
        return lambda s: Sum(
            self._residual[of][s],
            None,
            [(level.coupling(of, q, s), level.beside(self.values, of, q, s)) for q in later],
        )

    def _restricted(self) -> Callable[[slice], Sum]:
        """Return the sums at the coarse nodes: of their residual, and of others by the weights."""
        nodes = self._level.nodes
        own = self._residual.get(nodes.classes[0])
        weighted = [
            (weight, self._residual[of], -nodes.distance(towards(of, corner)))
            for of in self._not_last
            for corner, weight in self._by.back.get(of, {}).items()
        ]
        return lambda s: Sum(
            self.coarse[s],
            None if own is None else own[s],
            [(shifted(weight, s, back), shifted(r, s, back)) for weight, r, back in weighted],
        )

    def _interpolated(self, of: Class) -> Callable[[slice], Sum]:
        nodes, number = self._level.nodes, self._level.nodes.number[of]
        weights = self._by.weights[of] if any(of) else {of: None}

        def of_stretch(s: slice) -> Sum:
            values, products = self.values[number, s], []
            for corner, weight in weights.items():
                coarse = shifted(self.coarse, s, nodes.distance(towards(of, corner)))
                products.append(
                    (self._ones[: len(coarse)] if weight is None else weight[s], coarse)
                )
            return Sum(values, values, products)

        return of_stretch
