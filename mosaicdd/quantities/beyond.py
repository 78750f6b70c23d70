"""The unknowns beyond natural outlines, which a field does not show: found again from those inside.

Where the outline of a shape is natural, nodes beyond it whose volumes have a part in the domain are unknowns, too.
Their own equations, with the values inside, say what they are: one small sparse system along all outlines.
"""

import dataclasses
import functools
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from mosaicdd.axes import common, crossed, ends, within
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.periodic import places_of
from mosaicdd.problems.fields.fields import Part, Periods
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.sides.sides import mean_slope
from mosaicdd.quantities.control_volumes import ControlVolumes
from mosaicdd.quantities.held_field import FieldOnRank


def with_unknowns_beyond(volumes: ControlVolumes, field: FieldOnRank) -> FieldOnRank:
    """Return a field with its unknowns beyond natural outlines; all processes together."""
    if volumes.outline is None or not volumes.outline.natural:
        return field
    problem, grid = volumes.problem, field.grid
    discretisation = Discretisation(problem, volumes.medium, grid)
    outline = discretisation.values(problem)
    slope = mean_slope(problem.conditions, grid, field.wide)
    values = field.values.copy() if slope is None else field.values - slope
    periods = problem.conditions.periods(grid)
    if not discretisation.floating:
        at, place = places_of(outline.known, field.wide, periods)
        there: tuple[Any, ...] = (slice(None), *place)
        missing = np.isnan(values[there])
        values[there] = np.where(missing, outline.values[:, at], values[there])
    # Equations of what this process speaks for, once each along periodic axes, with what is around.
    own = tuple(
        slice(p.start, p.stop if period is None else min(p.stop, period))
        for p, period in zip(field.own, periods, strict=True)
    )
    ring = tuple(slice(p.start - 1, p.stop + 1) for p in own)
    equations = discretisation.equations(ring)
    right = discretisation.right_hand_side(problem, outline, ring, equations)
    u = _around(field, values, ring)
    hidden = equations.active & np.isnan(u).any(axis=0)
    rows = np.zeros(hidden.shape, bool)
    inner = within(own, ring)
    rows[inner] = hidden[inner]
    ids = _global_ids(ring, grid.nodes, periods)
    row, column, value, known = _rows(
        equations.conductances, rows, hidden, ids, np.where(equations.active, u, 0.0)
    )
    entries = row, column, value, ids[rows], right[:, rows] + known
    parts = field.gather((field.members.start, entries))
    solved_ids, solved = _solution([e for first, e in parts if first == field.members.start])
    if len(solved_ids):
        wide_ids = _global_ids(field.wide, grid.nodes, periods)
        which = np.searchsorted(solved_ids, wide_ids).clip(max=len(solved_ids) - 1)
        lacking = (solved_ids[which] == wide_ids) & np.isnan(values)
        values[lacking] = solved[:, which][lacking]
    return dataclasses.replace(field, values=values if slope is None else values + slope)


def _around(field: FieldOnRank, values: np.ndarray, ring: Part) -> np.ndarray:
    """Return wide values at the nodes of a part that may reach beyond the grid; NaN where there are none."""
    u = np.full((len(values), *(p.stop - p.start for p in ring)), np.nan)
    there = common(ring, field.wide)
    where = within(there, ring)
    u[:, *where] = values[:, *within(there, field.wide)]
    return u


def _global_ids(part: Part, nodes: tuple[int, ...], periods: Periods) -> np.ndarray:
    """Return a number of each node of a part, the same of copies; of what is beyond the grid, a negative one."""
    along = []
    for p, count, period in zip(part, nodes, periods, strict=True):
        at = np.arange(p.start, p.stop)
        along.append(at % period if period is not None else np.where(at < count, at, -1))
    inside = functools.reduce(np.logical_and, crossed(*(at >= 0 for at in along)))
    ids = np.ravel_multi_index(crossed(*(at.clip(min=0) for at in along)), nodes)
    return np.where(inside, ids, -1)


def _rows(
    conductances: Conductances, rows: np.ndarray, hidden: np.ndarray, ids: np.ndarray, u: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the entries of the equations of some nodes: rows, columns, values, and what known neighbours add."""
    diagonal = conductances.diagonal()
    every = [(ids[rows], ids[rows], diagonal[rows])]
    known = np.where(hidden, 0.0, np.nan_to_num(u))
    right = np.zeros(u.shape)
    edges = zip(conductances.along, conductances.against, strict=True)
    for axis, (forth, back) in enumerate(edges):
        low, high = ends(axis, rows.ndim)
        for here, there, k in ((low, high, forth), (high, low, back)):
            both = rows[here] & hidden[there] & (k > 0)
            every.append((ids[here][both], ids[there][both], -k[both]))
            right[:, *here] += np.where(rows[here], k, 0.0) * known[:, *there]
    row, column, value = (np.concatenate(parts) for parts in zip(*every, strict=True))
    return row, column, value, right[:, rows]


def _solution(parts: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Solve the equations of all processes; return the nodes' numbers, ascending, and values ``(n, K)``."""
    row, column, value, node = (np.concatenate([p[k] for p in parts]) for k in range(4))
    right = np.concatenate([p[4] for p in parts], axis=1)
    ids, first = np.unique(node, return_index=True)
    if not len(ids):
        return ids, right
    at = np.searchsorted(ids, row), np.searchsorted(ids, column).clip(max=len(ids) - 1)
    matrix = scipy.sparse.coo_array((value, at), shape=(len(ids),) * 2).tocsc()
    return ids, scipy.sparse.linalg.splu(matrix).solve(right[:, first].T).T
