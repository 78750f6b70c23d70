"""A condition, and the part of a domain's outline where it holds.

Values that are given inside of a domain: at nodes, along lines, or wherever a formula holds.

A place is known to a grid by the nodes that it has there: of a line those nearest to it, one for each step along the
axis that it goes most along, so that no edge of the grid crosses it between two of them.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mosaicdd.axes import in_rows, letters, others, spelled
from mosaicdd.grid.grid import ROUNDING, Grid
from mosaicdd.problems.fields.evaluated import evaluate, expression_at
from mosaicdd.problems.fields.fields import Periods
from mosaicdd.problems.fields.given import (
    as_mask,
    is_one_each,
    real_array,
    require_place,
    same_values,
    shape_of,
    usable,
)
from mosaicdd.problems.shapes.outline import OutlinePiece, name_of_side, side_names, sides
from mosaicdd.problems.shapes.shape import Shape
from mosaicdd.problems.sides.conditions import Condition, Dirichlet, Neumann, Values
from mosaicdd.settings import concerning, unknown
from mosaicdd.unsupported import Unsupported

_AT_ONCE = 2**20  # nodes at which a formula is evaluated at once
_WHERE = "the place of what is held"


@dataclass(frozen=True, eq=False)
class HeldPlace:
    """Nodes of a grid, by a formula, a mask, points of a line, or the nodes themselves.

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
        """Return the nodes in a domain, ``(K, axes)``, row by row; on both of periodic sides."""
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
    """Return the place of nodes at points, as files hold them, ``(K, axes)``, (x, y)."""
    return HeldPlace(points, f"{len(points)} nodes", _nodes_at)


