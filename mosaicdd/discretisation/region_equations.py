"""The equations of a large part of a grid, evaluated where they differ from the common one.

With constant coefficients most nodes have the same equation: those inside the domain with all nodes
around them, away from the sides of the rectangle. Most others lie outside, and have none. What is left,
along outlines and sides, is evaluated in squares, many at a time.
"""

import itertools
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mosaicdd.axes import all_of, even, sizes
from mosaicdd.discretisation.crossings import (
    NO_TIES,
    BoundaryIntersections,
    BoundaryTerms,
    EliminatedCouplings,
    NaturalFacets,
    NodeTerms,
)
from mosaicdd.discretisation.discretisation import Discretisation
from mosaicdd.discretisation.node_equations import Equations, LinearEquations
from mosaicdd.discretisation.periodic import places_of
from mosaicdd.discretisation.squares_of_nodes import MARGIN, SIDE, ArrayInSquares, NodeSquares
from mosaicdd.problems.fields.fields import Part, Periods
from mosaicdd.problems.operators.conductances import Conductances

_ROWS = 8  # of squares that are looked at at a time
_AT_ONCE = 256  # squares, for the cache


def region_equations(
    discretisation: LinearEquations, part: Part, periods: Periods | None = None
) -> Equations:
    """Return the left-hand sides of a part, as `LinearEquations.equations` does.

    `ValueError` if coefficients are not sound.
    """
    if isinstance(discretisation, Discretisation) and periods in (None, discretisation.periods):
        common = discretisation.uniform_conductances()
        if common is not None:
            return _Region(common, discretisation, part).equations()
    return discretisation.equations(part, periods)


Terms = TypeVar("Terms", bound=NodeTerms)


class _Region:
    """The equations of a part of a plane, put together from squares.

    ``common``: the conductances between 3 x 3 nodes where nothing is near.
    """

    def __init__(self, common: Conductances, discretisation: Discretisation, part: Part):
        self._discretisation = discretisation
        self._origin = part[0].start, part[1].start
        self._shape = sizes(part)
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
        self._ties, self._outlines = [NO_TIES], list[BoundaryTerms]()
        sides = ~self._inside_sides()
        near, level = (sides, None) if discretisation.outline is None else self._near(sides)
        numbers = np.argwhere(near)
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
            within = level < 0
            inside, outside = _all_around(within), _all_around(~within)
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
        """Say which squares are far from sides and from nodes without an unknown."""
        far = []
        discretisation = self._discretisation
        of_grid = discretisation.grid.shape, discretisation.periods
        for origin, count, cells, period in zip(self._origin, self._squares, *of_grid, strict=True):
            first = origin + SIDE * np.arange(count)
            between = (first >= MARGIN) & (first + SIDE - 1 <= cells - MARGIN)
            far.append(between | (period is not None))
        inside = far[0][:, None] & far[1]
        beyond = tuple(
            slice(first - MARGIN, first + count * SIDE + MARGIN)
            for first, count in zip(self._origin, self._squares, strict=True)
        )
        _, held = places_of(discretisation.known, beyond, discretisation.periods)
        # Of which squares, with their margins, each is: of two along an axis at most.
        along = [
            [((n - 2 * MARGIN) // SIDE).clip(0), (n // SIDE).clip(max=count - 1)]
            for n, count in zip(held, self._squares, strict=True)
        ]
        for y, x in itertools.product(*along):
            inside[y, x] = False
        return inside

    def _put(self, numbers: np.ndarray, level: np.ndarray | None) -> None:
        """Evaluate the equations in some squares, and enter them."""
        of = self._discretisation
        squares = NodeSquares(numbers, self._origin, of.grid.shape, of.periods, level)
        equations = of.in_squares(squares)
        y, x = numbers.T
        self._kinds[y, x] = self._count + np.arange(len(numbers))
        self._count += len(numbers)
        arrays = [*equations.conductances.arrays(), equations.volumes]
        for entered, values in zip(self._values, arrays, strict=True):
            entered.append(squares.without_margins(values))
        _by_squares(self._active)[y, :, x] = squares.without_margins(equations.active)

        def entered_at(acting: Terms) -> Terms:
            places = np.stack(np.divmod(acting.nodes, squares.shape[1] - 2), axis=1) + 1
            which, nodes = squares.in_pattern(places)
            inside = (nodes < self._shape).all(axis=1)
            return acting.chosen(which[inside], nodes[inside] @ (self._shape[1], 1))

        self._ties.append(entered_at(equations.ties))
        if (outlines := equations.outlines) is not None:
            _by_squares(self._reported)[y, :, x] = squares.without_margins(outlines.reported)
            self._outlines.append(outlines.each(entered_at, self._reported))

    def equations(self) -> Equations:
        """Return the equations of all nodes of the part."""
        axes, nodes = len(self._shape), all_of(self._shape)
        edges = [
            tuple(slice(0, n - (i == axis)) for i, n in enumerate(self._shape))
            for axis in range(axes)
        ]
        places = [*edges, nodes, *edges][: len(self._plain) - 1]  # as `Conductances.arrays`
        stored = zip(self._plain, self._values, (*places, nodes), strict=True)
        *arrays, volumes = [
            ArrayInSquares(self._kinds, plain, np.concatenate([*values, _alone(plain)]))[place]
            for plain, values, place in stored
        ]
        active, reported = self._active[nodes], self._reported[nodes]
        outlines = None
        if self._discretisation.outline is not None:
            none = BoundaryIntersections.none()
            terms = [*self._outlines, BoundaryTerms(none, NaturalFacets.none(), none, reported)]
            outlines = BoundaryTerms(
                BoundaryIntersections.joined([part.ties for part in terms]),
                NaturalFacets.joined([part.natural for part in terms]),
                BoundaryIntersections.joined([part.on for part in terms]),
                reported,
            )
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
    """Say in which squares, with margins, all nodes are true, ``(rows, columns)``."""
    for _ in range(2):
        whole = there[: -2 * MARGIN].reshape(-1, SIDE, there.shape[1]).all(axis=1)
        after = [there[SIDE + node :: SIDE] for node in range(2 * MARGIN)]
        there = np.logical_and.reduce([whole, *after]).T
    return there
