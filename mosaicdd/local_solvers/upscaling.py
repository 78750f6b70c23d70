"""A medium seen on a grid `RATIO` times coarser, whose nodes are every `RATIO`-th of the fine grid's.

A *rule* makes the conductances between coarse nodes of the fine ones around them. What they are between
two nodes depends on what lies near these alone, so ranks that share nodes agree on them.

The control is plain averaging: `RATIO` halvings, each with two grid edges in series along the new one,
and a quarter, a half and a quarter of the three beside each other.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from mosaicdd.lattice.axes import at
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
    inner = slice(MARGIN, -MARGIN)
    up, right = fine.along
    right = _halved(_halved(right[1:-1, inner]))
    up = _halved(_halved(up[inner, 1:-1].T)).T
    return Conductances((up, right), restricted(fine.reaction))


def _halved(right: np.ndarray) -> np.ndarray:
    """Return conductances between every second node of every second row, but for the outermost rows."""
    series = 2.0 / (1.0 / right[:, 0::2] + 1.0 / right[:, 1::2])
    return 0.25 * series[:-2:2] + 0.5 * series[1:-1:2] + 0.25 * series[2::2]


def restricted(values: np.ndarray) -> np.ndarray:
    """Share values at fine nodes ``(.., rows, columns)``, a `MARGIN` all around, out to coarse nodes.

    By bilinear hats: nothing is lost.
    """
    if not values.any():
        shape = [(n - 2 * MARGIN + RATIO - 1) // RATIO for n in values.shape[-2:]]
        return np.zeros((*values.shape[:-2], *shape))
    for axis in (-1, -2):
        values = np.moveaxis(values, axis, -1)
        count = (values.shape[-1] - 2 * MARGIN + RATIO - 1) // RATIO
        first = MARGIN - RATIO + 1
        taps = (values[..., first + k :: RATIO][..., :count] for k in range(len(_HAT)))
        values = sum(weight * tap for weight, tap in zip(_HAT, taps, strict=True))
        values = np.moveaxis(values, -1, axis)
    return values


def fine_part(part: Part, grid: Grid, margin: int) -> tuple[Part, list[tuple[int, int]]]:
    """Return the fine nodes around some coarse ones, and how many of the margin lie outside.

    Parameters
    ----------
    grid
        The fine one.
    """
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
    """What a rule makes of a medium; for the engine it is a medium like any other.

    Parameters
    ----------
    fine, grid
        The medium, and the grid that it is given on.
    """

    self_adjoint = True
    reflective = False

    def __init__(self, fine: Medium, grid: Grid, rule: Rule):
        self.fine = fine
        self.grid = grid
        self.rule = rule

    @property
    def coarse_grid(self) -> Grid:
        """Its own grid."""
        return Grid(tuple(n // RATIO for n in self.grid.shape), self.grid.spacing * RATIO)

    def conductances(self, grid: Grid, part: Part) -> Conductances:
        """Return the conductances between the nodes of a part of the coarse grid, as `Medium`."""
        rows = part[0]
        ends = range(rows.start, rows.stop - 1, _ROWS)
        bands = [self._band(slice(a, min(a + _ROWS + 1, rows.stop)), part) for a in ends]
        up = np.concatenate([band.along[0] for band in bands])
        right, reaction = (
            np.concatenate([*(values[:-1] for values in parts), parts[-1][-1:]])
            for parts in ([band.along[1] for band in bands], [band.reaction for band in bands])
        )
        across = [band.across for band in bands if band.across is not None]
        joined = np.concatenate(across, axis=1) if across else None
        return Conductances((up, right), reaction, across=joined)

    def _band(self, rows: slice, whole: Part) -> Conductances:
        """Return those of some rows of nodes; rules see one more on each side, if there is."""
        wide = slice(max(rows.start - 1, whole[0].start), min(rows.stop + 1, whole[0].stop))
        place, missing = fine_part((wide, whole[1]), self.grid, MARGIN)
        made = self.rule(mirrored(self.fine.conductances(self.grid, place), missing))
        inner = slice(rows.start - wide.start, rows.stop - wide.start)
        return made.part(inner, slice(0, whole[1].stop - whole[1].start))
