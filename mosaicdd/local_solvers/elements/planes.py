"""Which nodes inside a square are solved for together, and what lies beside them, for `Interior`.

A grid is cut into *planes*: of all smallest squares the nodes at the same place in them. Squares of a level
are handled side by side: their nodes at ``(y, x)``, counted from a square's lower left corner, are a view
of a plane.
"""

from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from mosaicdd.local_solvers.elements.merging import merging
from mosaicdd.local_solvers.elements.products import on_one_core

Node = tuple[int, ...]
"""A place in a square, or a step to a neighbour, (y, x)."""


def coloured(side: int, *, crossed: bool) -> np.ndarray:
    """Return the nodes (y, x) inside a smallest square that are solved for by an inverse, ``(r, 2)``."""
    inner = np.argwhere(np.ones((side - 1, side - 1))) + 1
    return inner if crossed else inner[inner.sum(axis=1) % 2 == 1]


class NodeRow(NamedTuple):
    """Nodes of a square in a row, in one of its smallest squares.

    Parameters
    ----------
    node
        The first, counted from the square's lower left corner.
    length
        How many.
    axis
        Along which they lie.
    """

    node: Node
    length: int = 1
    axis: int = 0

    def moved(self, step: Node) -> "NodeRow":
        """Return those a step away."""
        return NodeRow((self.node[0] + step[0], self.node[1] + step[1]), self.length, self.axis)

    def edges(self, step: Node) -> "NodeRow":
        """Return what edges to those count from: the lower and left ones of both nodes."""
        return self.moved((min(step[0], 0), min(step[1], 0)))

    def beside(self, among: Collection[Node], steps: tuple[Node, ...]) -> "Beside":
        """Return those among others that are a step away."""
        return [
            (step, self.moved(step), self.edges(step), (-step[0], -step[1]))
            for step in steps
            if self.moved(step).node in among
        ]


Beside = list[tuple[Node, NodeRow, NodeRow, Node]]
"""Steps to neighbours, these, the edges between, and the steps back."""


