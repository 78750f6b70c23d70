"""Problems that are solved for next to nothing, for another solve to begin with.

The same problem on every few nodes of its grid; or a linear one with the same domain and conditions, whose solution is
harmonic, so it lies between the values on the sides.
"""

from typing import Any

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.discretisation.discretisation import Discretisation
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.fields.fields import LocalPart, Part
from mosaicdd.problems.fields.given import real_array
from mosaicdd.problems.fields.random_media import PREFIX
from mosaicdd.problems.operators.medium import medium_of
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary


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


def every(values: Any, number: int, apart: int, axes: int = 2) -> Any:
    """Return a field's values, of one of several problems, for every so many of its nodes, or the means of so many cells.

    None if a rank cannot know these, or they are other ones on another grid.
    """
    if isinstance(values, LocalPart) or (isinstance(values, str) and values.startswith(PREFIX)):
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


def refined(values: np.ndarray, apart: int) -> np.ndarray:
    """Interpolate by cubics along the last axis; the first and the last value stay the ends.

    ``values``: ``(.., n + 1)``; ``apart``: nodes become so many cells apart: ``(.., apart n + 1)``.
    """
    t = np.arange(apart) / apart
    weights = np.stack(
        [
            -t * (t - 1) * (t - 2) / 6,
            (t + 1) * (t - 1) * (t - 2) / 2,
            -(t + 1) * t * (t - 2) / 2,
            (t + 1) * t * (t - 1) / 6,
        ]
    )
    # Beyond the ends the parabolas go on that the last three values lie on.
    first, last = (3 * a - 3 * b + c for a, b, c in (_ends(values), _ends(values[..., ::-1])))
    padded = np.concatenate([first[..., None], values, last[..., None]], axis=-1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 4, axis=-1)
    between = windows @ weights
    return np.concatenate([between.reshape(*values.shape[:-1], -1), values[..., -1:]], axis=-1)


def refined_at(values: np.ndarray, apart: int, part: Part) -> np.ndarray:
    """Interpolate by cubics along all axes, as `refined`, to the nodes of a part of the finer grid."""
    for axis, along in enumerate(part):
        values = np.moveaxis(refined(np.moveaxis(values, axis, -1), apart)[..., along], -1, axis)
    return values


def _ends(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return values[..., 0], values[..., 1], values[..., min(2, values.shape[-1] - 1)]


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
