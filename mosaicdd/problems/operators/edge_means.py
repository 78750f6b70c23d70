"""What coefficients at nodes or in cells are between the nodes of a grid, along each of its axes.

Which fields may be per cell where a nonlinear equation couples the differences along the axes.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from mosaicdd.axes import at, ends, even
from mosaicdd.grid.grid import Grid
from mosaicdd.unsupported import Unsupported

if TYPE_CHECKING:
    from mosaicdd.problems.operators.nonlinear import Nonlinear


def require_known_by_cells(operator: "Nonlinear", grid: Grid) -> None:
    """Check them; raise `ValueError` of fields that are for nodes alone, `Unsupported` of a factor of flows that is not for cells."""
    if operator.two_point_flux:
        return
    if operator.in_cells:
        raise ValueError(
            f"the field {operator.in_cells[0]} is given per cell, {grid.shape}, in an equation that couples the differences "
            f"along the axes: there what multiplies all flows, as the equation's diffusion, may be, or what multiplies u "
            f"alone; give it at the nodes, {grid.nodes}"
        )
    factor = None if operator.factor is None else operator.fields[operator.factor]
    if factor is None:
        return
    if not operator.pure:
        raise Unsupported(
            f"the field {factor.name} multiplies all that cells have, in an equation that couples the differences along "
            "the axes and has a reaction: that would be multiplied, too; let the residual take it, and give it at the "
            f"nodes, {grid.nodes}"
        )
    if factor.number is None and not factor.per_cell(grid):
        raise Unsupported(
            f"the field {factor.name} multiplies all that cells have, in an equation that couples the differences along "
            f"the axes: give it as a number, or per cell, {grid.shape}"
        )


MIXED = "axy", "axz", "ayz"


SMALL = 1e-4


"""Cell Peclet numbers below which Bernoulli's function is a series."""


_PIECE = 2**15  # numbers at once


def in_series(resistance: Any, axis: int, face: Any = 1.0) -> Any:
    """Return the conductances along an axis of two half resistances in series, in arrays of numpy's or torch's.

    ``face``: what the domain has of the edges' faces.
    """
    low, high = ends(axis, resistance.ndim)
    return face / (resistance[high] + resistance[low])


def sum_around(cells: Any, *axes: int) -> Any:
    """Return the sums over the cells around the grid edges along an axis, or their faces along some, of nodes within cells.

    ``cells``: an array of numpy's or torch's.
    """
    total = cells
    for axis in range(cells.ndim):
        low, high = ends(axis, cells.ndim)
        inner = at(axis, cells.ndim, slice(1, -1))
        total = total[inner] if axis in axes else total[low] + total[high]
    return total


def fitted(conductances: Any, velocity: Any, of: Any = np) -> tuple[Any, Any]:
    """Return those in the equations of an edge's first and last node, in arrays of numpy's or torch's.

    ``k B(b / k)`` and ``k B(-b / k)`` with Bernoulli's ``B(t) = t / (exp(t) - 1)``: of second order where
    ``t``, the cell Peclet number, is small, and where it is large, upwind.
    ``velocity``: times the spacing, from the first node to the second; ``of``: the module of the arrays.
    """
    if of is not np:
        return _fitted(conductances, velocity, of)
    both = np.empty(conductances.shape), np.empty(conductances.shape)
    rows = max(1, _PIECE * len(conductances) // max(1, conductances.size))
    for part in even(len(conductances), rows):  # whose parts of all arrays stay in the cache
        for out, values in zip(both, _fitted(conductances[part], velocity[part], of), strict=True):
            out[part] = values
    return both


def _fitted(k: Any, b: Any, of: Any) -> tuple[Any, Any]:
    forwards = b >= 0  # and not the absolute value, which has no derivative at 0
    speed = of.where(forwards, b, -b)
    upstream = k * bernoulli(speed / k, of)
    downstream = upstream + speed
    return of.where(forwards, upstream, downstream), of.where(forwards, downstream, upstream)


def bernoulli(t: Any, of: Any = np) -> Any:
    """Return Bernoulli's function of numbers that are not negative, in an array of numpy's or torch's."""
    # Below 1e-4 the next term of the series is rounding; beyond 500 the power overflows.
    power = of.expm1(of.clip(t, SMALL, 500.0))
    return of.where(t < SMALL, 1 - t / 2 + t * t / 12, t / power)
