"""A field as quantities see it: a process's part of it with the nodes around, and how parts are added up."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.axes import in_rows, within
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.sides import jumps_of

_VALUES = 2**17  # that are handled at once, for the cache


@dataclass(frozen=True)
class FieldOnRank:
    """What a process holds of the fields of some problems; what adds up is called by all processes together."""

    grid: Grid
    problem: Problem  # of the members only
    problems: int  # of all
    members: slice  # which of them are held here
    own: Part  # nodes that this process speaks for; of all processes each once
    wide: Part  # these and one more all around, beyond the grid where it is periodic
    values: np.ndarray  # float64, of the wide nodes, ``(members, rows, columns)``; NaN outside
    add: Callable[[np.ndarray], np.ndarray]  # over all processes
    gather: Callable[[Any], list]  # from all processes, in their order

    def at(self, part: Part) -> np.ndarray:
        """Return values at some of the wide nodes, a view."""
        return self.values[:, *within(part, self.wide)]

    def around(self, part: Part) -> Part:
        """Return a part with one node more all around, within the grid."""
        return tuple(
            slice(max(p.start - 1, 0), min(p.stop + 1, nodes))
            for p, nodes in zip(part, self.grid.nodes, strict=True)
        )

    def total(self, mine: np.ndarray) -> np.ndarray:
        """Add up numbers of the members ``(members, ..)`` over all processes: ``(problems, ..)``."""
        every = np.zeros((self.problems, *mine.shape[1:]))
        every[self.members] = mine
        return self.add(every)


def alone(problem: Problem, grid: Grid, fields: np.ndarray) -> FieldOnRank:
    """Return whole fields ``(n, rows, columns)`` that one process holds."""
    own = tuple(slice(0, nodes) for nodes in grid.nodes)
    wide, values = [], np.asarray(fields, np.float64)
    for axis, period in enumerate(problem.conditions.periods(grid)):
        around = 0 if period is None else 1
        if around:
            jump = jumps_of(problem.conditions)[axis]
            low, high = (
                values.take([at], axis + 1) + rise for at, rise in ((-2, -jump), (1, jump))
            )
            values = np.concatenate([low, values, high], axis + 1)
        wide.append(slice(-around, grid.nodes[axis] + around))
    members = slice(0, len(values))
    return FieldOnRank(
        grid, problem, len(values), members, own, tuple(wide), values, lambda a: a, lambda a: [a]
    )


def rows_of(field: FieldOnRank) -> Iterator[Part]:
    """Yield what a process speaks for, some rows at a time."""
    if all(p.stop > p.start for p in field.own):
        yield from in_rows(field.own, _VALUES)
