"""Periodic sides with a jump: the mean slope that they impose.

A solution that is larger by a jump at the high side of an axis is a slope, even all along it, and something periodic.
The latter is what is solved for, with what the slope drives on the right-hand side. Parts of the grid may reach beyond it, where
nodes are counted on and on; the slope is zero in the middle of the grid.
"""

import functools
from typing import Any

import numpy as np

from mosaicdd.lattice.axes import crossed
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.shapes.outline import side_names
from mosaicdd.problems.sides.conditions import Periodic
from mosaicdd.problems.sides.sides import Sides
from mosaicdd.unsupported import Unsupported


def jumps_of(sides: Sides) -> tuple[float, ...]:
    """Return by how much the solution is larger at the high side of each axis, (y, x), between periodic sides."""
    jumps, names = [0.0] * sides.axes, side_names(sides.axes)
    for part in sides.parts:
        if isinstance(part.condition, Periodic) and part.name in names:
            jumps[names[part.name][0]] = part.condition.jump
    return tuple(jumps)


def mean_slope(sides: Sides, grid: Grid, part: Part, *, halves: bool = False) -> np.ndarray | None:
    """Return the slope at the nodes of a part, ``(rows, columns)``; None without any jump.

    ``halves``: with the mean of both of a pair of periodic sides on each, as of the volumes between them.
    """
    if not any(jumps_of(sides)):
        return None
    along = []
    for p, cells, jump in zip(part, grid.shape, jumps_of(sides), strict=True):
        at = np.arange(p.start, p.stop)
        share = at / cells - 0.5
        along.append(jump * np.where(halves & (at % cells == 0), 0.0, share))
    return functools.reduce(np.add, crossed(*along))


def slope_at(sides: Sides, grid: Grid, nodes: np.ndarray) -> np.ndarray:
    """Return the slope at nodes ``(K, axes)``; zero without any jump."""
    return (nodes / grid.shape - 0.5) @ np.array(jumps_of(sides))


def without_slope(sides: Sides, grid: Grid, part: Part, values: Any) -> Any:
    """Return what is periodic of values ``(.., rows, columns)`` at the nodes of a part."""
    slope = mean_slope(sides, grid, part)
    return values if slope is None else values - slope


def require_no_jump(sides: Sides, equation: str, *, unless: bool) -> None:
    """Raise `Unsupported` where periodic sides jump, with an equation that does not take it."""
    if any(jumps_of(sides)) and not unless:
        raise Unsupported(
            f"periodic sides with a jump are for steady linear equations, {equation} is none: leave the jump out"
        )
