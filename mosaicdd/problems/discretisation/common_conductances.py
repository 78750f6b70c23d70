"""The discrete operator of a region most of whose nodes have the same equation, applied as that one.

With constant coefficients the residual of a field takes a few passes over its values: nothing is read of
conductances but at the nodes along outlines and sides, whose equations are corrected one by one.
"""

from typing import Any

import numpy as np

from mosaicdd.problems.discretisation.array_in_squares import ArrayInSquares
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.conductances import Conductances


class CommonConductances:
    """Conductances without a velocity between the nodes of a region, that are `ArrayInSquares`.

    ``active``: which nodes are. Fields are zero at all others.
    """

    def __init__(self, conductances: Conductances, active: np.ndarray):
        every: list[Any] = conductances.arrays()
        up, right, reaction = every
        self._up, self._right, self._reaction = (float(array.plain[-1]) for array in every)
        columns = self._width = reaction.shape[1]
        # At others than active nodes, and those beside them, all is zero.
        differs = reaction.differs(up, right)
        there = np.zeros_like(differs)
        there[1:-1, 1:-1] = differs[1:-1, 1:-1] | differs[:-2, 1:-1] | differs[1:-1, :-2]
        nodes, flat = np.flatnonzero(there), active.ravel()
        beside = [flat[nodes + step] for step in (0, -columns, columns, -1, 1)]
        self._nodes = nodes = nodes[np.logical_or.reduce(beside)]
        y, x = np.divmod(nodes, columns)
        own, below, left = (reaction.places(y - dy, x - dx) for dy, dx in ((0, 0), (1, 0), (0, 1)))
        # What their own reaction and conductances are more: to the nodes below, above, left and right.
        self._more = [
            reaction.at(own) - self._reaction,
            up.at(below) - self._up,
            up.at(own) - self._up,
            right.at(left) - self._right,
            right.at(own) - self._right,
        ]

    @classmethod
    def of(cls, conductances: object, active: np.ndarray) -> "CommonConductances | None":
        """Return them, if they are of this kind."""
        if (
            not isinstance(conductances, Conductances)
            or not isinstance(conductances.reaction, ArrayInSquares)
            or not conductances.symmetric
            or conductances.across
        ):
            return None
        return cls(conductances, active)

    def apply(self, u: np.ndarray, place: Part) -> np.ndarray:
        """Return ``h^2 A u`` at the nodes of a part of the region, ``u`` having one more all around."""
        total = u[1:-1, 1:-1] * (self._reaction + 2 * self._up + 2 * self._right)
        for k, beside in (
            (self._up, (u[:-2, 1:-1], u[2:, 1:-1])),
            (self._right, (u[1:-1, :-2], u[1:-1, 2:])),
        ):
            for values in beside:
                total -= values if k == 1 else k * values
        rows, columns = place
        ends = rows.start * self._width, rows.stop * self._width
        portion = slice(*np.searchsorted(self._nodes, ends))
        y, x = np.divmod(self._nodes[portion], self._width)
        y, x = y - rows.start, x - columns.start
        more = [excess[portion] for excess in self._more]
        there = (x >= 0) & (x < total.shape[1])
        if not there.all():
            y, x, more = y[there], x[there], [excess[there] for excess in more]
        here = u[y + 1, x + 1]
        added = more[0] * here
        for (dy, dx), k in zip(((0, 1), (2, 1), (1, 0), (1, 2)), more[1:], strict=True):
            added += k * (here - u[y + dy, x + dx])
        total[y, x] += added
        return total
