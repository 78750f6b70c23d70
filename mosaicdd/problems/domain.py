"""The domain of a problem: how many grid cells, and how large they are."""

from dataclasses import dataclass

from mosaicdd.lattice.grid import Grid

DEFAULT_SPACING = 0.5 / 32
"""Side of a cell, in units of domain length, where neither domain nor local solver gives one."""


@dataclass(frozen=True)
class Domain:
    """A rectangle of grid cells with its lower-left corner at the origin.

    Parameters
    ----------
    cells
        ``(ny, nx)``.
    spacing
        Side of a cell, in units of domain length; by default that of the local solver.

    Raises
    ------
    ValueError
        If there is no cell along an axis, or the spacing is not positive.
    """

    cells: tuple[int, int]
    spacing: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", tuple(int(cells) for cells in self.cells))
        if len(self.cells) != 2:
            raise ValueError(f"a domain has cells (ny, nx) along two axes, got {self.cells}")
        self.grid()  # checks the numbers

    def grid(self, spacing: float | None = None) -> Grid:
        """Return the grid, with the spacing given where the domain has none of its own."""
        own = spacing if self.spacing is None else self.spacing
        return Grid(self.cells, DEFAULT_SPACING if own is None else own)
