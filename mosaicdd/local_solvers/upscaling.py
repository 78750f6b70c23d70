"""A medium seen on a grid `RATIO` times coarser, whose nodes are every `RATIO`-th of the fine grid's.

A *rule* makes the conductances between coarse nodes of the fine ones around them. What they are between
two nodes depends on what lies near these alone, so ranks that share nodes agree on them.

The control is plain averaging: `RATIO` halvings, each with two grid edges in series along the new one,
and a quarter, a half and a quarter of the three beside each other.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from mosaicdd.lattice.axes import at, others
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.medium import Medium

RATIO = 4
"""Fine cells along a coarse one, as the networks are trained for."""
MARGIN = 4
"""Fine cells around its nodes that a rule sees."""

_ROWS = 64  # of coarse nodes that are made at once
_HAT = np.array([1.0, 2.0, 3.0, 4.0, 3.0, 2.0, 1.0]) / RATIO

Rule = Callable[[Conductances], Conductances]
"""From those between fine nodes ``(4 rows - 3 + 8, ..)``, a `MARGIN` all around, to coarse ones."""


def averaged(fine: Conductances) -> Conductances:
    """Average conductances over the cells around each coarse grid edge."""
    along = []
    for axis, k in enumerate(fine.along):
        k = k[at(axis, fine.axes, slice(MARGIN, -MARGIN), slice(1, -1))]
        along.append(_halved(_halved(k, axis), axis))
    return Conductances(tuple(along), restricted(fine.reaction, fine.axes))


def _halved(k: np.ndarray, axis: int) -> np.ndarray:
    """Return conductances along an axis between every second node of every second row, but for the outermost rows."""
    first, second = (k[at(axis, k.ndim, slice(start, None, 2))] for start in (0, 1))
    series = 2.0 / (1.0 / first + 1.0 / second)
    for other in others(axis, k.ndim):
        low, middle, high = (
            series[at(other, k.ndim, rows)]
            for rows in (slice(None, -2, 2), slice(1, -1, 2), slice(2, None, 2))
        )
        series = 0.25 * low + 0.5 * middle + 0.25 * high
    return series


def restricted(values: np.ndarray, axes: int = 2) -> np.ndarray:
    """Share values at fine nodes ``(.., rows, columns)``, a `MARGIN` all around, out to coarse nodes.

    By bilinear hats: nothing is lost of what is scaled by the squared spacing.
    """
    if not values.any():
        shape = [(n - 2 * MARGIN + RATIO - 1) // RATIO for n in values.shape[-axes:]]
        return np.zeros((*values.shape[:-axes], *shape))
    for axis in range(-1, -1 - axes, -1):
        values = np.moveaxis(values, axis, -1)
        count = (values.shape[-1] - 2 * MARGIN + RATIO - 1) // RATIO
        first = MARGIN - RATIO + 1
        taps = (values[..., first + k :: RATIO][..., :count] for k in range(len(_HAT)))
        values = sum(weight * tap for weight, tap in zip(_HAT, taps, strict=True))
        values = np.moveaxis(values, -1, axis)
    return values if axes == 2 else values * float(RATIO) ** (2 - axes)


def fine_part(part: Part, grid: Grid, margin: int) -> tuple[Part, list[tuple[int, int]]]:
    """Return the nodes of the fine grid around some coarse ones, and how many of the margin lie outside."""
    places, missing = [], []
    for p, nodes in zip(part, grid.nodes, strict=True):
        low, high = RATIO * p.start - margin, RATIO * (p.stop - 1) + margin + 1
        places.append(slice(max(low, 0), min(high, nodes)))
        missing.append((max(-low, 0), max(high - nodes, 0)))
    return tuple(places), missing


def mirrored(fine: Conductances, missing: list[tuple[int, int]]) -> Conductances:
    """Continue conductances beyond the edge of the domain by their mirror images."""
    if not any(map(any, missing)):
        return fine
    along = []
    for axis, values in enumerate(fine.along):
        for other, width in enumerate(missing):
            mode: Literal["symmetric", "reflect"] = "symmetric" if axis == other else "reflect"
            values = np.pad(values, at(other, len(missing), width, (0, 0)), mode=mode)
        along.append(values)
    return Conductances(tuple(along), np.pad(fine.reaction, missing))


class CoarseMedium:
    """What a rule makes of a medium on a fine grid; for the engine it is a medium like any other."""

    self_adjoint = True
    alike = False
    reflective = False

    def __init__(self, fine: Medium, grid: Grid, rule: Rule):
        self.fine, self.grid, self.rule = fine, grid, rule

    @property
    def coarse_grid(self) -> Grid:
        """Its own grid."""
        return self.grid.coarser(tuple(n // RATIO for n in self.grid.shape), RATIO)

    def conductances(self, grid: Grid, part: Part) -> Conductances:
        """Return the conductances between the nodes of a part of the coarse grid, as `Medium`."""
        rows = part[0]
        ends = range(rows.start, rows.stop - 1, _ROWS)
        bands = [self._band(slice(a, min(a + _ROWS + 1, rows.stop)), part) for a in ends]
        up, *other = zip(*((*band.along, band.reaction) for band in bands), strict=True)
        *right, reaction = (
            np.concatenate([*(values[:-1] for values in parts), parts[-1][-1:]]) for parts in other
        )
        across = tuple(map(np.concatenate, zip(*(band.across for band in bands), strict=True)))
        return Conductances((np.concatenate(up), *right), reaction, across=across)

    def _band(self, rows: slice, whole: Part) -> Conductances:
        """Return those of some rows of nodes; rules see one more on each side, if there is."""
        wide = slice(max(rows.start - 1, whole[0].start), min(rows.stop + 1, whole[0].stop))
        place, missing = fine_part((wide, *whole[1:]), self.grid, MARGIN)
        made = self.rule(mirrored(self.fine.conductances(self.grid, place), missing))
        inner = slice(rows.start - wide.start, rows.stop - wide.start)
        return made.part(inner, *(slice(0, p.stop - p.start) for p in whole[1:]))
