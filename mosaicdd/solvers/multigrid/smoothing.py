"""Smoothing on a level: Gauss-Seidel by colours, restriction of the residual, prolongation, and the sweep reversed.

Colours are groups of classes whose nodes are not coupled: odd and even ones where only nodes along the axes are
neighbours, else each class. The first sweep starts from zero, so it needs earlier colours only, and leaves a residual that
later ones make: a sum of positive terms without a difference, zero at the last colour. What is interpolated there the
second sweep replaces, so the last colour takes no part in the way to the coarse nodes and back. The step of a
symmetric level is symmetric. For levels with a velocity see `LineGaussSeidel`.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import torch

from mosaicdd.grid.partition import Range
from mosaicdd.solvers.multigrid.colour_layout import Class, Step, opposite
from mosaicdd.solvers.multigrid.galerkin import Interpolation
from mosaicdd.solvers.multigrid.level_operator import LevelOperator
from mosaicdd.solvers.multigrid.level_partition import GhostExchange, LevelBox, PeriodicGhosts
from mosaicdd.solvers.multigrid.vector_operations import (
    Residual,
    Row,
    Sum,
    kernels,
    planned,
)

Order = tuple[int, ...]
"""Per axis, whether a sweep goes to nodes of higher indices, 1, or of lower ones, -1."""


def orders(axes: int) -> Iterator[Order]:
    """Yield the orders of sweeps from all corners, opposite ones after each other."""
    for rest in itertools.product((1, -1), repeat=axes - 1):
        yield (1, *rest)
        yield (-1, *(-way for way in rest))


def earlier(step: Step, order: Order) -> bool:
    """Say whether a neighbour in a direction comes before a node."""
    return tuple(s * way for s, way in zip(step, order, strict=True)) < (0,) * len(step)


class LineSweeps:
    """Sweeps of Gauss-Seidel node by node: line by line, along each line one node after the other.

    What comes before a node has been solved for when its turn comes. So a sweep whose order is that of the flow carries
    along it what flows in, through all of the nodes, however fast it is.

    Of a line, all nodes along the last axis, every second one is of the same class and in the slot beside; so a line is two
    places that take turns. Where there is no compiled code, nodes that do not wait for each other are solved for at once: those
    on one front, which are as many as the turns of a node away from the corner where a sweep begins. On a GPU sweeps are the
    host's: fronts are many, and short.

    The level is directed: all directions have couplings of their own.

    Parameters
    ----------
    box
        The first and last node per axis.
    """

    def __init__(self, level: LevelOperator, box: Sequence[Range]):
        self._level, self._box = level, box
        self._couplings = {step: k.cpu() for step, k in level.couplings.items()}
        self._inverse = level.inverse.cpu()
        self._joined: tuple[torch.Tensor, torch.Tensor] | None = None
        self._fronts: dict[Order, tuple[torch.Tensor, ...]] = {}

    def sweep(
        self, order: Order, steps: Sequence[Step], b: torch.Tensor, x: torch.Tensor
    ) -> Callable[[], None]:
        """Plan a sweep, in place.

        Parameters
        ----------
        steps
            To the neighbours that are read; values at others are zero.
        b, x
            Right-hand side and values, ``(C, M)``.
        """
        if x.device.type == "cpu":
            return self._on_host(order, steps, b, x)
        here, there = (torch.zeros_like(self._inverse) for _ in range(2))
        of_host = self._on_host(order, steps, here, there)

        def by_host() -> None:
            here.copy_(b)
            there.copy_(x)
            of_host()
            x.copy_(there)

        return by_host

    def _on_host(
        self, order: Order, steps: Sequence[Step], b: torch.Tensor, x: torch.Tensor
    ) -> Callable[[], None]:
        code = kernels()
        if code is None:
            return self._by_fronts(order, b, x)
        lines, distances = self._lines(order), self._distances(steps)
        couplings = [self._couplings[step] for step in steps]
        every = np.array([k.data_ptr() for k in couplings], np.int64)
        right, values, inverse = (of.view(-1).numpy() for of in (b, x, self._inverse))

        def by_code(kept: object = couplings) -> None:
            """Go over all lines; couplings stay where they are as long as they are kept."""
            code.sweep(lines, every, distances, right, values, inverse, order[-1])

        return by_code

    def _distances(self, steps: Sequence[Step]) -> np.ndarray:
        """Return the distances of neighbours in a flat vector, by class."""
        nodes = self._level.nodes
        distances = np.zeros((len(nodes.classes), len(steps)), np.int64)
        for number, of in enumerate(nodes.classes):
            for column, step in enumerate(steps):
                there, distance = nodes.neighbours[of, step]
                distances[number, column] = (nodes.number[there] - number) * nodes.size + distance
        return distances

    def _along(self, order: Order) -> list[np.ndarray]:
        """Return the nodes along each axis as a sweep comes to them."""
        ends = zip(self._box, order, strict=True)
        return [np.arange(first, last + 1)[::way] for (first, last), way in ends]

    def _lines(self, order: Order) -> np.ndarray:
        """Return the lines as `kernels.sweep` reads them, in the order of a sweep."""
        nodes, (*across, along) = self._level.nodes, self._along(order)
        starts = [n.ravel() for n in np.meshgrid(*across, indexing="ij")]
        count = len(starts[0]) if starts else 1
        table = np.zeros((count, 5), np.int64)
        table[:, -1] = len(along)
        for number, node in enumerate(along[:2]):
            places = nodes.places([*starts, np.full(count, node)]).cpu().numpy()
            table[:, number], table[:, 2 + number] = places, places // nodes.size
        return table

    def _by_fronts(self, order: Order, b: torch.Tensor, x: torch.Tensor) -> Callable[[], None]:
        """Plan a sweep by torch's calls."""
        level, size = self._level, self._level.nodes.size
        if self._joined is None:
            joined = torch.stack([self._couplings[step].view(-1) for step in level.steps], 1)
            self._joined = joined, torch.from_numpy(self._distances(level.steps))
        couplings, distances = self._joined
        if order not in self._fronts:
            self._fronts[order] = self._in_fronts(order)
            self._fronts[opposite(order)] = self._fronts[order][::-1]
        fronts = self._fronts[order]
        flat, right, inverse = (vector.view(-1) for vector in (x, b, self._inverse))

        def by_torch() -> None:
            for places in fronts:
                beside = flat[places[:, None] + distances[places // size]]
                total = right[places] + (couplings[places] * beside).sum(1)
                flat[places] = total * inverse[places]

        return by_torch

    def _in_fronts(self, order: Order) -> tuple[torch.Tensor, ...]:
        """Return the places of nodes that do not wait for each other, front after front."""
        grid = [n.ravel() for n in np.meshgrid(*self._along(order), indexing="ij")]
        front = np.zeros(len(grid[0]), np.int64)
        for node, (first, last), way in zip(grid, self._box, order, strict=True):
            front = 2 * front + (node - first if way > 0 else last - node)
        ascending = np.argsort(front, kind="stable")
        ends = np.flatnonzero(np.diff(front[ascending])) + 1
        places = self._level.nodes.places([n[ascending] for n in grid]).cpu()
        return torch.tensor_split(places, torch.from_numpy(ends)) if len(places) else ()


Stage = Sequence[Callable[[slice], Row]]
"""Sums for some classes, by stretches."""


def colours(level: LevelOperator) -> list[list[Class]]:
    """Return the groups of classes, in the order of the first sweep."""
    classes, axes = level.nodes.classes, level.nodes.axes
    if max([sum(map(abs, step)) for step in level.steps], default=1) == 1:
        return [[of for of in classes if sum(of) % 2 == odd] for odd in (1, 0)]
    return [[of] for of in sorted(classes, key=sum)] if axes else []


class LevelStep:
    """The work of one level, between its right-hand side and its values: the base of all smoothers.

    A subclass fills ``_down``, what `pre_smooth_restrict` calls in turn, and ``_up``, what `prolong_post_smooth` does. A
    *stage* for `in_turn` is a list of functions of a stretch, as `restricted` returns one; ``partial(self.interpolated, of)``
    is one of its functions.

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
        """Plan stages, each of a part per stretch, in an order for the cache.

        A part comes after those of the stage before in its stretch and the ones beside it, and before the rest of that
        stage: while what these have read and written is in the cache.
        """
        parts = [
            (number + turn, turn, row(stretch))
            for turn, stage in enumerate(stages)
            for number, stretch in enumerate(self._stretches)
            for row in stage
        ]
        return planned([row for _, _, row in sorted(parts, key=operator.itemgetter(0, 1))])

    def restricted(self) -> Stage:
        """Return the sums at the coarse nodes: of their residual, and of others by the weights."""
        return [partial(self._restricted, of) for of in self._by.to.classes]

    def _restricted(self, coarse: Class, s: slice) -> Sum:
        nodes, own, weighted = self.level.nodes, self.residual.get(coarse), []
        for of, left in self.residual.items():
            for corner, weight in self._by.back.get(of, {}).items():
                there, distance = nodes.neighbours[of, corner]
                if there == coarse:
                    at = slice(s.start - distance, s.stop - distance)
                    weighted.append((weight[at], left[at]))
        out = self.coarse[self._by.to.number[coarse], s]
        return Sum(out, None if own is None else own[s], weighted)

    def interpolated(self, of: Class, s: slice) -> Sum:
        """Return the sum of a class's values and the correction."""
        nodes, to, products = self.level.nodes, self._by.to, []
        values = self.values[nodes.number[of], s]
        for corner, weight in self._by.of(of).items():
            there, distance = nodes.neighbours[of, corner]
            coarse = self.coarse[to.number[there], s.start + distance : s.stop + distance]
            products.append((self.ones[: len(coarse)] if weight is None else weight[s], coarse))
        return Sum(values, values, products)


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
        sweep = [[partial(self._relaxed, of, first=True) for of in group] for group in groups]
        remaining = [partial(self._remaining, of) for of in not_last]
        self._down.append(self.in_turn([*sweep, remaining, self.restricted()]))
        back = [[partial(self._relaxed, of, first=False) for of in g] for g in groups[::-1]]
        not_first = [of for group in groups[-2::-1] for of in group]
        if copies is not None:
            self._up.append(partial(copies.refresh, self.values))
        self._up.append(self.in_turn([[partial(self.interpolated, of) for of in not_first], *back]))
        for of in groups[-1] if groups else ():
            by.weights.pop(of, None)  # which only the level below was made with

    def _relaxed(self, of: Class, s: slice, *, first: bool) -> Sum:
        """Return the values that solve the equations of a class; in the first sweep those of later colours are zero."""
        level, number, turn = self.level, self.level.nodes.number[of], self._turn
        classes, x = level.nodes.classes, self.values
        products = [
            (k, x[there, at])
            for _, k, there, at in level.row(of, s)
            if not first or turn[classes[there]] < turn[of]
        ]
        return Sum(
            x[number, s], self.right_hand_side[number, s], products, level.inverse[number, s]
        )

    def _remaining(self, of: Class, s: slice) -> Sum:
        """Return the residual of a class after the first sweep, which later colours have made."""
        level, turn, classes = self.level, self._turn, self.level.nodes.classes
        products = [
            (k, self.values[there, at])
            for _, k, there, at in level.row(of, s)
            if turn[classes[there]] > turn[of]
        ]
        return Sum(self.residual[of][s], None, products)


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
        refresh = [] if copies is None else [partial(copies.refresh, x)]
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
        remaining: Stage = [partial(self._remaining, of) for of in nodes.classes]
        self._down.append(self.in_turn([remaining, self.restricted()]))
        self._up.insert(0, self.in_turn([[partial(self.interpolated, of) for of in nodes.classes]]))

    def _remaining(self, of: Class, s: slice) -> Residual:
        level, number, x = self.level, self.level.nodes.number[of], self.values
        return Residual(
            self.residual[of][s],
            self.right_hand_side[number, s],
            x[number, s],
            [(k, None, x[there, at]) for _, k, there, at in level.row(of, s)],
            level.excess[number, s],
        )
