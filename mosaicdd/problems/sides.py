"""What holds on every piece of the outline, made from what people give as sides.

A condition belongs to a piece, or to a part of a side, as ``left[0:0.5]``, from one coordinate along it
to another. Where nothing is said a value is given: zero, or that of boundary data for all edges. A node
that two conditions claim has a given value if one of them gives it; of two given values it has the mean,
and natural conditions add up, each with its own length.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.conditions import Condition, Dirichlet, Neumann, Periodic, Robin
from mosaicdd.problems.fields import evaluate, real_array, require_finite
from mosaicdd.problems.outline import SIDES, Piece, rectangle_outline

_NAME = re.compile(r"(\w+)(?:\[([^:\]]*):([^:\]]*)\])?")
_ROUNDING = 1e-6  # cells by which the end of a part may miss a node


@runtime_checkable
class Data(Protocol):
    """Values on all edges that are made when the grid is known.

    Attributes
    ----------
    problems
        Of how many problems.
    """

    @property
    def problems(self) -> int: ...  # noqa: D102 - said above

    def boundaries(self, grid: Grid) -> list[Boundary]:
        """Return the values of each problem on the edges of a grid."""
        ...


@dataclass(frozen=True)
class Part:
    """A condition and where it holds.

    Parameters
    ----------
    name
        Of the piece.
    low, high
        Coordinates along it, in units of domain length.
    """

    name: str
    condition: Condition
    low: float = 0.0
    high: float = math.inf

    @property
    def whole(self) -> bool:
        """Whether it is all of the piece."""
        return (self.low, self.high) == (0.0, math.inf)

    @property
    def values(self) -> Any:
        """What is given; zero of a periodic side."""
        return 0.0 if isinstance(self.condition, Periodic) else self.condition.values

    @property
    def alpha(self) -> float:
        """Of a Robin condition, else 0."""
        return self.condition.alpha if isinstance(self.condition, Robin) else 0.0

    def __str__(self) -> str:
        return self.name if self.whole else f"{self.name}[{self.low:g}:{self.high:g}]"


def part_of_name(name: str, condition: Condition) -> Part:
    """Read the name of a piece, or of a part of a side.

    Raises
    ------
    ValueError
        If it is neither, or the part is empty.
    """
    found = _NAME.fullmatch(str(name))
    if found is None or found[1] not in SIDES:
        raise ValueError(
            f"unknown side {name!r}; known: {', '.join(SIDES)}, and parts of them as left[0:0.5]"
        )
    if found[2] is None:
        return Part(found[1], condition)
    try:
        low, high = float(found[2] or 0.0), float(found[3] or math.inf)
    except ValueError:
        low = high = math.nan
    if not 0 <= low < high:
        raise ValueError(f"the part {name} must go from a number >= 0 to a larger one")
    return Part(found[1], condition, low, high)


@dataclass(frozen=True)
class OutlineValues:
    """What the conditions say at the nodes of the outline, of ``n`` problems or of all alike.

    Parameters
    ----------
    known
        Nodes whose values are given, ``(K, 2)``, each once.
    values
        ``(n or 1, K)``.
    natural
        Nodes on natural pieces, ``(M, 2)``; a node may stand there several times, or be known, too.
    fluxes
        What flows in, ``(n or 1, M)``: values times lengths, in cells.
    exchange
        ``(M,)``: Robin's ``alpha`` times lengths, in cells.
    """

    known: np.ndarray
    values: np.ndarray
    natural: np.ndarray
    fluxes: np.ndarray
    exchange: np.ndarray


@dataclass(frozen=True)
class EvaluatedPart:
    """A condition as files hold it.

    Parameters
    ----------
    name
        As it was given.
    kind
        The name of its class.
    alpha
        Of a Robin condition, else 0.
    values
        At the nodes of its piece, ``(n or 1, M)``; zeros beyond the part.
    """

    name: str
    kind: str
    alpha: float
    values: np.ndarray

    def condition(self, number: int) -> Condition:
        """Return the condition of one problem."""
        values = self.values[number % len(self.values)]
        return Robin(self.alpha, values) if self.kind == "Robin" else _KINDS[self.kind](values)


_KINDS: dict[str, type[Dirichlet] | type[Neumann]] = {"Dirichlet": Dirichlet, "Neumann": Neumann}


class Sides:
    """The conditions on all pieces.

    Parameters
    ----------
    given
        A condition for all sides, conditions by name, or values on all edges; see `Problem`.
    data
        Values on all edges where no condition is given.

    Raises
    ------
    ValueError, TypeError, NotImplementedError
        If a name is unknown or given twice, something is no condition, or a periodic side.
    """

    def __init__(self, given: Any, data: Boundary | Sequence[Boundary] | Data | None = None):
        self.parts: tuple[Part, ...] = ()
        self.data = data
        if isinstance(given, Mapping):
            self.parts = tuple(part_of_name(name, one) for name, one in given.items())
        elif isinstance(given, (Boundary, Data)) or (
            isinstance(given, Sequence) and not isinstance(given, str)
        ):
            self.data = given
        else:
            self.parts = tuple(Part(name, given) for name in SIDES)
        self._check()

    def _check(self) -> None:
        for part in self.parts:
            if not isinstance(part.condition, Condition):
                raise TypeError(
                    f"the side {part} must be Dirichlet, Neumann, Robin or Periodic, got "
                    f"{type(part.condition).__name__}"
                )
        periodic = {part.name for part in self.parts if isinstance(part.condition, Periodic)}
        for one, other in (("left", "right"), ("bottom", "top")):
            if len(periodic & {one, other}) == 1:
                have, lack = (one, other) if one in periodic else (other, one)
                raise ValueError(
                    f"the side {have} is Periodic, the side {lack} is not; give it for both of the pair"
                )
        if periodic:
            raise NotImplementedError(
                f"the side {min(periodic)} is Periodic: periodic sides are not solved yet"
            )
        for i, part in enumerate(self.parts):
            for before in self.parts[:i]:
                # A part comes before the whole.
                alike = part.name == before.name and part.whole == before.whole
                if alike and max(part.low, before.low) < min(part.high, before.high):
                    raise ValueError(f"the sides {before} and {part} overlap; give every part once")
        if isinstance(self.data, Sequence) and (
            not self.data or not all(isinstance(one, Boundary) for one in self.data)
        ):
            raise TypeError("sides must be conditions, or Boundary values of all edges")

    @property
    def plain(self) -> bool:
        """Whether values are given on all edges."""
        return all(part.whole and isinstance(part.condition, Dirichlet) for part in self.parts)

    @property
    def kinds(self) -> tuple:
        """What the left-hand side of the equation depends on: all but the values."""
        return tuple(
            (str(part), type(part.condition).__name__, part.alpha)
            for part in sorted(self.parts, key=str)
            if not isinstance(part.condition, Dirichlet) or not part.whole
        )

    @cached_property
    def counts(self) -> dict[str, int]:
        """Of how many problems the values of each part are, by its name."""
        counts = {}
        if isinstance(self.data, Boundary):
            counts["the boundary"] = 1
        elif isinstance(self.data, Sequence):
            counts["the boundary"] = len(self.data)
        elif self.data is not None:
            counts["the boundary"] = self.data.problems
        for part in self.parts:
            counts[f"the side {part}"] = _problems(part.values)
        return counts

    def require_shape(self, grid: Grid) -> None:
        """Check boundary data that are there before the grid is asked for.

        Raises
        ------
        ValueError
            If they belong to another grid.
        """
        if isinstance(self.data, (Boundary, Sequence)):
            for one in [self.data] if isinstance(self.data, Boundary) else self.data:
                one.require_shape(grid)

    def require_parts(self, grid: Grid) -> None:
        """Check that every part lies on its side.

        Raises
        ------
        ValueError
            If one reaches beyond it.
        """
        for part in self.parts:
            size = grid.size[0 if part.name in ("left", "right") else 1]
            high = 0.0 if part.high == math.inf else part.high
            if max(part.low, high) > size * (1 + 1e-9) or part.low == size:
                raise ValueError(f"{part} reaches beyond the side, which goes from 0 to {size:g}")

    def some(self, which: range) -> "Sides":
        """Return the sides of some of the problems."""
        given = {}
        for part in self.parts:
            condition = part.condition
            if _problems(part.values) > 1 and not isinstance(condition, Periodic):
                values = real_array(part.values, f"the side {part}")[which.start : which.stop]
                condition = dataclasses.replace(condition, values=values)
            given[str(part)] = condition
        data = self.data
        if data is not None and not isinstance(data, Boundary):
            data = (
                data[which.start : which.stop] if isinstance(data, Sequence) else _Some(data, which)
            )
        return Sides(given, data)

    def boundaries(self, grid: Grid) -> list[Boundary]:
        """Return the given values on all edges, of each problem; zero on natural sides.

        Raises
        ------
        ValueError
            If values are of another shape than the grid, or not finite.
        """
        if self.data is not None and not self.parts:
            return self._data(grid)
        pieces = rectangle_outline(grid)
        edges = {name: np.zeros((1, len(piece.nodes))) for name, piece in pieces.items()}
        if self.data is not None:
            edges = self._edges(grid)
        for part in self.parts:
            if part.whole and isinstance(part.condition, Dirichlet):
                edges[part.name] = _evaluated(part, pieces[part.name], grid)
            elif part.whole:
                edges[part.name] = np.zeros((1, len(pieces[part.name].nodes)))
        return [
            _joined({name: edge[i % len(edge)] for name, edge in edges.items()})
            for i in range(max(map(len, edges.values())))
        ]

    def _data(self, grid: Grid) -> list[Boundary]:
        given: Sequence[Boundary] = []
        if isinstance(self.data, Boundary):
            given = [self.data]
        elif self.data is not None:
            given = self.data if isinstance(self.data, Sequence) else self.data.boundaries(grid)
        for one in given:
            one.require_shape(grid)
        return list(given)

    def values(self, grid: Grid, pieces: Mapping[str, Piece]) -> OutlineValues:
        """Evaluate all conditions at the nodes of an outline.

        Raises
        ------
        ValueError
            If values are of another shape than their piece, or not finite, or a part reaches beyond
            its side.
        """
        known: list[tuple[np.ndarray, np.ndarray]] = []
        natural: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        given = {} if self.data is None else self._edges(grid)
        for name, piece in pieces.items():
            own = [part for part in self.parts if part.name == name]
            # What a part says comes before what is said of the whole.
            default = next((one for one in own if one.whole), None)
            parts = [part for part in own if not part.whole]
            rest, beside = piece.lengths.copy(), _beside(parts, piece, grid)
            for part in parts:
                lengths, inside = _covered(part, piece, grid)
                rest -= lengths
                _enter(part, piece, lengths, inside, grid, known, natural)
            if default is not None:
                _enter(default, piece, rest, beside, grid, known, natural)
            else:
                values = given.get(name, np.zeros((1, len(rest))))
                known.append((piece.nodes[beside], values[:, beside]))
        return _collected(known, natural)

    def evaluated(self, grid: Grid) -> list[EvaluatedPart]:
        """Return all conditions with their values at nodes; of what no condition names, too."""
        found, pieces = [], rectangle_outline(grid)
        edges = {} if self.data is None else self._edges(grid)
        for name, piece in pieces.items():
            own = [part for part in self.parts if part.name == name]
            if not any(part.whole for part in own):
                values = edges.get(name, np.zeros((1, len(piece.nodes))))
                found.append(EvaluatedPart(name, "Dirichlet", 0.0, values))
            for part in own:
                values = _evaluated(part, piece, grid)
                if not part.whole:
                    values = np.where(_covered(part, piece, grid)[1], values, 0.0)
                kind = type(part.condition).__name__
                found.append(EvaluatedPart(str(part), kind, part.alpha, values))
        return found

    def _edges(self, grid: Grid) -> dict[str, np.ndarray]:
        given = self._data(grid)
        return {name: np.stack([getattr(one, name) for one in given]) for name in SIDES}


@dataclass(frozen=True)
class _Some:
    """Boundary data of some of the problems of others."""

    data: Data
    which: range

    @property
    def problems(self) -> int:
        return len(self.which)

    def boundaries(self, grid: Grid) -> list[Boundary]:
        return self.data.boundaries(grid)[self.which.start : self.which.stop]


def _problems(values: Any) -> int:
    shape = np.shape(values) if isinstance(values, (list, tuple)) else ()
    shape = tuple(getattr(values, "shape", shape))
    return shape[0] if len(shape) == 2 else 1


def _evaluated(part: Part, piece: Piece, grid: Grid) -> np.ndarray:
    """Return the values of a condition at all nodes of its piece, ``(n or 1, M)``.

    Those beyond the part are anything.
    """
    values: Any = part.values
    what, nodes = f"the side {part}", len(piece.nodes)
    if getattr(values, "shape", ()) or isinstance(values, (list, tuple)):
        if not (isinstance(values, (np.ndarray, list, tuple)) or hasattr(values, "detach")):
            values = values[...]  # a file
        given = np.atleast_2d(real_array(values, what))
        if piece.axis is None or given.ndim > 2 or given.shape[1] != nodes:
            raise ValueError(
                f"{what} has values of the shape {np.shape(values)}, it has {nodes} nodes"
            )
    else:
        y, x = (piece.nodes * grid.spacing).T
        given = evaluate(values, y, x, what)[None]
    if part.whole:
        require_finite(given[0] if len(given) == 1 else given, what)
    return given


def _covered(part: Part, piece: Piece, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Return the length of each node's piece that a part covers, in cells, and which nodes it holds."""
    count, t = len(piece.nodes) - 1, np.arange(len(piece.nodes))
    low, high = part.low / grid.spacing, min(part.high / grid.spacing, count)
    ends = np.clip(t - 0.5, 0, count), np.clip(t + 0.5, 0, count)
    lengths = np.clip(np.minimum(ends[1], high) - np.maximum(ends[0], low), 0.0, None)
    return lengths, (t >= low - _ROUNDING) & (t <= high + _ROUNDING)


