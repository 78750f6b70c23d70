"""Sweeps of Gauss-Seidel node by node: line by line, along each line one node after the other.

What comes before a node has been solved for when its turn comes. So a sweep whose order is that of the flow carries
along it what flows in, through all of the nodes, however fast it is.

Of a line, all nodes along the last axis, every second one is of the same class and in the slot beside; so a line is two
places that take turns. Where there is no compiled code, nodes that do not wait for each other are solved for at once: those
on one front, which are as many as the turns of a node away from the corner where a sweep begins. On a GPU sweeps are the
host's: fronts are many, and short.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from mosaicdd.schwarz.multigrid.colour_layout import Step, opposite
from mosaicdd.schwarz.multigrid.compiled import kernels
from mosaicdd.schwarz.multigrid.level_operator import LevelOperator
from mosaicdd.schwarz.multigrid.level_partition import Range

Order = tuple[int, ...]
"""Per axis, whether a sweep goes to nodes of higher indices, 1, or of lower ones, -1."""


def orders(axes: int) -> Iterator[Order]:
    """Yield those of all corners where a sweep can begin, each after the opposite one of the last."""
    for rest in itertools.product((1, -1), repeat=axes - 1):
        yield (1, *rest)
        yield (-1, *(-way for way in rest))


def earlier(step: Step, order: Order) -> bool:
    """Say whether a neighbour in a direction comes before a node."""
    return tuple(s * way for s, way in zip(step, order, strict=True)) < (0,) * len(step)


class LineSweeps:
    """The nodes of a box of a directed level, of which all directions have couplings of their own.

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
        """Return how far from nodes of each class their neighbours are in a flat vector."""
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
