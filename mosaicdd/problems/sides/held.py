"""Values prescribed inside of a domain: at points, along lines, by formulas or masks.

A place is known to a grid by the nodes that it has there: of a line those nearest to it, one for each step along the
axis that it goes most along, so that no edge of the grid crosses it between two of them.
"""

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from mosaicdd.axes import in_rows, spelled
from mosaicdd.grid.grid import ROUNDING, Grid
from mosaicdd.problems.fields.evaluated import evaluate
from mosaicdd.problems.fields.fields import Periods
from mosaicdd.problems.fields.given import as_mask, real_array, require_place, same_values, usable
from mosaicdd.problems.shapes.shape import Shape
from mosaicdd.problems.sides.conditions import Dirichlet, Values
from mosaicdd.settings import concerning

_AT_ONCE = 2**20  # nodes at which a formula is evaluated at once
_WHERE = "the place of what is held"


@dataclass(frozen=True, eq=False)
class HeldPlace:
    """A set of grid nodes by a formula, a mask, or points.

    Parameters
    ----------
    place
        The formula, mask or points that a user gave.
    text
        For messages.
    find
        ``find(place, grid)``: the nodes ``(K, axes)``; `ValueError` or `TypeError` where there are none on such a grid.
    """

    place: Any
    text: str
    find: Callable[[Any, Grid], np.ndarray]
    _kept: list[tuple[Any, np.ndarray]] = field(default_factory=list, repr=False)

    def __eq__(self, other: object) -> bool:
        places = [(p.text, p.place) for p in (self, other) if isinstance(p, HeldPlace)]
        return len(places) == 2 and same_values(*places)

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def nodes(self, grid: Grid, shape: Shape | None, periods: Periods) -> np.ndarray:
        """Return the nodes in a domain, ``(K, axes)``, row by row, with periodic copies."""
        key = grid, shape, periods
        if not self._kept or self._kept[0][0] != key:
            nodes = self.find(self.place, grid)
            for axis, period in enumerate(periods):
                ends = [] if period is None else [(0, period), (period, -period)]
                for end, step in ends:
                    copies = nodes[nodes[:, axis] == end]
                    copies[:, axis] += step
                    nodes = np.concatenate([nodes, copies])
            nodes = np.unique(nodes, axis=0)
            if shape is not None and len(nodes):
                nodes = nodes[_inside(shape, grid, nodes)]
            self._kept[:] = [(key, nodes)]
        return self._kept[0][1]


def nodes_at(points: np.ndarray) -> HeldPlace:
    """Return the place of nodes at points ``(K, axes)``, (x, y), as in files."""
    return HeldPlace(
        points,
        f"{len(points)} nodes",
        lambda at, grid: np.rint(grid.cells(at[:, ::-1])).astype(int),
    )


def _nodes_where(formula: Any, grid: Grid) -> np.ndarray:
    """Return all nodes where an expression or a function of the coordinates is true."""
    nodes = []
    for part in in_rows(tuple(slice(0, count) for count in grid.nodes), _AT_ONCE):
        along = np.meshgrid(*grid.places(part), indexing="ij", sparse=True)
        try:
            holds = evaluate(formula, along, _WHERE)
        except ValueError as error:
            raise ValueError(
                f"{error}; a place is points, as 0,1 2,1.5, a formula, as x < 1, or a file, and a name stands before a "
                "colon"
            ) from None
        nodes.append(np.argwhere(holds) + [p.start for p in part])
    return np.concatenate(nodes)


def _mask_of(values: Any, labelled: Any = None) -> HeldPlace:
    """Return the place of the true nodes of a mask, whose coordinates ``labelled`` may have."""
    mask = as_mask(values, _WHERE).copy()
    find = functools.partial(_nodes_of_mask, labelled)
    return HeldPlace(mask, f"{int(mask.sum())} nodes of a mask", find)


def _nodes_of_mask(labelled: Any, mask: np.ndarray, grid: Grid) -> np.ndarray:
    if mask.shape != grid.nodes:
        raise ValueError(
            f"the mask of what is held has the shape {mask.shape}, the domain has {grid.nodes} nodes"
        )
    require_place(labelled, grid, "the mask of what is held")
    return np.argwhere(mask)


