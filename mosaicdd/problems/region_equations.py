"""The equations of a large part of a grid, evaluated only where they are not the same everywhere.

With constant coefficients most nodes have the same equation: those inside the domain with all nodes
around them, away from the sides of the rectangle. Most others lie outside, and have none. What is left,
along outlines and sides, is evaluated in strips, which stay in the cache.
"""

import numpy as np

from mosaicdd.lattice.axes import even, pair
from mosaicdd.problems.conductances import Conductances
from mosaicdd.problems.crossings import Crossings, NaturalPieces, OnOutlines
from mosaicdd.problems.discretisation import Discretisation, Equations, Ties
from mosaicdd.problems.fields import Part
from mosaicdd.problems.linear_step import LinearStep

_STRIP = 32  # rows at a time
_GAP = 512  # columns between two pieces of a strip that are cheaper to evaluate than to leave out
_REACH = 2  # nodes from a node to all that its equation depends on


def region_equations(discretisation: Discretisation | LinearStep, part: Part) -> Equations:
    """Return the left-hand sides of a part, as `Discretisation.equations` does.

    Raises
    ------
    ValueError
        If coefficients are not sound.
    """
    if isinstance(discretisation, LinearStep):
        return discretisation.equations(part)
    medium, grid = discretisation.medium, discretisation.grid
    varies = any(field.number is None for field in medium.fields.values())
    if varies or (discretisation.outline is not None and any(discretisation.periods)):
        return discretisation.equations(part)
    whole = _Whole(medium.conductances(grid, (slice(0, 3), slice(0, 3))), discretisation, part)
    for rows in even(part[0].stop - part[0].start, _STRIP):
        whole.add_strip(rows)
    return whole.equations()


class _Whole:
    """Equations that are put together strip by strip.

    Parameters
    ----------
    common
        The conductances between 3 x 3 nodes where nothing is near.
    """

    def __init__(self, common: Conductances, discretisation: Discretisation, part: Part):
        self._discretisation, self._part = discretisation, part
        self._common = [values[1, 1] for values in common.arrays()]
        self._pins = discretisation.known[: int(discretisation.floating)]
        rows, columns = pair(p.stop - p.start for p in part)
        shapes = (rows - 1, columns), (rows, columns - 1)
        kinds = (*shapes, (rows, columns), *(() if common.symmetric else shapes))
        self._arrays = [np.empty(shape) for shape in kinds]
        self._active = np.empty((rows, columns), bool)
        self._reported = np.zeros((rows, columns), bool)
        self._volumes = np.empty((rows, columns))
        self._ties = [(np.empty(0, int), np.empty(0, int), np.empty(0))]
        self._crossings = {name: [Crossings.none()] for name in ("ties", "flows", "on")}
        self._natural = [NaturalPieces.none()]

    def add_strip(self, rows: slice) -> None:
        """Enter the equations of some rows."""
        inside, outside = self._far(rows)
        for number, (values, common) in enumerate(zip(self._arrays, self._common, strict=True)):
            there = inside[: values.shape[1]]
            values[rows] = np.where(there, common, 1.0 if number == 2 else 0.0)
        self._active[rows] = self._volumes[rows] = inside
        self._reported[rows] = inside
        near = np.flatnonzero(~(inside | outside))
        if len(near):
            ends = np.flatnonzero(np.diff(near) > _GAP)
            for first, last in zip([0, *(ends + 1)], [*ends, len(near) - 1], strict=True):
                self._put(rows, slice(int(near[first]), int(near[last]) + 1))

    def _far(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """Say which columns of a strip are far inside of all outlines and sides, and far outside."""
        grid, outline = self._discretisation.grid, self._discretisation.outline
        first, last = (self._part[0].start + end for end in (rows.start, rows.stop - 1))
        columns = np.arange(self._part[1].start, self._part[1].stop)
        inside = (columns >= _REACH) & (columns <= grid.shape[1] - _REACH)
        inside &= first >= _REACH and last <= grid.shape[0] - _REACH
        outside = np.zeros_like(inside)
        if outline is not None:
            ring = slice(first - _REACH, last + 1 + _REACH)
            wide = slice(self._part[1].start - _REACH, self._part[1].stop + _REACH)
            there = outline.level((ring, wide)) < 0
            inside &= _all_around(np.logical_and.reduce(there))
            outside = _all_around(~np.logical_or.reduce(there))
        for y, x in self._pins:
            if first - _REACH <= y <= last + _REACH:
                inside &= abs(columns - x) > _REACH
        return inside, outside

    def _put(self, rows: slice, columns: slice) -> None:
        """Evaluate the equations of a piece of a strip, with a node more all around."""
        place = rows, columns
        ring = pair(
            slice(p.start + one.start - 1, p.start + one.stop + 1)
            for p, one in zip(self._part, place, strict=True)
        )
        wide = self._discretisation.equations(ring)
        own = wide.part(*pair(slice(1, one.stop - one.start + 1) for one in place))
        along = (0, 1, None, 0, 1)  # the axis of an edge; of up, right, reaction, down, left
        for values, piece, axis in zip(
            self._arrays, wide.conductances.arrays(), along, strict=False
        ):
            target, source = list(place), [slice(1, -1), slice(1, -1)]
            if axis is not None:  # all edges of the nodes, to those around them, too
                low, high = place[axis].start - 1, place[axis].stop
                target[axis] = slice(max(low, 0), min(high, values.shape[axis]))
                source[axis] = slice(target[axis].start - low, target[axis].stop - low)
            values[*target] = piece[*source]
        self._active[place], self._volumes[place] = own.active, own.volumes
        nodes = self._numbers(own.ties.nodes, place)
        self._ties.append((nodes, own.ties.known, own.ties.conductances))
        if own.outlines is not None:
            self._reported[place] = own.outlines.reported
            every = slice(None)
            for name, known in self._crossings.items():
                one = getattr(own.outlines, name)
                known.append(one.chosen(every, self._numbers(one.nodes, place)))
            natural = own.outlines.natural
            self._natural.append(natural.chosen(every, self._numbers(natural.nodes, place)))

    def _numbers(self, nodes: np.ndarray, place: tuple[slice, slice]) -> np.ndarray:
        """Return the numbers of a piece's nodes in the whole."""
        y, x = np.divmod(nodes, place[1].stop - place[1].start)
        return (y + place[0].start) * self._active.shape[1] + x + place[1].start

    def equations(self) -> Equations:
        """Return all."""
        ties = Ties(*(np.concatenate(one) for one in zip(*self._ties, strict=True)))
        outlines = None
        if self._discretisation.outline is not None:
            found = {name: Crossings.joined(every) for name, every in self._crossings.items()}
            natural = NaturalPieces.joined(self._natural)
            outlines = OnOutlines(**found, reported=self._reported, natural=natural)
        return Equations(Conductances(*self._arrays), self._active, self._volumes, ties, outlines)


def _all_around(there: np.ndarray) -> np.ndarray:
    """Say where something holds for all columns within reach, of which there are more at both ends."""
    count = len(there) - 2 * _REACH
    return np.logical_and.reduce([there[d : d + count] for d in range(2 * _REACH + 1)])
