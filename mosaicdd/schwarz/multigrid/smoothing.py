"""A step of one level: a sweep of Gauss-Seidel by colours, to the coarse nodes, back, and the sweep reversed.

Colours are groups of classes whose nodes are not coupled: odd and even ones where only nodes along the axes are
neighbours, else each class. The first sweep starts from zero, so it needs earlier colours only, and leaves a residual that
later ones make: a sum of positive terms without a difference, zero at the last colour. What is interpolated there the
second sweep replaces, so the last colour takes no part in the way to the coarse nodes and back. The step of a
symmetric level is symmetric.

Where a velocity makes couplings differ in both directions nothing is symmetric, and the sweeps back are in the same
order: where flows are fast they are worth twice as much so, as what is carried along goes on where it was left. There are two
each way, the second one for what the first has left. Colours are then in an order in which neighbours differ in one axis, so
that sweeps reach fewer copies.
"""

import functools
from collections.abc import Callable, Sequence

import torch

from mosaicdd.schwarz.multigrid.blocks import Copies
from mosaicdd.schwarz.multigrid.interpolation import Interpolation, towards
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator, shifted
from mosaicdd.schwarz.multigrid.own_copies import OwnCopies
from mosaicdd.schwarz.multigrid.parities import Class
from mosaicdd.schwarz.multigrid.sums import Sum, in_turn, planned

Stage = list[Callable[[slice], Sum]]
"""Sums for some classes, by stretches."""


def colours(level: LevelOperator) -> list[list[Class]]:
    """Return the groups of classes, in the order of the first sweep."""
    classes, axes = level.nodes.classes, level.nodes.axes
    if all(sum(map(abs, step)) == 1 for step in level.steps):
        return [[of for of in classes if sum(of) % 2 == odd] for odd in (1, 0)]
    if level.directed:
        return [[of] for of in _one_by_one(axes)]
    return [[of] for of in sorted(classes, key=sum)] if axes else []


def _one_by_one(axes: int) -> list[Class]:
    """Return all classes, each beside the last along one axis only (Gray's code)."""
    if not axes:
        return [()]
    fewer = _one_by_one(axes - 1)
    return [(0, *of) for of in fewer] + [(1, *of) for of in reversed(fewer)]


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

    def __init__(
        self,
        level: LevelOperator,
        by: Interpolation,
        copies: Copies | OwnCopies | None,
        *,
        twice: bool,
    ):
        nodes = level.nodes
        self._level, self._by, self._copies = level, by, copies
        self.right_hand_side = nodes.new(level.excess.dtype)
        self.values = nodes.new(level.excess.dtype)
        self.coarse = level.excess.new_zeros(nodes.size)
        groups = colours(level)
        self._turn = {of: turn for turn, group in enumerate(groups) for of in group}
        self._not_last = [of for group in groups[:-1] for of in group]
        self._stretches = nodes.stretches()
        self._ones = self.coarse.new_ones(max(s.stop - s.start for s in self._stretches))
        back = groups if level.directed else groups[::-1]
        b, x = self.right_hand_side, self.values
        sweep = [[self._relaxed(of, b, x, first=False) for of in group] for group in back]
        not_first = [of for group in back[1:] for of in group]
        up = [[self._interpolated(of) for of in not_first], *sweep]
        if level.directed:
            left, more = (nodes.new(level.excess.dtype) for _ in range(2))
            self._residual = {of: left[nodes.number[of]] for of in self._not_last}
            again = [*self._swept(groups, left, more), [self._added(of, more) for of in self._turn]]
            self._down = self._way(
                [self._swept(groups, b, x), [*again, [self._restricted()]]], left
            )
            self._up = self._way([up, sweep], x)
        else:
            self._residual = {of: self.coarse.new_zeros(nodes.size) for of in self._not_last}
            self._down = self._way([[*self._swept(groups, b, x), [self._restricted()]]], x)
            self._up = self._way([up], x)
        if twice and copies is not None:
            self._up.insert(0, functools.partial(copies.refresh, self.values))

    def down(self) -> None:
        """Sweep from zero, and take what is left to the coarse nodes."""
        for step in self._down:
            step()

    def up(self) -> None:
        """Add the interpolated correction, and sweep back."""
        for step in self._up:
            step()

    def _way(
        self, parts: Sequence[Sequence[Stage]], between: torch.Tensor
    ) -> list[Callable[[], None]]:
        """Plan parts of a way, between which copies in a vector are refreshed; at once if there are none."""
        if self._copies is None:
            return [self._in_turn([stage for part in parts for stage in part])]
        steps = [self._in_turn(parts[0])]
        for part in parts[1:]:
            steps += [functools.partial(self._copies.refresh, between), self._in_turn(part)]
        return steps

    def _in_turn(self, stages: Sequence[Stage]) -> Callable[[], None]:
        """Plan stages, stretch by stretch."""
        each = ([[of(s) for of in stage] for s in self._stretches] for stage in stages)
        return planned([step for part in in_turn(each) for step in part])

    def _swept(self, groups: list[list[Class]], b: torch.Tensor, x: torch.Tensor) -> list[Stage]:
        """Return a sweep from zero, and what it leaves."""
        sweep = [[self._relaxed(of, b, x, first=True) for of in group] for group in groups]
        return [*sweep, [self._remaining(of, x) for of in self._not_last]]

    def _relaxed(
        self, of: Class, b: torch.Tensor, x: torch.Tensor, *, first: bool
    ) -> Callable[[slice], Sum]:
        level, number, turn = self._level, self._level.nodes.number[of], self._turn
        steps = [
            step
            for step in level.steps
            if not first or turn[level.nodes.neighbour(of, step)[0]] < turn[of]
        ]
        return lambda s: Sum(
            x[number, s],
            b[number, s],
            [(level.coupling(of, q, s), level.beside(x, of, q, s)) for q in steps],
            level.inverse[number, s],
        )

    def _remaining(self, of: Class, x: torch.Tensor) -> Callable[[slice], Sum]:
        level, turn = self._level, self._turn
        later = [q for q in level.steps if turn[level.nodes.neighbour(of, q)[0]] > turn[of]]
        return lambda s: Sum(
            self._residual[of][s],
            None,
            [(level.coupling(of, q, s), level.beside(x, of, q, s)) for q in later],
        )

    def _added(self, of: Class, more: torch.Tensor) -> Callable[[slice], Sum]:
        """Return the sums of values and more of them."""
        number, ones = self._level.nodes.number[of], self._ones

        def of_stretch(s: slice) -> Sum:
            values = self.values[number, s]
            return Sum(values, values, [(ones[: len(values)], more[number, s])])

        return of_stretch

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
