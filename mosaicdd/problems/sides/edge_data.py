"""Values on all edges of a rectangle, of one or several problems, by themselves or made for a grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.sides.boundary import Boundary


@runtime_checkable
class Data(Protocol):
    """Values on all edges that are made when the grid is known.

    Attributes
    ----------
    problems
        Of how many problems.
    """

    @property
    def problems(self) -> int: ...  # noqa: D102 - said above

    def boundaries(self, grid: Grid) -> list[Boundary]:
        """Return the values of each problem on the edges of a grid."""
        ...


EdgeData = Boundary | Sequence[Boundary] | Data
"""Of one problem, of several, or of any number."""


def require_boundaries(data: EdgeData | None) -> None:
    """Raise `TypeError` where a sequence is empty, or not one of boundaries."""
    if isinstance(data, Sequence) and (
        not data or not all(isinstance(boundary, Boundary) for boundary in data)
    ):
        raise TypeError("sides must be conditions, or Boundary values of all edges")


def problems_of(data: EdgeData) -> int:
    """Return of how many problems the values are."""
    if isinstance(data, Boundary):
        return 1
    return len(data) if isinstance(data, Sequence) else data.problems


def boundaries_of(data: EdgeData, grid: Grid) -> list[Boundary]:
    """Return the values of each problem on the edges of a grid.

    Raises
    ------
    ValueError
        If they are of another shape than the grid, or not finite.
    """
    if isinstance(data, Boundary):
        boundaries = [data]
    else:
        boundaries = list(data) if isinstance(data, Sequence) else data.boundaries(grid)
    for boundary in boundaries:
        boundary.require_shape(grid)
    return boundaries


def some_of(data: EdgeData, which: range) -> EdgeData:
    """Return the values of some of the problems; those of one problem are for all."""
    if isinstance(data, Boundary):
        return data
    return data[which.start : which.stop] if isinstance(data, Sequence) else _Some(data, which)


@dataclass(frozen=True)
class _Some:
    """Boundary data of some of the problems of others."""

    data: Data
    which: range

    @property
    def problems(self) -> int:
        return len(self.which)

    def boundaries(self, grid: Grid) -> list[Boundary]:
        return self.data.boundaries(grid)[self.which.start : self.which.stop]
