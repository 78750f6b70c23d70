"""Shapes between periodic sides: they go on at the other side."""

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.shapes.outline import name_of_side
from mosaicdd.problems.shapes.shape import Shape

_SAME = 1e-3  # of a cell, by which an outline may differ on two periodic sides


def require_periodic(shape: Shape, grid: Grid, periodic: tuple[bool, ...]) -> None:
    """Check that a shape goes on at the opposite one of periodic sides.

    Raises
    ------
    ValueError
        If it does not, with the first place.
    """
    for axis, around in enumerate(periodic):
        if not around:
            continue
        # Each side with the line beside it.
        lines = []
        for first in (0, grid.shape[axis] - 1):
            part = [slice(0, nodes) for nodes in grid.nodes]
            part[axis] = slice(first, first + 2)
            lines += [*np.moveaxis(shape.level(grid, tuple(part)), axis, 0)]
        low, high = lines[0], lines[-1]
        inside = np.stack(lines) < 0
        crossed = inside.any(0) & ~inside.all(0)
        wrong = (low < 0) != (high < 0)
        wrong |= crossed & (abs(low - high) > _SAME * np.ptp(lines, axis=0))
        if wrong.any():
            raise ValueError(
                f"the sides {name_of_side((axis, 0))} and {name_of_side((axis, 1))} are periodic, but the outline of the domain is not "
                f"the same on both, first at {'xy'[axis]} = {np.argmax(wrong) * grid.spacing:g}: let it "
                "go on at the other side"
            )
