"""Problems that are solved for next to nothing, for another solve to begin with.

The same problem on every few nodes of its grid; or a linear one with the same domain and conditions, whose solution is
harmonic, so it lies between the values on the sides.
"""

from typing import Any

import numpy as np

from mosaicdd.axes import all_of, at
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.fields.given import real_array
from mosaicdd.problems.fields.random_media import PREFIX
from mosaicdd.problems.operators.medium import medium_of
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary

_POINTS = 6  # whose polynomial interpolates: of order h^6, far below what another grid makes of a smooth solution


def coarser(
    problem: Problem, grid: Grid, boundary: Boundary, number: int, apart: int
) -> Problem | None:
    """Return one of the problems on every so many nodes; None if not every rank knows all of its fields.

    Parameters
    ----------
    grid, boundary
        Of all nodes, and the values on its edges.
    number
        Which of several.
    apart
        Must divide the cells of the grid.
    """
    axes = len(grid.shape)
    fields = {name: every(values, number, apart, axes) for name, values in problem.fields.items()}
    if any(values is None for values in fields.values()):
        return None
    domain = Domain.of_grid(grid.coarser(tuple(cells // apart for cells in grid.shape), apart))
    return Problem(domain, problem.equation, fields, boundary.every(apart))


def every(values: Any, number: int, apart: int, axes: int) -> Any:
    """Return a field of one problem at every ``apart``-th node, or its means over so many cells.

    None if a rank cannot know these, or they are other ones on another grid.
    """
    if getattr(values, "part", None) or (isinstance(values, str) and values.startswith(PREFIX)):
        return None
    shape: tuple[int, ...] = getattr(values, "shape", ())
    if len(shape) < axes:
        return values
    nodes = (slice(None, None, apart),) * axes
    which: tuple[int, ...] = () if len(shape) == axes else (number % shape[0],)
    if not all(count % apart == 0 for count in shape[-axes:]):
        return values[(*which, *nodes)]
    cells = real_array(values[(*which, *(slice(None),) * axes)], "a field")
    for axis in range(axes):
        pairs = np.moveaxis(cells, axis, -1)
        cells = np.moveaxis(pairs.reshape(*pairs.shape[:-1], -1, apart).mean(axis=-1), -1, axis)
    return cells


def refined(values: np.ndarray, apart: int, axis: int = -1) -> np.ndarray:
    """Interpolate by polynomials of degree 5 along an axis; the first and the last value stay the ends.

    What is between two values depends on three on each side, at the ends on the first or the last six, or all.

    ``values``: ``(.., n + 1)``; ``apart``: nodes become so many cells apart: ``(.., apart n + 1)``.
    """
    nodes = np.moveaxis(values, axis, 0)
    count = len(nodes)
    shape = list(values.shape)
    shape[axis] = apart * (count - 1) + 1
    fine = np.empty(shape)
    out = np.moveaxis(fine, axis, 0)
    out[::apart] = nodes
    beyond = np.arange(-(_POINTS // 2 - 1), 0)
    nearest = min(count, _POINTS)
    weights = _lagrange(np.arange(nearest), beyond)
    before, after = (np.tensordot(weights, of[:nearest], 1) for of in (nodes, nodes[::-1]))
    padded = np.concatenate([before, nodes, after[::-1]])
    places = np.arange(1, apart) / apart
    points = np.arange(_POINTS) + beyond[0]
    for place, weights in enumerate(_lagrange(points, places), start=1):
        between = out[place::apart]
        np.multiply(padded[: count - 1], weights[0], out=between)
        for first, weight in enumerate(weights[1:], start=1):
            between += weight * padded[first : first + count - 1]
    return fine


def _lagrange(points: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return Lagrange's weights of values at points for the polynomial at places, ``(places, points)``."""
    weights = np.ones((len(places), len(points)))
    for number, point in enumerate(points):
        for other in np.delete(points, number):
            weights[:, number] *= (places - other) / (point - other)
    return weights


def refined_at(values: np.ndarray, apart: int, part: Part) -> np.ndarray:
    """Interpolate as `refined` along all axes to a part of the finer grid."""
    for axis in reversed(range(values.ndim)):
        values = refined(values, apart, axis)[at(axis, values.ndim, part[axis])]
    return values


def extrapolated(values: np.ndarray, coarser: np.ndarray) -> np.ndarray:
    """Return Richardson's extrapolation of values from those on a grid twice as coarse.

    A solution of second order is met four times as closely on each finer grid (Richardson, 1911).
    """
    change = values[(slice(None, None, 2),) * values.ndim] - coarser
    return values + refined_at(change, 2, all_of(values.shape)) / 4


def smooth_problem(problem: Problem, grid: Grid, c: float) -> Problem:
    """Return the linear problem with a reaction ``c``."""
    domain = Domain.of_grid(grid, problem.domain.shape)
    return Problem(domain, "diffusion", {"c": c}, problem.conditions)


def screening(problem: Problem, grid: Grid) -> float:
    """Return the reaction that a smooth problem takes: none, if the conditions fix the level of all parts of the domain.

    Else that of a screening length as wide as the domain.
    """
    harmonic = smooth_problem(problem, grid, 0.0)
    try:
        if not Discretisation(harmonic, medium_of(harmonic.operator), grid).floating:
            return 0.0
    except ValueError:  # a part has no given value
        pass
    return 1.0 / max(grid.size) ** 2