def _beside(parts: Sequence[Part], piece: Piece, grid: Grid) -> np.ndarray:
    """Say which nodes are beside something of their piece that no part names."""
    t, count = np.arange(len(piece.nodes)), len(piece.nodes) - 1
    beside = np.zeros(len(t), bool)
    for step in (-1, 1):
        at = t + 2 * step * _ROUNDING
        named = (at < 0) | (at > count) if parts else np.zeros(len(t), bool)
        for part in parts:
            low, high = part.low / grid.spacing, min(part.high / grid.spacing, count)
            named |= (at >= low - _ROUNDING) & (at <= high + _ROUNDING)
        beside |= ~named
    return beside


def _enter(
    part: Part,
    piece: Piece,
    lengths: np.ndarray,
    inside: np.ndarray,
    grid: Grid,
    known: list,
    natural: list,
) -> None:
    """Enter what a condition says: a value at the nodes inside, a flux where it has a length."""
    given = isinstance(part.condition, Dirichlet)
    at = inside if given else lengths > _ROUNDING
    values = _evaluated(part, piece, grid)[:, at]
    require_finite(values[0] if len(values) == 1 else values, f"the side {part}")
    if given:
        known.append((piece.nodes[at], values))
        return
    natural.append((piece.nodes[at], values * lengths[at], part.alpha * lengths[at]))


