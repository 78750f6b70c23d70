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


def require_boundaries(given: EdgeData | None) -> None:
    """Check that a sequence is one of boundaries.

    Raises
    ------
    TypeError
        If it is empty, or holds anything else.
    """
    if isinstance(given, Sequence) and (
        not given or not all(isinstance(one, Boundary) for one in given)
    ):
        raise TypeError("sides must be conditions, or Boundary values of all edges")


def problems_of(given: EdgeData) -> int:
    """Return of how many problems the values are."""
    if isinstance(given, Boundary):
        return 1
    return len(given) if isinstance(given, Sequence) else given.problems


def boundaries_of(given: EdgeData, grid: Grid) -> list[Boundary]:
    """Return the values of each problem on the edges of a grid.

    Raises
    ------
    ValueError
        If they are of another shape than the grid, or not finite.
    """
    if isinstance(given, Boundary):
        boundaries = [given]
    else:
        boundaries = list(given) if isinstance(given, Sequence) else given.boundaries(grid)
    for one in boundaries:
        one.require_shape(grid)
    return boundaries


def some_of(given: EdgeData, which: range) -> EdgeData:
    """Return the values of some of the problems; those of one problem are for all."""
    if isinstance(given, Boundary):
        return given
    return given[which.start : which.stop] if isinstance(given, Sequence) else _Some(given, which)


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
