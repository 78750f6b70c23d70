"""What the domain of a problem has of the cells around nodes, as its discretisation counts them."""

import functools

from mosaicdd.discretisation.cut_outline import EmbeddedBoundary
from mosaicdd.discretisation.periodic import GridNodes
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.apertures import Apertures


class CoveredCells:
    """Of one problem; an outline is looked at when it is first asked for. Beyond periodic sides there is nothing."""

    def __init__(self, problem: Problem, grid: Grid):
        self._problem, self._grid = problem, grid

    @functools.cached_property
    def _outline(self) -> EmbeddedBoundary | None:
        shape = self._problem.domain.shape
        return (
            None if shape is None else EmbeddedBoundary(shape, self._grid, self._problem.conditions)
        )

    def __call__(self, part: Part) -> Apertures:
        """Return it around the nodes of a part."""
        cells = GridNodes(self._grid.shape, (None,) * len(part)).cells(part)
        if self._outline is None:
            return Apertures.of_cells(cells)
        return self._outline.cut(part, cells).cover
