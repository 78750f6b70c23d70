"""The edges of a grid that foils cross, or lie along, and what they make of their conductances.

A resistance is in series with the edges that cross its sheet, in parallel with what the sheet leaves free of their faces;
what conducts along a sheet is in parallel with the edges in it. A sheet between two middles of edges, or between two
lines of nodes, is shared out among both, linearly: nothing jumps where it is moved, and what it resists, or conducts, in
all is exact.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from mosaicdd.axes import Slices, at, common, others, within
from mosaicdd.grid.grid import ROUNDING, Grid


@dataclass(frozen=True)
class Sheet:
    """A rectangle of a foil, in the plane a line, by two opposite corners in units of domain length, in the order of axes.

    ``normal``: the axis along which both corners are at the same place; ``resistance`` and ``conductance`` are those of
    its foil.
    """

    normal: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    resistance: float
    conductance: float


@dataclass(frozen=True)
class FoilEdges:
    """Edges along an axis, by their low nodes, each covered in part.

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

    def changed(self, k: Any, faces: Any, covered: Any) -> Any:
        """Return what conductances become, in arrays of numpy's or torch's.

        ``faces``: what the domain has of the edges' faces; where it has nothing conductances are zero.
        """
        if not self.resists:
            return k + covered * self.amount * (k > 0)
        none = (faces == 0) * 1.0
        return (1.0 - covered) * k + covered * k * faces / (faces + self.amount * k + none)

    def of_part(self, part: Slices) -> tuple[Slices, np.ndarray] | None:
        """Return which edges between the nodes of a part these are, and how much is covered; None without any."""
        edges = tuple(slice(p.start, p.stop - (axis == self.axis)) for axis, p in enumerate(part))
        both = common(edges, self.place)
        if any(p.start >= p.stop for p in both):
            return None
        return within(both, edges), self.covered[within(both, self.place)]


def edges_of(grid: Grid, sheets: Iterable[Sheet]) -> tuple[FoilEdges, ...]:
    """Return the edges that sheets change, in the order of these."""
    joined: dict[tuple[bool, int, int, float], list[tuple[Slices, np.ndarray]]] = {}
    for sheet in sheets:
        for axis, line, amount, resists in _changes(grid, sheet):
            place, covered = [], []
            for along, _count in enumerate(grid.nodes):
                first, shares = (
                    (line, np.ones(1))
                    if along == sheet.normal
                    else _covered(grid, sheet, along, lengths=along == axis, whole=resists)
                )
                place.append(slice(first, first + len(shares)))
                covered.append(shares.reshape(at(along, len(grid.nodes), -1, 1)))
            key = resists, axis, line * len(grid.nodes) + sheet.normal, amount
            joined.setdefault(key, []).append((tuple(place), reduce(np.multiply, covered)))
    return tuple(
        FoilEdges(axis, place, covered, amount, resists)
        for (resists, axis, _, amount), pieces in joined.items()
        for place, covered in _together(pieces)
    )


def _changes(grid: Grid, sheet: Sheet) -> Iterator[tuple[int, int, float, bool]]:
    """Yield which edges a sheet changes: their axis, their place along its normal, by how much and whether it resists."""
    n, scale = sheet.normal, grid.spacing**2
    place, side = float(grid.cells(sheet.low)[n]), grid.steps[n]
    if sheet.resistance:  # the middles of edges are half a cell beside nodes
        for edge, share in _shared(place - 0.5, grid.shape[n] - 1):
            yield n, edge, share * sheet.resistance * side / scale, True
    if sheet.conductance:
        for line, share in _shared(place, grid.shape[n]):
            for along in others(n, len(grid.shape)):
                amount = share * sheet.conductance * scale / (side * grid.steps[along] ** 2)
                yield along, line, amount, False


def _shared(place: float, last: int) -> list[tuple[int, float]]:
    """Return the whole numbers around a place, from 0 to a last one, and their shares of it."""
    place = min(max(place, 0.0), float(last))
    if abs(place - round(place)) < ROUNDING:
        return [(round(place), 1.0)]
    first = int(place)
    return [(first, first + 1 - place), (first + 1, place - first)]


def _covered(
    grid: Grid, sheet: Sheet, along: int, *, lengths: bool, whole: bool
) -> tuple[int, np.ndarray]:
    """Return what a sheet covers along an axis: the first edge, or node, and shares from there on.

    ``lengths``: of edges, between nodes; else of the faces around nodes, where ``whole`` of what these have in the grid.
    """
    cells = grid.shape[along]
    low, high = (float(grid.cells(end)[along]) for end in (sheet.low, sheet.high))
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
    """Return the place of pieces side by side, and what they cover of it together; of those one on another each its own."""
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
