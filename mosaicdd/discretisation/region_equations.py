"""The equations of a large part of a grid, evaluated only where they are not the same everywhere.

With constant coefficients most nodes have the same equation: those inside the domain with all nodes
around them, away from the sides of the rectangle. Most others lie outside, and have none. What is left,
along outlines and sides, is evaluated in squares, many at a time.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mosaicdd.axes import even
from mosaicdd.discretisation.crossings import (
    NO_TIES,
    BoundaryIntersections,
    BoundaryTerms,
    EliminatedCouplings,
    NaturalFacets,
)
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.linear_step import LinearStep
from mosaicdd.discretisation.node_equations import Equations
from mosaicdd.discretisation.periodic import places_of
from mosaicdd.discretisation.squares_of_nodes import MARGIN, SIDE, ArrayInSquares, NodeSquares
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.conductances import Conductances

_ROWS = 8  # of squares that are looked at at a time


_AT_ONCE = 256  # squares, for the cache


# Squares of a row between two that are cheaper to evaluate than to leave out (`benchmarks/holes.py`).
_GAP = 32


_Moved = tuple[np.ndarray, np.ndarray, np.ndarray]


def region_equations(discretisation: Discretisation | LinearStep, part: Part) -> Equations:
    """Return the left-hand sides of a part, as `Discretisation.equations` does.

    `ValueError` if coefficients are not sound.
    """
    if isinstance(discretisation, LinearStep):
        return discretisation.equations(part)
    medium, grid = discretisation.medium, discretisation.grid
    varies = any(field.number is None for field in medium.fields.values())
    around = discretisation.outline is not None and any(discretisation.periods)
    if varies or around or medium.couples_corners or len(part) != 2:  # squares are of planes
        return discretisation.equations(part)
    common = medium.conductances(grid, (slice(0, 3), slice(0, 3)))
    return _Whole(common, discretisation, part).equations()


class _Whole:
    """Equations that are put together.

    ``common``: the conductances between 3 x 3 nodes where nothing is near.
    """

    def __init__(self, common: Conductances, discretisation: Discretisation, part: Part):
        self._discretisation = discretisation
        self._origin = part[0].start, part[1].start
        self._shape = tuple(p.stop - p.start for p in part)
        # In whole squares, of which the last reach beyond the part.
        self._squares = tuple(-(-count // SIDE) for count in self._shape)
        size = tuple(count * SIDE for count in self._squares)
        self._active, self._reported = np.ones((2, *size), bool)
        # Conductances and volumes are kept of squares near anything: far outside, inside, and theirs.
        self._plain = [
            np.array([1.0 if number == common.axes else 0.0, values[1, 1]])
            for number, values in enumerate(common.arrays())
        ]
        self._plain.append(np.array([0.0, 1.0]))
        self._kinds = np.full(self._squares, -1)
        self._values: list[list[np.ndarray]] = [[] for _ in self._plain]
        self._count = 0
        self._ties = [NO_TIES]
        self._crossings = {name: [BoundaryIntersections.none()] for name in ("ties", "flows", "on")}
        self._natural = [NaturalFacets.none()]
        sides = ~self._inside_sides()
        near, level = (sides, None) if discretisation.outline is None else self._near(sides)
        numbers = np.argwhere(near)
        if any(discretisation.periods):
            for row in np.unique(numbers[:, 0]).tolist():
                self._put_row(row, numbers[numbers[:, 0] == row, 1])
            return
        # Those near sides first: at the others little is asked for.
        order = np.argsort(~sides[near], kind="stable")
        for batch in np.array_split(order, -(-len(order) // _AT_ONCE) or 1):
            if len(batch):
                self._put(numbers[batch], None if level is None else level[batch])

    def _near(self, sides: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Enter the squares that are far outside; return which are near anything, and the level there.

        ``sides``: which squares are near sides.
        Returns ``(rows, columns)``, and with margins ``(T, P, P)``.
        """
        near, levels, pitch = sides.copy(), [], SIDE + 2 * MARGIN
        for rows in even(len(sides), _ROWS):
            level = self._level(rows)
            there = level < 0
            inside, outside = _all_around(there), _all_around(~there)
            near[rows] = (sides[rows] | ~inside) & ~outside
            self._kinds[rows][outside] = -2
            windows = sliding_window_view(level, (pitch, pitch))[::SIDE, ::SIDE]
            levels.append(windows[near[rows]])
        y, x = np.nonzero(self._kinds == -2)
        for nodes in (self._active, self._reported):
            _by_squares(nodes)[y, :, x] = False
        return near, np.concatenate(levels)

    def _level(self, rows: slice) -> np.ndarray:
        """Return the level in some rows of squares with margins."""
        y, x = self._origin
        across = slice(x - MARGIN, x + self._squares[1] * SIDE + MARGIN)
        first, last = (y + SIDE * row for row in (rows.start, rows.stop))
        outline = self._discretisation.outline
        return outline.level((slice(first - MARGIN, last + MARGIN), across))  # type: ignore[union-attr]  # if it has one

    def _inside_sides(self) -> np.ndarray:
        """Say which squares are far from the sides of the rectangle, and from nodes without an unknown."""
        far = []
        for origin, count, cells in zip(
            self._origin, self._squares, self._discretisation.grid.shape, strict=True
        ):
            first = origin + SIDE * np.arange(count)
            far.append((first >= MARGIN) & (first + SIDE - 1 <= cells - MARGIN))
        inside = far[0][:, None] & far[1]
        beyond = tuple(
            slice(first - MARGIN, first + count * SIDE + MARGIN)
            for first, count in zip(self._origin, self._squares, strict=True)
        )
        discretisation = self._discretisation
        _, known = places_of(discretisation.known, beyond, discretisation.periods)
        # Of which squares, with their margins, each is: of two along an axis at most.
        along = [
            [((n - 2 * MARGIN) // SIDE).clip(0), (n // SIDE).clip(max=count - 1)]
            for n, count in zip(known, self._squares, strict=True)
        ]
        for y, x in itertools.product(*along):
            inside[y, x] = False
        return inside

    def _put(self, numbers: np.ndarray, level: np.ndarray | None) -> None:
        """Evaluate the equations in some squares."""
        squares = NodeSquares(numbers, self._origin, SIDE, self._discretisation.grid.shape)
        plane = None if level is None else level.swapaxes(0, 1).reshape(squares.shape)
        all_but_outermost = tuple(slice(1, count - 1) for count in squares.shape)
        equations = self._discretisation.in_squares(squares, plane).equations(all_but_outermost)
        self._keep(numbers, equations, squares.own)

        def moved(places: np.ndarray) -> _Moved:
            y, x = np.divmod(places, squares.shape[1] - 2)
            return squares.moved(y + 1, x + 1)

        self._enter_lists(equations, moved)

    def _put_row(self, row: int, columns: np.ndarray) -> None:
        """Evaluate the equations in squares of a row, those between some that are close, too."""
        ends = np.flatnonzero(np.diff(columns) > _GAP)
        for a, b in zip([0, *(ends + 1)], [*ends, len(columns) - 1], strict=True):
            place = tuple(
                slice(low * SIDE, (high + 1) * SIDE)
                for low, high in ((row, row), (columns[a], columns[b]))
            )
            ring = tuple(
                slice(p.start + first - 1, p.stop + first + 1)
                for p, first in zip(place, self._origin, strict=True)
            )
            equations = self._discretisation.equations(ring)
            numbers = np.arange(columns[a], columns[b] + 1)
            numbers = np.stack([np.full(len(numbers), row), numbers], axis=1)

            def own(values: np.ndarray, count: int = len(numbers)) -> np.ndarray:
                inner = values[1 : SIDE + 1, 1 : count * SIDE + 1]
                return inner.reshape(SIDE, count, SIDE).swapaxes(0, 1)

            self._keep(numbers, equations, own)

            def moved(places: np.ndarray, place: Part = place) -> _Moved:
                y, x = np.divmod(places, place[1].stop - place[1].start + 2)
                nodes = np.stack([y + place[0].start - 1, x + place[1].start - 1], axis=1)
                own = [(n >= p.start) & (n < p.stop) for n, p in zip(nodes.T, place, strict=True)]
                which = np.flatnonzero(own[0] & own[1])
                return which, nodes[which], np.zeros((len(which), 2), int)

            self._enter_lists(equations, moved)

    def _keep(
        self, numbers: np.ndarray, equations: Equations, own: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        """Keep what the equations are in some squares, of which ``own`` returns those of an array."""
        y, x = numbers.T
        self._kinds[y, x] = self._count + np.arange(len(numbers))
        self._count += len(numbers)
        arrays = [*equations.conductances.arrays(), equations.volumes]
        for kept, values in zip(self._values, arrays, strict=True):
            kept.append(own(values))
        _by_squares(self._active)[y, :, x] = own(equations.active)
        if equations.outlines is not None:
            _by_squares(self._reported)[y, :, x] = own(equations.outlines.reported)

    def _enter_lists(self, equations: Equations, moved: Callable[[np.ndarray], _Moved]) -> None:
        """Enter what acts on some nodes.

        ``moved``: returns which flat nodes count, what nodes of the part these are, ``(.., 2)``, and how far the
        points are off.
        """

        def within(flat: np.ndarray) -> _Moved:
            which, nodes, shift = moved(flat)
            inside = (nodes < self._shape).all(axis=1)
            return which[inside], nodes[inside] @ (self._shape[1], 1), shift[inside]

        which, nodes, _ = within(equations.ties.nodes)
        self._ties.append(equations.ties.chosen(which, nodes))
        if equations.outlines is None:
            return
        for name, kept in self._crossings.items():
            crossings = getattr(equations.outlines, name)
            which, nodes, shift = within(crossings.nodes)
            crossings = crossings.chosen(which, nodes)
            kept.append(replace(crossings, points=crossings.points + shift))
        which, nodes, shift = within(equations.outlines.natural.nodes)
        natural = equations.outlines.natural.chosen(which, nodes)
        self._natural.append(replace(natural, points=natural.points + shift))

    def equations(self) -> Equations:
        """Return all."""
        axes, nodes = len(self._shape), tuple(slice(0, n) for n in self._shape)
        edges = [
            tuple(slice(0, n - (i == axis)) for i, n in enumerate(self._shape))
            for axis in range(axes)
        ]
        places = [*edges, nodes, *edges][: len(self._plain) - 1]  # as `Conductances.arrays`
        every = zip(self._plain, self._values, (*places, nodes), strict=True)
        *arrays, volumes = [
            ArrayInSquares(self._kinds, plain, np.concatenate([*values, _alone(plain)]))[place]
            for plain, values, place in every
        ]
        active, reported = self._active[nodes], self._reported[nodes]
        outlines = None
        if self._discretisation.outline is not None:
            crossings = {
                name: BoundaryIntersections.joined(kept) for name, kept in self._crossings.items()
            }
            natural = NaturalFacets.joined(self._natural)
            outlines = BoundaryTerms(**crossings, reported=reported, natural=natural)
        along, against = tuple(arrays[:axes]), tuple(arrays[axes + 1 :])
        conductances = Conductances(along, arrays[axes], against)
        return Equations(
            conductances, active, volumes, EliminatedCouplings.joined(self._ties), outlines
        )


def _by_squares(values: np.ndarray) -> np.ndarray:
    """Return a view of whole squares by their row and column, ``(rows, side, columns, side)``."""
    rows, columns = values.shape
    return values.reshape(rows // SIDE, SIDE, columns // SIDE, SIDE)


def _alone(plain: np.ndarray) -> np.ndarray:
    """Return a square of each of some numbers."""
    return np.broadcast_to(plain[:, None, None], (len(plain), SIDE, SIDE))


def _all_around(there: np.ndarray) -> np.ndarray:
    """Say in which squares something holds at all nodes, with margins, ``(rows, columns)``."""
    for _ in range(2):
        own = there[: -2 * MARGIN].reshape(-1, SIDE, there.shape[1]).all(axis=1)
        after = [there[SIDE + node :: SIDE] for node in range(2 * MARGIN)]
        there = np.logical_and.reduce([own, *after]).T
    return there