def _nodes_of_line(points: np.ndarray, grid: Grid) -> np.ndarray:
    """Return the nodes nearest to a line through points ``(k, axes)``, or to one point."""
    for place in points:
        grid.require_inside(place, "the point ({}) of what is held is outside")
    corners = grid.cells(points[:, ::-1])
    nodes = [_nearest(corners)]
    for first, last in itertools.pairwise(corners):
        most = int(np.argmax(abs(last - first)))
        low, high = sorted((first[most], last[most]))
        steps = np.arange(math.ceil(low - ROUNDING), math.floor(high + ROUNDING) + 1)
        if len(steps) and high > low:
            share = (steps - first[most]) / (last[most] - first[most])
            nodes.append(_nearest(first + share[:, None] * (last - first)))
    return np.concatenate(nodes).clip(0, grid.shape)


@dataclass(frozen=True, eq=False, init=False)
class Held(Dirichlet):
    """``u = values`` at nodes inside of the domain, whose inflow is a `flow` by name.

    Parameters
    ----------
    where
        Points of a line ``(k, 2)``, (x, y), in space ``(k, 3)``, in units of domain length, whose nearest nodes are held;
        of one point ``(x, y)`` that one; an expression in the coordinates, or a function of them, true where values
        are held; or a mask of nodes ``(ny + 1, nx + 1)``, of true and false or 1 and 0. What is outside of a domain's shape is left out.
    values
        A number, a function, an expression, or an array ``(K,)`` of the nodes held, row by row, of several problems
        ``(n, K)``.

    Raises
    ------
    ValueError
        If points are not finite, or rows of other than two or three numbers.
    TypeError
        If the place is none of these.
    """

    inside: ClassVar[bool] = True
    where: Any = None

    def __init__(self, where: Any, values: Values = 0.0):
        object.__setattr__(self, "where", _place_of(where))
        object.__setattr__(self, "values", values)
        self.__post_init__()


@concerning("sides")
def _place_of(where: Any) -> HeldPlace:
    if isinstance(where, HeldPlace):
        return where
    if isinstance(where, str):
        formula = where.removeprefix("expr:")
        return HeldPlace(formula, formula.strip(), _nodes_where)
    if callable(where):
        return HeldPlace(where, "where a function is true", _nodes_where)
    where = usable(where, _WHERE)
    if "bool" in str(getattr(where, "dtype", "")) or hasattr(where, "dims"):
        return _mask_of(where, where)
    points = np.atleast_2d(real_array(where, _WHERE))
    rows = points.ndim == 2 and (len(points) == 1 or points.shape[1] in (2, 3))
    if points.ndim in (2, 3) and not rows and np.isin(points, (0.0, 1.0)).all():
        return _mask_of(where)
    if points.ndim != 2 or not len(points) or points.shape[1] not in (2, 3):
        raise ValueError(
            "values are held along points, rows (x, y) or (x, y, z), where an expression or a function is true, or by a "
            f"mask of nodes that is true or false; got numbers of the shape {np.shape(where)}"
        )
    if not np.isfinite(points).all():
        raise ValueError("a point of what is held is not finite")
    text = f"({spelled(points[0])})"
    if len(points) > 1:
        text = f"the line through {len(points)} points from {text}"
    return HeldPlace(points, text, _nodes_of_line)


def _inside(shape: Shape, grid: Grid, nodes: np.ndarray) -> np.ndarray:
    """Say which nodes, row by row, a shape has."""
    inside = np.zeros(len(nodes), bool)
    box = tuple(slice(int(n.min()), int(n.max()) + 1) for n in nodes.T)
    for part in in_rows(box, _AT_ONCE):
        low, high = np.searchsorted(nodes[:, 0], [part[0].start, part[0].stop])
        if high > low:
            at = nodes[low:high] - [p.start for p in part]
            inside[low:high] = shape.inside(shape.level(grid, part))[tuple(at.T)]
    return inside


def _nearest(places: np.ndarray) -> np.ndarray:
    """Round to whole numbers, halves down, so that nodes of a line have no gaps."""
    return np.floor(places + 0.5 - ROUNDING).astype(int)
