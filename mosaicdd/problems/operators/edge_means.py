"""What coefficients at nodes or in cells are between the nodes of a grid, along each of its axes."""

from typing import Any

import numpy as np

from mosaicdd.lattice.axes import at, ends, even
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import Field, Part, cells_of, require_sign

MIXED = "axy", "axz", "ayz"

SMALL = 1e-4
"""Cell Peclet numbers below which Bernoulli's function is a series."""
_PIECE = 2**15  # numbers at once


def shares(a: Field, grid: Grid, part: Part) -> np.ndarray:
    """Return what conductances are made of: half resistances at nodes, or what cells have in each of their edges.

    Of cells also those around the outermost nodes, with zeros beyond the outline of the domain.
    """
    if not a.per_cell(grid):
        return 0.5 / require_sign(a.sample(grid, part)[0], a, grid, part, positive=True)
    cells = cells_of(part, grid)
    values = a.require_finite(a.sample_cells(cells), grid, cells)
    require_sign(values, a, grid, cells, positive=True)
    beyond = [
        (int(p.start == 0), int(p.stop == nodes)) for p, nodes in zip(part, grid.nodes, strict=True)
    ]
    return np.pad(0.5 ** (len(part) - 1) * values, beyond)


def in_series(resistance: Any, axis: int) -> Any:
    """Return the conductances along an axis of two half resistances in series, in arrays of numpy's or torch's."""
    low, high = ends(axis, resistance.ndim)
    return 1.0 / (resistance[high] + resistance[low])


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


def fitted(conductances: np.ndarray, velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return those in the equations of an edge's upstream and downstream node.

    ``k B(b / k)`` and ``k B(-b / k)`` with Bernoulli's ``B(t) = t / (exp(t) - 1)``: of second order where
    ``t``, the cell Peclet number, is small, and where it is large, upwind.
    ``velocity``: times the spacing, from the first node to the second.
    """
    both = np.empty(conductances.shape), np.empty(conductances.shape)
    rows = max(1, _PIECE * len(conductances) // max(1, conductances.size))
    for part in even(len(conductances), rows):  # whose parts of all arrays stay in the cache
        k, b = conductances[part], velocity[part]
        forwards = b > 0
        t = np.where(forwards, b, -b) / k
        against = k * bernoulli(t)
        along = against + k * t
        for out, ways in zip(both, ((against, along), (along, against)), strict=True):
            out[part] = np.where(forwards, *ways)
    return both


def bernoulli(t: Any, of: Any = np) -> Any:
    """Return Bernoulli's function of numbers that are not negative, in an array of numpy's or torch's."""
    # Below 1e-4 the next term of the series is rounding; beyond 500 the power overflows.
    power = of.expm1(of.clip(t, SMALL, 500.0))
    return of.where(t < SMALL, 1 - t / 2 + t * t / 12, t / power)
