"""What flows between the control volumes of a part of the grid, and what is consumed in them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mosaicdd.axes import ends, ends_of, last, steps_across
from mosaicdd.discretisation.crossings import BoundaryTerms
from mosaicdd.problems.operators.conductances import Conductances


@dataclass(frozen=True)
class VolumesPart:
    """The control volumes of the nodes of a part of the grid, right but for those on its edge within the grid.

    All is times the squared spacing, as in the discrete equation.
    """

    between: Conductances  # of the faces between volumes; the reaction times the volumes
    volumes: np.ndarray  # what the domain has of each, in cells
    present: np.ndarray  # which nodes have a volume, and no value by an outline
    outlines: BoundaryTerms | None

    def edge_flows(self, u: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return what flows to the next node along each axis, of values ``(n, rows, columns)``, without a velocity.

        What flows along a diagonal of a cell's face goes half around either side of the face, so that each node loses
        what its equation says.
        """
        axes = self.present.ndim
        flows = [
            k * (u[low] - u[high])
            for k, (low, high) in zip(self.between.along, self._ends, strict=True)
        ]
        for step, k in zip(steps_across(axes), self.between.across, strict=False):
            first, end = ends_of(step)
            half = k * (u[last(first)] - u[last(end)]) / 2
            first_axis, second_axis = (axis for axis in range(axes) if step[axis])
            for axis, beside in ((first_axis, second_axis), (second_axis, first_axis)):
                for edge in ends(beside, axes):
                    flows[axis][last(edge)] += step[axis] * half
        return tuple(flows)

    def to_neighbours(self, u: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return what each node's equation has of its neighbours along each axis, ``(n, rows, columns)``."""
        totals, flows = [], self.edge_flows(u)
        each = zip(flows, self.between.against, self._ends, strict=True)
        for flow, back, (low, high) in each:
            total = np.zeros(u.shape)
            total[low] += flow
            total[high] -= flow if self.between.symmetric else back * (u[low] - u[high])
            totals.append(total)
        return tuple(totals)

    def consumed(self, u: np.ndarray) -> np.ndarray:
        """Return what the reaction takes in each volume, ``(n, rows, columns)``."""
        return self.between.reaction * u

    def falling(self, u: np.ndarray) -> np.ndarray:
        """Return what would flow from each node if the values at all others fell to zero, ``(n, rows, columns)``."""
        return abs(u) * self._leaving

    @cached_property
    def filled(self) -> np.ndarray:
        """What the domain has of the volumes of the nodes that have one, ``(rows, columns)``."""
        return self.volumes * self.present

    @cached_property
    def _ends(self) -> list[tuple[Any, Any]]:
        """The nodes at the low and at the high ends of the edges along each axis."""
        axes = self.present.ndim
        return [(last(low), last(high)) for low, high in (ends(axis, axes) for axis in range(axes))]

    @cached_property
    def _leaving(self) -> np.ndarray:
        return self.between.diagonal() - self.between.reaction
