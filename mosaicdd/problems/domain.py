"""The domain of a problem: how many grid cells, and how large they are."""

import numbers
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
    TypeError
        If the cells are no pair.
    """

    cells: tuple[int, int]
    spacing: float | None = None

    def __post_init__(self) -> None:
        given = self.cells
        if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str):
            raise TypeError(f"a domain has cells (ny, nx) along two axes, got {given!r}")
        if len(given) != 2 or not all(map(_is_whole, given)):
            raise ValueError(f"a domain has whole cells (ny, nx) along two axes, got {given}")
        object.__setattr__(self, "cells", (int(given[0]), int(given[1])))
        self.grid()  # checks the numbers

    def grid(self, spacing: float | None = None) -> Grid:
        """Return the grid, with the spacing given where the domain has none of its own."""
        own = spacing if self.spacing is None else self.spacing
        return Grid(self.cells, DEFAULT_SPACING if own is None else own)


def _is_whole(count: object) -> bool:
    return isinstance(count, numbers.Integral) and not isinstance(count, bool)
