"""What passes between the sides of elements one by one and the nodes beside them.

Of an element of ``s`` cells a side the nodes on its four sides are ``(4, s + 1)``: below, above, to the
left and to the right, corners twice. Those beside a side are ``s``, from the lower or left end on: inner
ones, but for the first. ``E`` counts the elements, ``n`` problems.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from mosaicdd.local_solvers.elements.inner_nodes import ties_of
from mosaicdd.local_solvers.elements.planes import Node
from mosaicdd.problems.operators.conductances import Conductances


class _Part(NamedTuple):
    """Edges from some nodes of a side, all in one direction."""

    side: int
    nodes: slice  # on the side
    inner: slice  # beside it
    ties: torch.Tensor  # (E, edges)


class Rim:
    """The edges between sides and the nodes beside them, to drive the ones and the others by.

    Parameters
    ----------
    spacing
        ``s``.
    """

    def __init__(self, spacing: int, inwards: list[_Part], outwards: list[_Part]):
        self._spacing, self._inwards, self._outwards = spacing, inwards, outwards

    @classmethod
    def of(cls, conductances: Conductances, spacing: int, like: torch.Tensor) -> "Rim":
        """Return that of elements one by one, in the precision and on the device of a tensor."""
        ties = ties_of(conductances)
        ends = [  # a side, and a step from it to inner nodes
            (side, step)
            for step in ties
            for side in range(4)
            if step[side // 2] == 1 - side % 2 * 2
        ]
        inwards, outwards = (
            [_part(ties, spacing, side, step, like, inwards=way) for side, step in ends]
            for way in (True, False)
        )
        return cls(spacing, inwards, outwards)

    def chosen(self, elements: slice | torch.Tensor) -> "Rim":
        """Return that of some of the elements."""
        inwards, outwards = (
            [part._replace(ties=part.ties[elements]) for part in parts]
            for parts in (self._inwards, self._outwards)
        )
        return Rim(self._spacing, inwards, outwards)

    def drive(self, sides: torch.Tensor) -> torch.Tensor:
        """Return what values on the sides ``(n, E, 4, s + 1)`` drive the nodes beside them by, ``(n, E, 4, s)``."""
        total = sides.new_zeros(*sides.shape[:3], self._spacing)
        for side, nodes, inner, ties in self._inwards:
            total[:, :, side, inner].addcmul_(ties, sides[:, :, side, nodes])
        return total

    def driving(self, beside: torch.Tensor) -> torch.Tensor:
        """Return what values beside the sides ``(n, E, 4, s)`` drive the nodes on them by, ``(n, E, 4, s + 1)``."""
        total = beside.new_zeros(*beside.shape[:3], self._spacing + 1)
        for side, nodes, inner, ties in self._outwards:
            total[:, :, side, nodes].addcmul_(ties, beside[:, :, side, inner])
        return total


def _part(
    ties: Mapping[Node, tuple[np.ndarray, Node]],
    spacing: int,
    side: int,
    step: Node,
    like: torch.Tensor,
    *,
    inwards: bool,
) -> _Part:
    """Return the edges by which a step leads from a side to inner nodes.

    An inner node that an edge across a cell ties to a corner is tied to it once: inwards, the corners are
    of the sides below and above.
    """
    s, axis, end = (
        spacing,
        side // 2,
        side % 2,
    )  # of the side: across y or x, the low or the high one
    along = step[1 - axis]
    low, high = 1, s  # of the inner nodes, along the side
    if inwards and axis == 1:
        low, high = low + (along > 0), high - (along < 0)
    on, beside = (s, s - 1) if end else (0, 1)
    nodes = slice(low - along, high - along)
    # What ties the one to the other stands in the equation of the one that is driven.
    values, origin = ties[(-step[0], -step[1]) if inwards else step]
    across, first = (beside, low) if inwards else (on, nodes.start)
    first += origin[1 - axis]
    place: list[slice | int] = [across + origin[axis], slice(first, first + high - low)]
    if axis == 1:
        place.reverse()
    chosen = torch.from_numpy(np.ascontiguousarray(values[:, *place]))
    return _Part(side, nodes, slice(low, high), chosen.to(like))
