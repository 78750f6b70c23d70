"""The source of a problem in time, as node values at an instant."""

from typing import Any

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.discretisation.covering import Covering
from mosaicdd.problems.fields.evaluated import Sliced
from mosaicdd.problems.fields.fields import Field, Part
from mosaicdd.problems.in_time import in_time, may_jump
from mosaicdd.problems.limits import exact
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.shapes.sample_near import sample_near
from mosaicdd.problems.shapes.shape import Shape, inside_ring
from mosaicdd.settings import argument

_KEPT = 2  # samples of a source that may jump: at the end of a step, where the next one begins, and between


class SourceInTime:
    """The source of a problem, sampled at an instant.

    ``interval``: between the node values of a source that has a leading axis, from the time 0 on; between them it is
    interpolated linearly.

    ``may_jump``: whether it may jump in time.
    """

    def __init__(self, problem: Problem, grid: Grid, interval: float):
        source = problem.source
        self._grid, self._shape = grid, problem.domain.shape
        self._covering = Covering(problem, grid)
        self._axes, self._interval = len(grid.shape), interval
        self._source: Any = None if source is None else source.values
        self._frames = 0
        if source is not None and source.times is not None:  # of this problem alone, here
            self._source = Sliced.of_time(self._source, 0)
            self._frames = source.times
            if self._frames == 1:  # at all times
                self._source, self._frames = Sliced.of_time(self._source, 0), 0
        elif source is not None and source.problems > 1:
            self._frames = source.problems
        with argument("the field f"):
            self._at_time = in_time(self._source, self._axes)
        self._fixed = not self._frames and self._at_time is None
        self.may_jump = not self._frames and may_jump(self._source, self._axes)
        self._sampled: list[tuple[float, Part, np.ndarray]] = []  # the last ones

    def require_until(self, end: float) -> None:
        """Check that the source has node values up to a time; else raise `ValueError`."""
        last = (self._frames - 1) * self._interval
        if self._frames and last < end * (1 - 1e-9):
            raise ValueError(
                f"the field f has values at {self._frames} times, the last at {last:g}; steps to {end:g} "
                f"need {round(end / self._interval) + 1}"
            )

    def __call__(self, t: float, part: Part) -> np.ndarray | None:
        """Return the values at the nodes of a part, ``(rows, columns)``, not to be changed; None if zero."""
        if self._source is None:
            return None
        if not (self._fixed or self.may_jump):
            return self._at(t, part)
        t = 0.0 if self._fixed else t
        for known, place, values in self._sampled:
            if (known, place) == (t, part):
                return values
        values = self._at(t, part)
        self._sampled = [(t, part, values), *self._sampled][: 1 if self._fixed else _KEPT]
        return values

    def _at(self, t: float, part: Part) -> np.ndarray:
        if not self._frames:
            now = self._source if self._at_time is None else self._at_time(t)
            return self._sampled_of("f", now, part)
        position = exact(t) / self._interval
        before = max(0, min(int(position * (1 + 1e-12)), self._frames - 2))
        earlier, later = (self._frame(number, part) for number in (before, before + 1))
        return earlier + (position - before) * (later - earlier)

    def _frame(self, number: int, part: Part) -> np.ndarray:
        """Return the node values of one time."""
        frame = Sliced.of_time(self._source, number)
        return self._sampled_of(f"f at time {number * self._interval:g}", frame, part)

    def _sampled_of(self, name: str, values: Any, part: Part) -> np.ndarray:
        field = Field(name, values, self._axes)
        return sampled(field, self._shape, self._grid, part, self._covering)


def sampled(
    field: Field, shape: Shape | None, grid: Grid, part: Part, covering: Covering | None = None
) -> np.ndarray:
    """Return values of one problem at the nodes of a part, ``(rows, columns)``.

    Beside a domain that is no rectangle they are as `sample_near` has them, further out zero; of values per cell the
    means over volumes, by a ``covering``.
    """
    inside = inside_ring(shape, grid, part)
    if inside is None:
        return field.sample(grid, part)[0]
    cover = covering(part) if covering is not None and field.per_cell(grid) else None
    return sample_near(field, grid, part, inside, fill=0.0, cover=cover)[0]
