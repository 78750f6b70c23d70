"""Thin layers in a medium: contact resistances, and foils that conduct along themselves.

The edges of a grid that foils cross, or lie along, and what they make of their conductances.

A resistance is in series with the edges that cross its sheet, in parallel with what the sheet leaves free of their faces;
what conducts along a sheet is in parallel with the edges in it. A sheet between two middles of edges, or between two
lines of nodes, is shared out among both, linearly: nothing jumps where it is moved, and what it resists, or conducts, in
all is exact.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, Self

import numpy as np

from mosaicdd.axes import Slices, at, common, letters, others, spelled, within
from mosaicdd.grid.grid import ROUNDING, Grid
from mosaicdd.problems.fields.fields import DIFFUSION
from mosaicdd.problems.fields.given import real_array, same_values
from mosaicdd.unsupported import Unsupported


@dataclass(frozen=True)
class FoilEdges:
    """Edges along an axis, by their low nodes, that a foil covers in part.

    Parameters
    ----------
    covered
        The share of each edge's face that a resistance covers, or of its length, and width, that conducts.
    amount
        Of one over a conductance, or of a conductance, where all is covered.
    """

    axis: int
    place: Slices
    covered: np.ndarray
    amount: float
    resists: bool


def _edges_of(grid: Grid, foils: Iterable["Foil"]) -> list[FoilEdges]:
    """Return the edges that foils change, in the order of these."""
    joined: dict[tuple[bool, int, int, float], list[tuple[Slices, np.ndarray]]] = {}
    axes = len(grid.nodes)
    sheets = ((each, *sheet) for each in foils for sheet in each.sheets)
    for foil, normal, low, high in sheets:
        ends = grid.cells(np.array([low, high]))
        for axis, line, amount, resists in _changes(grid, foil, normal, float(ends[0, normal])):
            place, covered = [], []
            for along in range(axes):
                first, shares = line, np.ones(1)
                if along != normal:
                    lengths = along == axis
                    first, shares = _covered(
                        grid.shape[along], *ends[:, along], lengths=lengths, whole=resists
                    )
                place.append(slice(first, first + len(shares)))
                covered.append(shares.reshape(at(along, axes, -1, 1)))
            key = resists, axis, line * axes + normal, amount
            joined.setdefault(key, []).append((tuple(place), reduce(np.multiply, covered)))
    return [
        FoilEdges(axis, place, covered, amount, resists)
        for (resists, axis, _, amount), pieces in joined.items()
        for place, covered in _together(pieces)
    ]


def _changes(
    grid: Grid, foil: "Foil", n: int, place: float
) -> Iterator[tuple[int, int, float, bool]]:
    """Yield the edges that a foil changes: axis, place along the normal, amount, whether it resists."""
    scale, side = grid.spacing**2, grid.steps[n]
    if foil.resistance:  # the middles of edges are half a cell beside nodes
        for edge, share in _shared(place - 0.5, grid.shape[n] - 1):
            yield n, edge, share * foil.resistance * side / scale, True
    if foil.conductance:
        for line, share in _shared(place, grid.shape[n]):
            for along in others(n, len(grid.shape)):
                amount = share * foil.conductance * scale / (side * grid.steps[along] ** 2)
                yield along, line, amount, False


def _shared(place: float, last: int) -> list[tuple[int, float]]:
    """Return the whole numbers around a place, from 0 to a last one, and their shares of it."""
    place = min(max(place, 0.0), float(last))
    if abs(place - round(place)) < ROUNDING:
        return [(round(place), 1.0)]
    first = int(place)
    return [(first, first + 1 - place), (first + 1, place - first)]


def _covered(
    cells: int, low: float, high: float, *, lengths: bool, whole: bool
) -> tuple[int, np.ndarray]:
    """Return the part of an axis that a foil covers: the first edge, or node, and shares.

    ``low``, ``high``: in cells; ``lengths``: of edges, between nodes; else of the faces around nodes, where ``whole`` of what
    these have in the grid.
    """
    middle = 0.0 if lengths else 0.5
    first = max(0, int(np.floor(low + middle + ROUNDING)))
    last = min(cells - lengths, int(np.ceil(high + middle - ROUNDING)) - 1)
    begin = np.arange(first, last + 1) - middle
    end = begin + 1
    if whole:
        begin, end = begin.clip(0), end.clip(None, cells)
    shares = (np.minimum(end, high) - np.maximum(begin, low)) / (end - begin)
    return first, np.where(shares > 1 - ROUNDING, 1.0, shares)


def _together(pieces: list[tuple[Slices, np.ndarray]]) -> list[tuple[Slices, np.ndarray]]:
    """Join pieces side by side to one array of shares; pieces one on another to several."""
    ends = list(zip(*(place for place, _ in pieces), strict=True))
    whole = tuple(slice(min(p.start for p in e), max(p.stop for p in e)) for e in ends)
    layers: list[np.ndarray] = []
    for place, share in pieces:
        here = within(place, whole)
        free = (layer for layer in layers if (layer[here] + share <= 1 + ROUNDING).all())
        layer = next(free, None)
        if layer is None:
            layers.append(layer := np.zeros([p.stop - p.start for p in whole]))
        layer[here] = np.minimum(layer[here] + share, 1.0)
    return [(whole, layer) for layer in layers]


@dataclass(frozen=True)
class Foil:
    """A layer so thin that its thickness counts only in what it resists across, and conducts along itself.

    Parameters
    ----------
    where
        In the plane corners ``(x, y)`` of a line, ``(k, 2)``, whose parts each go along an axis; in space two opposite
        corners ``(x, y, z)`` of a rectangle across an axis, ``(2, 3)``; in units of domain length.
    resistance
        Of a unit of area, across: what the solution jumps by, over the flux.
    conductance
        Along: thickness times conductivity.

    Raises
    ------
    ValueError
        If corners are not finite, or do not lie along axes, or a number is negative, or both are zero.
    TypeError
        If these are no numbers.
    """

    where: Any
    resistance: float = 0.0
    conductance: float = 0.0

    def __post_init__(self) -> None:
        places = np.atleast_2d(real_array(self.where, "the place of a foil"))
        if places.ndim != 2 or len(places) < 2 or places.shape[1] not in (2, 3):
            raise ValueError(
                "a foil goes through two or more points (x, y), or from a corner (x, y, z) of a rectangle to the "
                f"opposite one, got numbers of the shape {np.shape(self.where)}"
            )
        if not np.isfinite(places).all():
            raise ValueError("a point of a foil is not finite")
        object.__setattr__(self, "where", tuple(map(tuple, places.tolist())))
        for name in ("resistance", "conductance"):
            value = float(real_array(getattr(self, name), f"the {name} of a foil"))
            if not 0 <= value < np.inf:
                raise ValueError(
                    f"the {name} of a foil must be finite and not negative, got {value:g}"
                )
            object.__setattr__(self, name, value)
        if not (self.resistance or self.conductance):
            raise ValueError("a foil needs a resistance or a conductance above 0, both are 0")
        self._require_along_axes()

    @classmethod
    def layer(cls, where: Any, thickness: float, conductivity: float) -> Self:
        """Return the foil that a layer of a thickness and a conductivity is.

        `ValueError` if one is not positive.
        """
        for name, value in (("thickness", thickness), ("conductivity", conductivity)):
            if not 0 < value < np.inf:
                raise ValueError(
                    f"the {name} of a layer must be positive and finite, got {value:g}"
                )
        return cls(where, thickness / conductivity, thickness * conductivity)

    @property
    def sheets(self) -> Iterator[tuple[int, tuple[float, ...], tuple[float, ...]]]:
        """The rectangles of the foil, in the plane lines: normal axis, low and high corner."""
        for begin, end in pairwise(self.where):
            low, high = (tuple(map(pick, begin, end))[::-1] for pick in (min, max))
            normal = next(axis for axis, (a, b) in enumerate(zip(low, high, strict=True)) if a == b)
            yield normal, low, high

    def _require_along_axes(self) -> None:
        if len(self.where[0]) == 3 and len(self.where) > 2:
            raise ValueError(
                f"a foil in space is one rectangle, by two opposite corners, got {len(self.where)}: give a foil for each"
            )
        for begin, end in pairwise(self.where):
            same = sum(a == b for a, b in zip(begin, end, strict=True))
            if same != 1:
                what = "a line along one axis: give the corners of steps"
                if len(begin) == 3:
                    what = "a rectangle across one axis: their corners share one coordinate"
                raise ValueError(
                    f"foils go along axes, and from ({spelled(begin)}) to ({spelled(end)}) is not {what}"
                )


class Foils:
    """The diffusion ``a`` of a medium with foils in it.

    Between two nodes a resistance is in series with what conducts there; what a foil conducts along itself is added to what
    conducts between the nodes on its line. On a grid a resistance is best half way between two lines of nodes, where its
    solution is of second order; elsewhere it is shared out among the edges around it, and of first order beside it. What
    conducts along a foil is best on a line of nodes.

    Parameters
    ----------
    foils
        At least one `Foil`.
    beside
        The diffusion of what lies around them: all that `Field` takes.

    Raises
    ------
    ValueError
        If there is none, or they are of different numbers of coordinates.
    TypeError
        If one is no `Foil`.
    """

    def __init__(self, foils: Iterable[Foil], beside: Any = 1.0):
        if not isinstance(foils, Iterable):
            raise TypeError(f"foils are several of the class Foil, got {type(foils).__name__}")
        self.foils = tuple(foils)
        for foil in self.foils:
            if not isinstance(foil, Foil):
                raise TypeError(f"foils are of the class Foil, got {type(foil).__name__}")
        if not self.foils:
            raise ValueError("there are no foils: give one at least, or the diffusion alone")
        sizes = {len(foil.where[0]) for foil in self.foils}
        if len(sizes) != 1:
            raise ValueError(
                "foils are of one kind, in the plane or in space, at least one, got places of "
                f"{' and '.join(map(str, sorted(sizes))) or 'no'} coordinates"
            )
        self.axes, self.beside = sizes.pop(), beside
        self._on: tuple[Grid, list[FoilEdges]] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Foils) and same_values(
            (self.foils, self.beside), (other.foils, other.beside)
        )

    def __hash__(self) -> int:
        return hash(self.foils)

    def __str__(self) -> str:
        count = len(self.foils)
        return f"{count} foil{'s' * (count > 1)} ({zlib.crc32(self.table.tobytes()):08x})"

    @cached_property
    def table(self) -> np.ndarray:
        """The rows of a file: normal, both corners in the order of axes, resistance and conductance."""
        return np.array(
            [
                [normal, *low, *high, foil.resistance, foil.conductance]
                for foil in self.foils
                for normal, low, high in foil.sheets
            ]
        )

    @classmethod
    def of_table(cls, table: np.ndarray, beside: Any) -> Self:
        """Return foils from the rows of a file, `table`."""
        axes = (table.shape[1] - 3) // 2
        rows = [(row[1 : 1 + axes], row[1 + axes : 1 + 2 * axes], row[-2:]) for row in table]
        return cls([Foil((low[::-1], high[::-1]), *both) for low, high, both in rows], beside)

    def at_time(self, t: float, beside: Any) -> Self:
        """Return the foils in the diffusion at a time; themselves if that is the same."""
        return self if beside is self.beside else self.among(beside)

    def among(self, beside: Any) -> Self:
        """Return the foils in another diffusion."""
        return type(self)(self.foils, beside)

    def require_grid(self, grid: Grid) -> None:
        """Check that foils lie in a grid, and that none resists along its sides."""
        axes = len(grid.shape)
        for foil in self.foils:
            for place in foil.where:
                grid.require_inside(place, "the foil through ({}) reaches out")
            for normal, low, _ in foil.sheets:
                at = grid.cells(low)[normal]
                if foil.resistance and not 0 < at < grid.shape[normal]:
                    raise ValueError(
                        f"the foil at {letters(axes)[normal]} = {low[normal]:g} resists along a side of the domain: give the "
                        f"side an exchange instead, Robin({1 / foil.resistance:g}, ..), or move it inside"
                    )

    def change(self, grid: Grid, part: Slices, axis: int, k: Any, faces: Any, of: Any = np) -> None:
        """Change the conductances of edges along an axis between the nodes of a part.

        ``faces``: what the domain has of their faces, of the same shape; ``of``: the module of the arrays.

        `ValueError` if a foil lies outside of the domain there.
        """
        if self._on is None or self._on[0] != grid:
            self._on = grid, _edges_of(grid, self.foils)
        between = tuple([slice(p.start, p.stop - (along == axis)) for along, p in enumerate(part)])
        for edges in self._on[1]:
            both = common(between, edges.place)
            if edges.axis != axis or any(p.start >= p.stop for p in both):
                continue
            place = within(both, between)
            covered: Any = edges.covered[within(both, edges.place)]
            face, before = faces[place], 1.0 * k[place]
            self._require_inside(grid, part, place, covered, face)
            covered = of.asarray(covered)
            if edges.resists:  # where the domain has no face the conductance is zero
                none = (face == 0) * 1.0
                series = covered * before * face / (face + edges.amount * before + none)
                k[place] = (1.0 - covered) * before + series
            else:
                k[place] = before + covered * edges.amount * (before > 0)

    def _require_inside(
        self, grid: Grid, part: Slices, place: Slices, covered: np.ndarray, faces: Any
    ) -> None:
        """Check that no foil covers the whole face of an edge outside of the domain."""
        outside = (covered == 1.0) & np.asarray(faces == 0)
        if outside.any():
            first = np.argwhere(outside)[0]
            node = [p.start + q.start + i for p, q, i in zip(part, place, first, strict=True)]
            at = spelled(grid.at(node).tolist()[::-1])
            raise ValueError(
                f"a foil goes through a hole, or out of the domain, near ({at}): let it end at the outline"
            )


def require_foils(fields: Mapping[str, Any], *, linear: bool, name: str) -> None:
    """Check that foils are given as the diffusion, and in a ``linear`` equation.

    ``name``: of the equation.
    """
    for field in [field for field, values in fields.items() if isinstance(values, Foils)]:
        if field not in DIFFUSION:
            raise ValueError(f"foils lie in the diffusion, a, got them as the field {field}")
        if not linear:
            raise Unsupported(
                f"foils lie in media of linear equations, as diffusion and heat, {name} is none: leave them out"
            )