def _collected(known: list, natural: list) -> OutlineValues:
    """Put the entries of all pieces together, each known node once, with the mean of its values."""
    nodes = np.concatenate([one[0] for one in known] or [np.empty((0, 2), int)])
    values = _together([one[1] for one in known])
    nodes, where = np.unique(nodes, axis=0, return_inverse=True)
    where = where.ravel()
    means = np.zeros((len(values), len(nodes)))
    for row, mean in zip(values, means, strict=True):
        mean += np.bincount(where, row, len(nodes)) / np.bincount(where, minlength=len(nodes))
    return OutlineValues(
        known=nodes,
        values=means,
        natural=np.concatenate([one[0] for one in natural] or [np.empty((0, 2), int)]),
        fluxes=_together([one[1] for one in natural]),
        exchange=np.concatenate([one[2] for one in natural] or [np.empty(0)]),
    )


def _together(parts: list[np.ndarray]) -> np.ndarray:
    """Join arrays ``(n or 1, ..)`` along their last axis."""
    if not parts:
        return np.zeros((1, 0))
    most = max(map(len, parts))
    return np.concatenate([np.broadcast_to(one, (most, one.shape[1])) for one in parts], axis=1)


def _joined(edges: dict[str, np.ndarray]) -> Boundary:
    """Give two edges that differ in their common corner the mean there."""
    edges = {name: edge.copy() for name, edge in edges.items()}
    for one, i, other, j in Boundary.CORNERS:
        edges[one][i] = edges[other][j] = (edges[one][i] + edges[other][j]) / 2
    return Boundary(**edges)