class Planes:
    """Planes, and views of them, each made once.

    Parameters
    ----------
    values
        ``(q, q, n, rows, columns)``.
    """

    def __init__(self, values: torch.Tensor):
        self.values = values
        self._shape, self._strides = values.shape, values.stride()
        self._first = int(values.storage_offset())
        self._known: dict[tuple[NodeRow, int], torch.Tensor] = {}

    @classmethod
    def of(cls, values: torch.Tensor, side: int, shape: tuple[int, ...]) -> "Planes":
        """Cut values at the nodes of a rectangle of ``shape`` smallest squares, without the last nodes.

        Parameters
        ----------
        values
            At nodes or edges, ``(n, ..)``.
        side
            ``q``, cells along a smallest square.
        """
        return cls(_cut(values, side, shape).permute(2, 4, 0, 1, 3).contiguous())

    @classmethod
    def taken(
        cls, values: torch.Tensor, at: tuple[torch.Tensor, ...], side: int, spacing: int
    ) -> "Planes":
        """Take values at the lower left nodes of elements one by one; their planes lie side by side, as in a row.

        Parameters
        ----------
        values
            ``(n, rows, columns)``.
        at
            Rows and columns of the ``E`` elements.
        side, spacing
            ``q`` and ``s``, cells along a smallest square and an element.
        """
        places = _places(values, at, side, spacing)
        flat, every = _flat(values), places.flatten()
        if on_one_core(values):  # a quarter of torch's time; all places are there: no check
            out = flat.new_empty(len(flat), len(every))
            for row, room in zip(flat, out, strict=True):
                np.take(row.numpy(), every.numpy(), out=room.numpy(), mode="clip")
        else:
            out = flat.gather(1, every.expand(len(flat), -1))
        return cls(out.unflatten(1, places.shape).permute(1, 2, 0, 3, 4))

    @classmethod
    def zeros(cls, like: torch.Tensor, elements: int, side: int, spacing: int) -> "Planes":
        """Return zeros for some elements, as `taken` from ``like``."""
        count = spacing // side
        made = like.new_zeros(len(like), side, side, count, count * elements)
        return cls(made.permute(1, 2, 0, 3, 4))

    def put_at(self, values: torch.Tensor, at: tuple[torch.Tensor, ...]) -> None:
        """Write to where `taken` would take them."""
        _, q, _, count, _ = self._shape
        mine = self.values.permute(2, 0, 1, 3, 4).flatten(1)
        places = _places(values, at, q, q * count).flatten()
        _flat(values).scatter_(1, places.expand(len(values), -1), mine)

    def first(self, elements: int) -> tuple["Planes", "Planes"]:
        """Return views of the first of the elements that were `taken`, and of the others."""
        last = elements * self._shape[3]
        return Planes(self.values[..., :last]), Planes(self.values[..., last:])

    def beside(self) -> list[torch.Tensor]:
        """Return views of what stands beside the sides of elements that were `taken`, each ``(n, E, s / q, q)``.

        Below, above, to the left and to the right, from the lower left nodes on.
        """
        last, end = self._shape[0] - 1, self._shape[3] - 1
        each = self.values.unflatten(4, (-1, end + 1))  # (q, q, n, s / q, E, s / q)
        along = each[1, :, :, 0], each[last, :, :, end]
        up = each[:, 1, ..., 0], each[:, last, ..., end]
        return [
            *(values.permute(1, 2, 3, 0) for values in along),
            *(values.permute(1, 3, 2, 0) for values in up),
        ]

    def put(self, values: torch.Tensor) -> None:
        """Write to those that `of` has cut."""
        _cut(values, self._shape[0], tuple(self._shape[3:])).copy_(
            self.values.permute(2, 3, 0, 4, 1)
        )

    def __call__(self, run: NodeRow, count: int) -> torch.Tensor:
        """Return what stands at nodes of squares of ``count`` smallest squares a side, ``(length, n, ..)``."""
        known = self._known.get((run, count))
        if known is None:
            _, q, n, rows, columns = self._shape
            *planes, problem, down, across = self._strides
            (row, y), (column, x) = divmod(run.node[0], q), divmod(run.node[1], q)
            self._known[run, count] = known = self.values.as_strided(
                (run.length, n, rows // count, columns // count),
                (planes[run.axis], problem, count * down, count * across),
                self._first + y * planes[0] + x * planes[1] + row * down + column * across,
            )
        return known


def _flat(values: torch.Tensor) -> torch.Tensor:
    """Return a view ``(n, ..)`` of values ``(n, rows, columns)``, also where these are parts of rows."""
    _, rows, columns = values.shape
    apart, down, across = values.stride()
    size = (rows - 1) * down + (columns - 1) * across + 1
    return values.as_strided((len(values), size), (apart, 1))


def _places(
    values: torch.Tensor, at: tuple[torch.Tensor, ...], side: int, spacing: int
) -> torch.Tensor:
    """Return where `_flat` has the nodes of elements, ``(q, q, s / q, E s / q)``."""
    (y, x), (_, down, across) = at, values.stride()
    place = torch.arange(side, device=values.device)
    square = torch.arange(0, spacing, side, device=values.device)
    rows = (place[:, None] + square)[:, None, :, None, None] * down
    columns = (place[:, None] + square)[:, None, None, :] * across
    corners = (y * (spacing * down) + x * (spacing * across))[:, None]
    return (rows + (corners + columns)).flatten(3)


def _cut(values: torch.Tensor, side: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Return values ``(n, ..)`` by smallest squares, ``(n, rows, q, columns, q)``."""
    rows, columns = shape
    whole = values[:, : side * rows, : side * columns]
    return whole.unflatten(2, (columns, side)).unflatten(1, (rows, side))


@lru_cache
def in_leaf(
    side: int, steps: tuple[Node, ...]
) -> tuple[list[tuple[NodeRow, Beside]], list[tuple[NodeRow, Beside]]]:
    """Return the nodes inside a smallest square that are `coloured`, beside others, and the others."""
    own = {(int(y), int(x)) for y, x in coloured(side, crossed=len(steps) > 4)}
    others = {(y, x) for y in range(1, side) for x in range(1, side)} - own
    own_rows, other_rows = (
        [(NodeRow(node), NodeRow(node).beside(among, steps)) for node in sorted(nodes)]
        for nodes, among in ((own, others), (others, own))
    )
    return own_rows, other_rows


@lru_cache
def on_cross(half: int, side: int, steps: tuple[Node, ...]) -> list[tuple[NodeRow, Beside]]:
    """Return the nodes of a cross between squares, as they are merged, beside those inside these.

    Those of an arm within a smallest square go together, if no step is across cells.
    """
    plan = merging(half)
    every = range(1, 2 * half)
    inside = {(y, x) for y in every for x in every if half not in (y, x)}
    runs: list[NodeRow] = []
    for node in ((int(y), int(x)) for y, x in plan.nodes[plan.perimeter :]):
        axis = 1 if node[0] == half else 0
        last = runs[-1] if runs else NodeRow((0, 0))
        follows = last.axis == axis and node[axis] == last.node[axis] + last.length
        if len(steps) == 4 and follows and last.node[axis] % side and node[axis] % side:
            runs[-1] = last._replace(length=last.length + 1)
        else:
            runs.append(NodeRow(node, 1, axis))
    return [(run, run.beside(inside, steps)) for run in runs]
