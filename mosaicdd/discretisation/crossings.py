"""Boundary terms of the equations near the outline of a shape, as lists of nodes and points.

The coefficients ``alpha`` of Robin conditions on outlines, which may vary in place, and the conditions that go with
periodic sides that jump.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mosaicdd.axes import at
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Periods
from mosaicdd.problems.fields.given import is_number
from mosaicdd.problems.sides.side_values import evaluated_at, require_alphas
from mosaicdd.problems.sides.sides import Sides, jumps_of
from mosaicdd.settings import concerning

if TYPE_CHECKING:
    from mosaicdd.discretisation.discretisation import Discretisation


def require_fluxes(sides: Sides, on: "Discretisation") -> None:
    """Check that beside periodic sides with a jump nothing acts on values.

    `ValueError` if something does.
    """
    jumps = jumps_of(sides)
    if on.floating or not any(jumps):
        return
    reacting = on.medium.reacting(on.grid)
    acting = reacting is None or len(reacting) > 0 or bool(on.exchange.any())
    for axis, jump in enumerate(jumps):
        on_seam = on.known[:, axis] % on.grid.shape[axis] == 0
        acting = acting or (jump != 0 and bool(on_seam.any()))
    for part in map(sides.outline, () if on.outline is None else on.outline.names):
        acting = acting or part is None or not part.condition.natural
    if acting:
        raise ValueError(
            "periodic sides with a jump go with sides and outlines where a flux is given, and without c: "
            "values, and what they act on, would have to jump, too"
        )


class RobinCoefficients:
    """The coefficients ``alpha`` of Robin conditions on outlines, by the outlines' numbers.

    ``names``: of the outlines.
    """

    def __init__(self, sides: Sides, names: Sequence[str], grid: Grid):
        self._grid, self._periods = grid, sides.periods(grid)
        parts = [sides.outline(name) for name in names]
        self._parts = {number: part for number, part in enumerate(parts) if part is not None}
        alphas = [0.0 if part is None else part.alpha for part in parts]
        # NaN where it varies.
        self._numbers = np.array([float(a) if is_number(a) else np.nan for a in alphas])

    @property
    def certain(self) -> np.ndarray:
        """Which outlines exchange all along."""
        return self._numbers > 0

    @property
    def possible(self) -> np.ndarray:
        """Which outlines may exchange somewhere."""
        return ~(self._numbers <= 0)

    def acts(self, outlines: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Say whether outlines, ``(T,)``, have an ``alpha`` above 0 near places ``(T, axes)`` in cells."""
        return self._at(outlines, cells) > 0

    def alphas(self, outlines: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Return ``alpha``, ``(T,)``, at points on outlines, ``(T, axes)`` in cells; `ValueError` if one is negative."""
        with concerning("sides"):
            return self._at(outlines, points, require_alphas)

    def _at(
        self,
        outlines: np.ndarray,
        points: np.ndarray,
        checked: Callable[..., np.ndarray] | None = None,
    ) -> np.ndarray:
        alphas = self._numbers[outlines]
        varying = np.isnan(alphas)
        if varying.any():
            points = round_periods(points, self._periods)
        for number in np.unique(outlines[varying]).tolist():
            part, on_outline = self._parts[number], outlines == number
            values = evaluated_at(part.exchanging, tuple(self._grid.at(points[on_outline]).T))
            alphas[on_outline] = (
                checked(values, part, self._grid, points[on_outline]) if checked else values[0]
            )
        return alphas


LEAST_DAMPING = 0.1
"""Of fluxes at nodes outside: on a grid too coarse for the exchange it would be negative, and turn them round."""


@dataclass(frozen=True)
class NodeTerms:
    """Terms of the equations of nodes, in arrays of the same length.

    ``nodes``: flat in a part of the grid, ``(T,)``.
    """

    nodes: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return several lists of terms as one."""
        arrays = {name: [vars(part)[name] for part in parts] for name in vars(parts[0])}
        return replace(
            parts[0], **{name: np.concatenate(parts_of) for name, parts_of in arrays.items()}
        )

    def chosen(self, which: np.ndarray | slice, nodes: np.ndarray) -> Self:
        """Return some of the terms, for nodes with other numbers."""
        return replace(
            self, **{name: values[which] for name, values in vars(self).items()} | {"nodes": nodes}
        )

    def moved(self, places: tuple[np.ndarray, ...], shape: tuple[int, ...]) -> Self:
        """Return the terms in another array of nodes; see `moved_nodes`."""
        return self.chosen(*moved_nodes(self.nodes, places, shape))


@dataclass(frozen=True)
class EliminatedCouplings(NodeTerms):
    """Conductances between active nodes and nodes with given values."""

    known: np.ndarray  # the numbers of the others among all known nodes
    conductances: np.ndarray  # ``(T,)``


NO_TIES = EliminatedCouplings(np.empty(0, int), np.empty(0, int), np.empty(0))
"""Of a part that no given value acts on."""


@dataclass(frozen=True)
class BoundaryIntersections(NodeTerms):
    """Points of outlines that act on nodes of a part of the grid."""

    points: np.ndarray  # on the outline, ``(T, axes)``, (y, x), in cells
    # Conductances of the ties to given values, or what fluxes through natural outlines count, in cells, ``(T,)``
    weights: np.ndarray
    outlines: np.ndarray  # their numbers, ``(T,)``

    @classmethod
    def none(cls, axes: int = 2) -> Self:
        """Return the intersections of a domain without an outline."""
        arrays = {field.name: np.empty(0) for field in fields(cls)}
        integers = dict.fromkeys(("nodes", "outlines"), np.empty(0, int))
        return cls(**arrays | integers | {"points": np.empty((0, axes))})

    def values(self, sides: Sides, names: Sequence[str], grid: Grid) -> np.ndarray:
        """Evaluate the conditions at the points, ``(n or 1, T)``; beyond periodic sides where they come round."""
        values, around = (
            np.zeros((1, len(self.nodes))),
            round_periods(self.points, sides.periods(grid)),
        )
        for number in np.unique(self.outlines):
            own = self.outlines == number
            on_outline = sides.on_outline(names[number], around[own], grid)
            if len(on_outline) > len(values):
                values = np.broadcast_to(values, (len(on_outline), values.shape[1])).copy()
            values[:, own] = on_outline
        return values


@dataclass(frozen=True)
class NaturalFacets(BoundaryIntersections):
    """Facets of natural outlines, each in the volume of an active node; their weights are lengths over `damping`."""

    lengths: np.ndarray  # in cells, ``(T,)``
    distances: np.ndarray  # how far inside of the outline the nodes are, in cells, ``(T,)``
    alphas: np.ndarray  # of exchange through them, ``(T,)``

    def damping(self, spacing: float, diffusion: Any, alphas: Any = None, of: Any = np) -> Any:
        """Return the divisors of fluxes for nodes that do not lie on the outline, ``(T,)``.

        Where a node is ``d`` inside of it, ``a du/dn = (g - alpha u) / (1 + alpha d / a)``.
        ``diffusion``: ``a`` at the nodes, ``(T,)``, in arrays of numpy's or torch's, as the module ``of``;
        ``alphas``: by default those of the problem.
        """
        alphas = of.asarray(self.alphas) if alphas is None else alphas
        damping = 1 + spacing * alphas * of.asarray(self.distances) / diffusion
        return damping.clip(min=LEAST_DAMPING)

    def inflow(
        self,
        fluxes: Any,
        u: Any,
        spacing: float,
        diffusion: Callable[[], Any],
        alphas: Any = None,
        of: Any = np,
    ) -> Any:
        """Return the inflow through the facets, times the squared spacing, ``(T,)``.

        Parameters
        ----------
        fluxes, u
            The fluxes that are given there, and the values at the nodes, ``(T,)``.
        diffusion
            Returns ``a`` at the nodes; called if nodes with an exchange do not lie on the outline.
        alphas
            Of exchange, by default those of the problem.
        of
            The module of the arrays, of numpy's or torch's.
        """
        alphas = of.asarray(self.alphas) if alphas is None else alphas
        inflow = spacing * of.asarray(self.lengths) * (fluxes - alphas * u)
        if not self.distances.any() or not alphas.any():
            return inflow
        return inflow / self.damping(spacing, diffusion(), alphas, of)


@dataclass(frozen=True)
class BoundaryTerms:
    """The terms of the outline of a shape in the equations of a part of the grid."""

    ties: BoundaryIntersections  # of active nodes to values that are given on it
    natural: NaturalFacets  # through which fluxes are given
    on: BoundaryIntersections  # nodes on it whose values are given
    # Which nodes have values in a field, ``(rows, columns)``; all others are outside
    reported: np.ndarray

    def part(self, *place: slice | np.ndarray) -> "BoundaryTerms":
        """Return the terms of some of the nodes, along each axis."""
        reported = self.reported
        places = tuple(places_among(n, p) for n, p in zip(reported.shape, place, strict=True))
        for axis, along in enumerate(place):
            reported = reported[at(axis, reported.ndim, along)]
        return self.moved(places, reported)

    def moved(self, places: tuple[np.ndarray, ...], reported: np.ndarray) -> "BoundaryTerms":
        """Return the terms of nodes that are elsewhere; see `moved_nodes`."""
        return self.each(lambda terms: terms.moved(places, reported.shape), reported)

    def each(self, of: Callable[[Any], Any], reported: np.ndarray) -> "BoundaryTerms":
        """Return what a function makes of each list of terms; ``reported``: of the nodes then."""
        return BoundaryTerms(of(self.ties), of(self.natural), of(self.on), reported)

    def without_acting(self) -> "BoundaryTerms":
        """Return the nodes on outlines and inside them, without what acts on others."""
        axes = self.reported.ndim
        ties, natural = BoundaryIntersections.none(axes), NaturalFacets.none(axes)
        return replace(self, ties=ties, natural=natural)

    def add_to_diagonal(self, reaction: np.ndarray, spacing: float) -> None:
        """Add ties, and ``alpha`` times the spacing, to the nodes of a part."""
        flat, natural = reaction.reshape(-1), self.natural
        np.add.at(flat, self.ties.nodes, self.ties.weights)
        np.add.at(flat, natural.nodes, spacing * natural.alphas * natural.weights)


def round_periods(points: np.ndarray, periods: Periods) -> np.ndarray:
    """Return places ``(T, axes)`` in cells where they come round beyond periodic sides."""
    for axis, period in enumerate(periods):
        if period is not None:
            points = points.copy()
            points[:, axis] %= period
    return points


def places_among(count: int, which: slice | np.ndarray) -> np.ndarray:
    """Return the places of rows among some of them; -1 where a row is not."""
    chosen = np.arange(count)[which]
    places = np.full(count, -1)
    places[chosen] = np.arange(len(chosen))
    return places


def moved_nodes(
    nodes: np.ndarray, places: tuple[np.ndarray, ...], shape: tuple[int, ...]
) -> tuple[np.ndarray, ...]:
    """Return the indices of flat nodes with a place in another array, and their numbers in it.

    ``places``: where its rows and columns are in the other; -1 where they are not. ``shape``: of the other.
    """
    counts = [len(along) for along in places]
    rows, row = np.append(np.flatnonzero(places[0] >= 0), -1), math.prod(counts[1:])
    low, high = rows[0] * row, (rows[-2:].max() + 1) * row
    near = np.flatnonzero((nodes >= low) & (nodes < high))
    moved = np.stack(
        [along[n] for along, n in zip(places, np.unravel_index(nodes[near], counts), strict=True)]
    )
    inside = (moved >= 0).all(axis=0)
    return near[inside], np.ravel_multi_index(tuple(moved[:, inside]), shape)
