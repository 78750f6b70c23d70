"""Data that jump where one step ends and the next one begins."""

import functools
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.evaluated import evaluate
from mosaicdd.problems.fields.fields import Field, Part
from mosaicdd.problems.limits import just_after, just_before
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import BoundarySpec
from mosaicdd.problems.sides.parts import is_outline
from mosaicdd.time.data import CoefficientsInTime, SidesInTime, SourceInTime, at_time, may_jump

_NOTHING = (
    1e-9  # of data, below which a change is rounding, or that of smooth data between two limits
)
_PROBES = 16  # along each axis, at which values on outlines are compared
Datum = Callable[[float], np.ndarray]
"""Some of the data at a time."""
Together = Callable[[Callable[[], np.ndarray]], list[np.ndarray]]
"""Calls a function on every rank and returns what all return; all ranks call it together."""


def data_that_may_jump(
    problem: Problem,
    grid: Grid,
    part: Part,
    source: SourceInTime,
    *,
    without: Collection[str] = (),
) -> list[Datum]:
    """Return the data of a problem that may jump in time.

    ``part``: the nodes at which a source and coefficients are compared. ``without``: names of what is not asked.
    """
    axes, conditions = len(grid.shape), problem.conditions
    sides, pieces, data = SidesInTime(conditions), problem.pieces(grid), list[Datum]()

    def on_nodes(t: float) -> np.ndarray:
        values = source(t, part)
        return np.zeros(1) if values is None else values

    def coefficient(name: str, t: float) -> np.ndarray:
        field = Field(name, at_time(problem.fields[name], t, axes), axes)
        return field.sample_as_given(grid, part, checked=False)

    def on_side(name: str, which: str, t: float) -> np.ndarray:
        """Return the ``values`` or the ``alpha`` on a side of the rectangle."""
        every = sides(t).evaluated(grid, pieces)
        numbers = [np.ravel(getattr(p, which)) for p in every if p.name == name]
        return np.concatenate(numbers) if numbers else np.zeros(1)

    def on_edges(t: float) -> np.ndarray:
        edges = sides(t).edge_values(grid)
        return np.concatenate([edge.ravel() for b in edges for edge in b.edges.values()])

    if "f" not in without and source.may_jump:
        data.append(on_nodes)
    for name in CoefficientsInTime(problem).names:
        if may_jump(problem.fields[name], axes):
            data.append(functools.partial(coefficient, name))
    for piece in conditions.parts:
        if piece.as_given in without:
            continue
        # Each of both for itself: a jump of one may be smaller than what the other changes.
        for which, values in (("values", piece.values), ("alpha", piece.alpha)):
            if may_jump(values, axes) and is_outline(piece.name):
                data.append(functools.partial(_on_outline, values, grid))
            elif may_jump(values, axes):
                data.append(functools.partial(on_side, str(piece), which))
    if isinstance(conditions.data, BoundarySpec) and may_jump(conditions.data.formula, axes):
        data.append(on_edges)
    return data


def _on_outline(values: Any, grid: Grid, t: float) -> np.ndarray:
    """Return values near an outline, all over the rectangle; off the outline they need not be defined."""
    places = np.meshgrid(*(np.linspace(*ends, _PROBES) for ends in grid.ends), indexing="ij")
    now, numbers = at_time(values, t, len(grid.shape)), []
    for each in now if isinstance(now, (list, tuple)) else [now]:
        try:
            with np.errstate(all="ignore"):
                numbers.append(np.ravel(evaluate(each, places, "an outline")))
        except Exception:  # noqa: BLE001 - whatever the user's function raises there
            numbers.append(np.zeros(1))
    return np.concatenate(numbers)


def jump_at(data: list[Datum], t: float, later: float, together: Together) -> bool:
    """Whether data jump at the begin of a step, and do not only change; all ranks together.

    A jump is larger than what the same data change in the step that follows, at its middle and at its end.
    """
    length = later - t
    before, after = just_before(t, length), just_after(t, length)
    left = data
    for time in (just_before(later, length), t + 0.5 * length) if left else ():
        look = functools.partial(_compared, left, before, after, time)
        jump, change, size = np.max(together(look), axis=0).T
        jumps = (jump > change) & (jump > _NOTHING * size)
        left = [datum for datum, is_jump in zip(left, jumps, strict=True) if is_jump]
        if not left:  # mostly, and then the middle is not looked at
            return False
    return bool(left)


def _compared(data: list[Datum], before: float, after: float, then: float) -> np.ndarray:
    """Return of each datum the largest jump, the largest change after it, and the largest number, ``(data, 3)``."""
    rows = []
    for datum in data:
        times = [datum(t) for t in (before, after, then)]
        with np.errstate(invalid="ignore"):
            every = (times[1] - times[0], times[2] - times[1], *times)
            jump, change, *sizes = (float(np.nanmax(abs(a), initial=0.0)) for a in every)
        rows.append((jump, change, max(sizes)))
    return np.array(rows)
