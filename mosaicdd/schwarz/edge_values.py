"""Values given on the edge of a rectangle or box, at the nodes of a rank's region."""

import copy
from collections.abc import Sequence

import numpy as np

from mosaicdd.grid.partition import Region
from mosaicdd.lattice.axes import Slices, at, others
from mosaicdd.problems.sides.boundary import Boundary


class EdgeValues:
    """The given values of some problems on the edge of the grid, as far as a region reaches it.

    Parameters
    ----------
    boundaries
        Of each problem; None for one problem with zeros.

    Attributes
    ----------
    problems
        How many there are.
    values
        By axis and end, where the region has given values: ``(n, nodes of the other axes)``.
    """

    def __init__(self, region: Region, boundaries: Sequence[Boundary] | None = None):
        self.problems = 1 if boundaries is None else len(boundaries)
        self.values: dict[tuple[int, int], np.ndarray] = {}
        axes = len(region.shape)
        for axis in range(axes):
            along: Slices = tuple(region.nodes[other] for other in others(axis, axes))
            for end, reached in enumerate(region.at_edge(axis)):
                if not reached:
                    continue
                if boundaries is None:
                    shape = [p.stop - p.start for p in along]
                    self.values[axis, end] = np.broadcast_to(0.0, (1, *shape))
                else:
                    each = [boundary.edges[axis, end][along] for boundary in boundaries]
                    self.values[axis, end] = np.stack(each)

    def times(self, factors: np.ndarray) -> "EdgeValues":
        """Return the values of each problem multiplied, ``(n,)``."""
        scaled = copy.copy(self)
        scaled.values = {
            side: edge * factors.reshape(-1, *[1] * (edge.ndim - 1))
            for side, edge in self.values.items()
        }
        return scaled

    def impose(self, values: np.ndarray, number: int) -> None:
        """Write the values of a problem to the edge of an array of the region, in place."""
        for (axis, end), edge in self.values.items():
            values[at(axis, values.ndim, -end)] = edge[number]