def _nodes_at(points: np.ndarray, grid: Grid) -> np.ndarray:
    return np.rint(grid.cells(points[:, ::-1])).astype(int)


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
    """Return the place of the nodes where an array is true; ``labelled``: what has its coordinates, if any."""
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
    """Return the nodes nearest to a line through points, ``(k, axes)``, (x, y); of one point that nearest to it."""
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
    """``u = values`` inside of the domain, at nodes: what flows into them is a `flow` by the name in ``sides``.

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
    """Return the nearest whole numbers, half way always the lower ones: a line of them has no gaps."""
    return np.floor(places + 0.5 - ROUNDING).astype(int)


_NAME = re.compile(r"(\w+)(?:\[([^\[\]]*:[^\[\]]*)\])?")
_OUTLINE = re.compile(r"outline|outer|hole[1-9]\d*")
_OWN_NAME = re.compile(r"\w[\w .-]*")
_CHOSEN = re.compile(rf"({_OUTLINE.pattern})\[(.*)\]")
EXAMPLES = {2: "0:0.5", 3: "0:0.5, :0.3"}
"""Of parts of sides, by the number of axes of the domain."""

Intervals = tuple[tuple[float, float], ...]
"""From one coordinate to another along each axis of a side, in units of domain length; empty for all of it."""


def is_outline(name: str) -> bool:
    """Say whether a name is one of outlines of a shape, no side of the rectangle."""
    return _OUTLINE.fullmatch(name) is not None


@dataclass(frozen=True)
class SidePart:
    """A condition and where it holds."""

    name: str  # of the piece
    condition: Condition
    along: Intervals = ()  # of a side, in the order of the axes
    where: str = ""  # an expression in the coordinates, true where it holds, on an outline
    noun: str = "the side"
    given: str = field(default="", compare=False)  # the name that it was read from

    @cached_property
    def whole(self) -> bool:
        """Whether it is all of the piece."""
        return not (self.along or self.where)

    @cached_property
    def inside(self) -> Held | None:
        """The condition if it holds inside of the domain, on no piece of the outline."""
        return self.condition if isinstance(self.condition, Held) else None

    @property
    def called(self) -> str:
        """What messages call it."""
        return f"what is held as {self}" if self.inside else f"{self.noun} {self}"

    @cached_property
    def values(self) -> Any:
        """What is given; of a periodic side by how much the solution jumps."""
        return self.condition.values

    @cached_property
    def alpha(self) -> Any:
        """Of a Robin condition, as it was given, else 0."""
        return self.condition.exchange

    @property
    def each(self) -> list[Any]:
        """The values of each of several problems, where these are functions and texts; else all in one."""
        return [*self.values] if is_one_each(self.values) else [self.values]

    def problems(self, axes: int) -> int:
        """Return of how many problems the values are, in a domain of so many axes."""
        shape = (len(self.each), *shape_of(self.values))
        return shape[1] if len(shape) - 1 == (2 if self.inside else axes) else shape[0]

    @property
    def exchanging(self) -> "SidePart":
        """The same part with ``alpha`` as its values."""
        return dataclasses.replace(
            self, condition=Neumann(self.alpha), noun=f"alpha of {self.noun}"
        )

    def same_as(self, other: "SidePart") -> bool:
        """Say whether the same condition holds, of the same values."""
        alike = type(self.condition) is type(other.condition)
        return alike and _equal(self.values, other.values) and _equal(self.alpha, other.alpha)

    def __str__(self) -> str:
        if self.where:
            return f"{self.name}[{self.where}]"
        if self.whole:
            return self.name
        ends = [["" if math.isinf(end) else _shortest(end) for end in ends] for ends in self.along]
        return f"{self.name}[{', '.join(map(':'.join, ends[::-1]))}]"

    @property
    def as_given(self) -> str:
        """The name that it was given by; of a whole piece that of the piece."""
        return str(self) if self.whole else self.given or str(self)


def _shortest(number: float) -> str:
    """Return the fewest digits that are read as this number."""
    return repr(number).removesuffix(".0")


def _equal(values: Any, others: Any) -> bool:
    return values is others or (isinstance(values, float | int | str) and bool(values == others))


def part_of_name(name: str, condition: Condition, axes: int = 2) -> SidePart:
    """Read the name of a piece, or of a part of a side or of an outline; raise `ValueError` if it is none, or empty.

    What is held inside has any other name.
    """
    if isinstance(condition, Held):
        if _OWN_NAME.fullmatch(str(name)) is None or name in side_names(3) or is_outline(name):
            raise ValueError(
                f"what is held inside of the domain has a name of its own, as river, no side's: got {name!r}"
            )
        return SidePart(name, condition)
    chosen = _CHOSEN.fullmatch(str(name))
    if chosen is not None:
        where = expression_at(chosen[2].strip(), axes)
        return SidePart(chosen[1], condition, where=where.text, given=str(name))
    match = _NAME.fullmatch(str(name))
    whole = match is not None and match[2] is None
    if match is None or not (match[1] in side_names(axes) or (whole and is_outline(match[1]))):
        raise ValueError(
            unknown(
                "side",
                name,
                (*side_names(axes), "outline", "outer", "hole1", "hole2"),
                f", .. (the last four of a domain that is no rectangle), and parts as left[{EXAMPLES[axes]}], outline[x > 1]",
            )
        )
    along = () if whole else _intervals(match[1], match[2], axes)
    return SidePart(match[1], condition, along, given=str(name))


def _intervals(side: str, text: str, axes: int) -> Intervals:
    """Read the part of a side; raise `ValueError` if it is none."""
    along, name = others(side_names(axes)[side][0], axes), f"{side}[{text}]"
    parts = text.split(",")
    if len(parts) != len(along):
        way = " and ".join(letters(axes)[axis] for axis in reversed(along))
        raise ValueError(
            f"the part {name} of a side along {way} needs {len(along)} intervals, got {len(parts)}: as in "
            f"{side}[{EXAMPLES[axes]}], where : alone is all"
        )
    intervals = []
    for part in reversed(parts):
        low, _, high = part.partition(":")
        try:
            ends = float(low.strip() or -math.inf), float(high.strip() or math.inf)
        except ValueError:
            ends = math.nan, math.nan
        if not ends[0] < ends[1]:
            raise ValueError(f"the part {name} must go from a number to a larger one")
        intervals.append(ends)
    return tuple(intervals) if np.isfinite(intervals).any() else ()


def common(intervals: Intervals, other: Intervals) -> Intervals | None:
    """Return what two parts of a side have in common; None if it is nothing."""
    if not (intervals and other):
        return intervals or other
    both = zip(intervals, other, strict=True)
    ends = tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in both)
    return ends if all(low < high for low, high in ends) else None


@concerning("sides")
def require_conditions(parts: Sequence[SidePart], axes: int = 2) -> None:
    """Check that all have conditions, that these do not overlap, and that periodic sides are pairs; else raise."""
    for part in parts:
        if not isinstance(part.condition, Condition):
            raise TypeError(
                f"the side {part} must be Dirichlet, Neumann, Robin or Periodic, got "
                f"{type(part.condition).__name__}"
            )
    _require_pairs(parts, axes)
    for i, part in enumerate(parts):
        for before in parts[:i]:
            # A part comes before the whole.
            alike = part.name == before.name and part.whole == before.whole and not part.where
            if alike and common(part.along, before.along) is not None:
                raise ValueError(f"the sides {before} and {part} overlap; give every part once")


def _require_pairs(parts: Sequence[SidePart], axes: int) -> None:
    periodic = [part for part in parts if part.condition.periodic]
    for part in periodic:
        if not part.whole:
            raise ValueError(f"{part} is periodic: a side is so as a whole, or not at all")
    names = {part.name: part for part in periodic if not is_outline(part.name)}
    for axis, end in sides(axes):
        have, lack = (name_of_side((axis, which), axes) for which in (end, 1 - end))
        if have in names and lack not in names:
            raise ValueError(
                f"the side {have} is periodic, the side {lack} is not; give both of the pair"
            )
        if have in names and names[have].values != names[lack].values:
            raise ValueError(
                f"the side {have} jumps by {names[have].values:g}, the side {lack} by {names[lack].values:g}; "
                "give both of the pair the same: what the solution is larger by at the higher side"
            )
    for part in parts:
        if part.name in names and not part.condition.periodic:
            raise ValueError(f"the side {part.name} is periodic, so nothing else holds on {part}")


def part_on_outline(parts: Sequence[SidePart], name: str) -> SidePart | None:
    """Return what holds on an outline of a shape, or on a part of one; None where nothing is said of it."""
    named = {str(part): part for part in parts}
    return named.get(name, named.get("outline"))


def require_outlines(parts: Sequence[SidePart], names: Sequence[str]) -> None:
    """Raise `ValueError` unless a domain has all outlines that conditions are for.

    ``names``: of all that it has, besides ``outline`` for all; empty for a rectangle.
    """
    for part in parts:
        if is_outline(part.name) and part.name not in ("outline", *names):
            has = f"its outlines are {', '.join(names)}" if names else "it is a rectangle"
            raise ValueError(f"the domain has no outline {part.name}: {has}")


@concerning("sides")
def require_reached(
    parts: Sequence[SidePart], pieces: Mapping[str, OutlinePiece], outlines: Sequence[str]
) -> None:
    """Raise `ValueError` where a side has a condition of its own, but an outline runs along it, whose own holds there.

    ``pieces``: what a shape has of the sides; ``outlines``: the names of the outlines.
    """
    on_outlines = [part_on_outline(parts, name) for name in outlines]
    for part in parts:
        replaced = part.name in pieces and pieces[part.name].replaced
        if replaced and not all(other and part.same_as(other) for other in on_outlines):
            raise ValueError(
                f"the side {part}: the outline of the domain runs along this side, and what is said "
                f"of the outline holds there; name {' or '.join(outlines)} in its place"
            )


@concerning("sides")
def require_no_periodic_outline(parts: Sequence[SidePart]) -> None:
    """Raise `Unsupported` where something else than a side of the rectangle is periodic."""
    for part in parts:
        if is_outline(part.name) and part.condition.periodic:
            raise Unsupported(
                f"the side {part} is periodic: an outline has a value, a flux or an exchange, only the "
                "sides of the rectangle may be periodic; name them"
            )
