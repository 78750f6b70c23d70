"""Data that jump where one step ends and the next one begins."""

import functools
from collections.abc import Callable, Iterator
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


class Jumps:
    """Finds out whether data jump at the begin of a step, and not only change.

    A jump is larger than what the same data change in the step that follows, at its middle and at its end.

    ``part``: the nodes at which a source and coefficients are compared. ``without``: names of what is not asked.
    """

    def __init__(
        self,
        problem: Problem,
        grid: Grid,
        part: Part,
        source: SourceInTime,
        *,
        without: tuple[str, ...] = (),
    ):
        self._problem, self._grid, self._part = problem, grid, part
        self._axes = len(grid.shape)
        self._sides = SidesInTime(problem.conditions)
        self._pieces = problem.pieces(grid)
        self._data: list[Datum] = []
        if "f" not in without and source.may_jump:
            self._data.append(lambda t: self._on_nodes(source, t))
        self._data += self._coefficients(CoefficientsInTime(problem))
        self._data += self._on_sides(without)

    @property
    def possible(self) -> bool:
        """Whether any of the data may jump at all."""
        return bool(self._data)

    def at(self, t: float, later: float, together: Together) -> bool:
        """Say whether data jump at a time, at which a step begins that ends later.

        All ranks together.
        """
        length = later - t
        before, after = just_before(t, length), just_after(t, length)
        left = self._data
        for time in (just_before(later, length), t + 0.5 * length) if left else ():
            look = functools.partial(_compared, left, before, after, time)
            jump, change, size = np.max(together(look), axis=0).T
            jumps = (jump > change) & (jump > _NOTHING * size)
            left = [datum for datum, is_jump in zip(left, jumps, strict=True) if is_jump]
            if not left:  # mostly, and then the middle is not looked at
                return False
        return bool(left)

    def _on_nodes(self, source: SourceInTime, t: float) -> np.ndarray:
        values = source(t, self._part)
        return np.zeros(1) if values is None else values

    def _coefficients(self, coefficients: CoefficientsInTime) -> Iterator[Datum]:
        for name in coefficients.names:
            if may_jump(self._problem.fields[name], self._axes):
                yield functools.partial(self._coefficient, name)

    def _coefficient(self, name: str, t: float) -> np.ndarray:
        values = at_time(self._problem.fields[name], t, self._axes)
        field = Field(name, values, self._axes)
        return field.sample_as_given(self._grid, self._part, checked=False)

    def _on_sides(self, without: tuple[str, ...]) -> Iterator[Datum]:
        conditions = self._problem.conditions
        for part in conditions.parts:
            if part.as_given in without:
                continue
            # Each of both for itself: a jump of one may be smaller than what the other changes.
            for which, values in (("values", part.values), ("alpha", part.alpha)):
                if not may_jump(values, self._axes):
                    continue
                if is_outline(part.name):
                    yield functools.partial(self._on_outline, values)
                else:
                    yield functools.partial(self._on_side, str(part), which)
        data = conditions.data
        if isinstance(data, BoundarySpec) and may_jump(data.formula, self._axes):
            yield self._on_edges

    def _on_edges(self, t: float) -> np.ndarray:
        edges = self._sides(t).edge_values(self._grid)
        return np.concatenate([edge.ravel() for b in edges for edge in b.edges.values()])

    def _on_side(self, name: str, which: str, t: float) -> np.ndarray:
        """Return the ``values`` or the ``alpha`` on a side of the rectangle."""
        every = self._sides(t).evaluated(self._grid, self._pieces)
        numbers = [np.ravel(getattr(p, which)) for p in every if p.name == name]
        return np.concatenate(numbers) if numbers else np.zeros(1)

    def _on_outline(self, values: Any, t: float) -> np.ndarray:
        """Return values near an outline, all over the rectangle; off the outline they need not be defined."""
        ends = [np.linspace(low, high, _PROBES) for low, high in self._grid.ends]
        places = np.meshgrid(*ends, indexing="ij")
        now = at_time(values, t, self._axes)
        numbers = []
        for each in now if isinstance(now, (list, tuple)) else [now]:
            try:
                with np.errstate(all="ignore"):
                    numbers.append(np.ravel(evaluate(each, places, "an outline")))
            except Exception:  # noqa: BLE001 - whatever the user's function raises there
                numbers.append(np.zeros(1))
        return np.concatenate(numbers)


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
