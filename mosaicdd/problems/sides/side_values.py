"""Values of boundary conditions at the nodes of an outline, or at points along it.

A node that two conditions claim has a given value if one of them gives it; of two given values it has
the mean, and natural conditions add up, each with its own length.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.axes import letters, others
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.evaluated import evaluate, require_finite
from mosaicdd.problems.fields.fields import Periods
from mosaicdd.problems.fields.given import is_number, real_array, require_place, shape_of
from mosaicdd.problems.shapes.outline import OutlinePiece, side_names
from mosaicdd.problems.sides.conditions import (
    Condition,
    Dirichlet,
    Neumann,
    Periodic,
    Robin,
    Scattered,
)
from mosaicdd.problems.sides.held import Held, nodes_at
from mosaicdd.problems.sides.parts import SidePart
from mosaicdd.settings import concerning

ROUNDING_OF_ENDS = 1e-6
"""Cells by which the end of a part may miss a node."""


@dataclass(frozen=True)
class BoundaryData:
    """Values, fluxes and exchange at the nodes of the outline, of ``n`` problems."""

    known: np.ndarray  # nodes whose values are given, ``(K, 2)``, each once
    values: np.ndarray  # ``(n or 1, K)``
    # Nodes on natural pieces, ``(M, 2)``; a node may stand there several times, or be known, too
    natural: np.ndarray
    # Values times lengths, in units of the spacing, inward, ``(n or 1, M)``; Robin's ``alpha`` times lengths, ``(M,)``
    fluxes: np.ndarray
    exchange: np.ndarray


@dataclass(frozen=True)
class EvaluatedPart:
    """A boundary condition with its values, as in files."""

    name: str  # as it was given
    kind: str  # the name of its class
    # Of a Robin condition, else 0; where it varies as values, of all problems
    alpha: np.ndarray | float | str
    # At the nodes of its piece, ``(n or 1, M)``, of a box ``(n or 1, rows, columns)``; zeros beyond the part. On the
    # outline of a shape a number, a text, or values at points.
    values: np.ndarray | float | str
    # Where these are, ``(M, axes)``, (x, y), in units of domain length; of what is held inside its nodes
    points: np.ndarray | None = None

    def condition(self, number: int) -> Condition:
        """Return the condition of one problem."""
        if self.kind == "Periodic":
            return Periodic(float(np.ravel(self.values)[0]))
        values: Any = self.values
        alpha: Any = self.alpha
        if np.ndim(values):
            values = values[number % len(values)]
        if self.kind == "Held":
            return Held(nodes_at(np.asarray(self.points)), values)
        if self.points is not None:
            values, alpha = (
                Scattered(self.points, v) if np.ndim(v) else v for v in (values, alpha)
            )
        if self.kind == "Robin":
            return Robin(alpha, values)
        return Neumann(values) if self.kind == "Neumann" else Dirichlet(values)

    def digest(self) -> bytes:
        """Return the bytes of all members, for a digest."""
        alpha, values = (
            np.asarray(v).tobytes() if np.ndim(v) else str(v).encode()
            for v in (self.alpha, self.values)
        )
        where = b"" if self.points is None else self.points.tobytes()
        return f"{self.name} {self.kind} ".encode() + alpha + values + where


KINDS = ("Dirichlet", "Neumann", "Robin", "Periodic", "Held")
"""The kinds of conditions, as in files."""


@concerning("sides")
def evaluated(part: SidePart, piece: OutlinePiece, grid: Grid) -> np.ndarray:
    """Evaluate a condition at all nodes of its piece, ``(n or 1, M)``.

    Beyond the part values are arbitrary.
    """
    if shape_of(part.values):
        at_nodes = _of_array(part, piece, grid)
    else:
        at_nodes = evaluated_at(part, tuple(grid.at(piece.nodes).T))
    if piece.inside is not None:
        if len(grid.shape) == 2:
            at_nodes = _finite_near(at_nodes, piece.inside)
        at_nodes = np.where(piece.inside | np.isfinite(at_nodes), at_nodes, 0.0)  # of no meaning
    return _finite(at_nodes, part) if part.whole else at_nodes


def _of_array(part: SidePart, piece: OutlinePiece, grid: Grid) -> np.ndarray:
    """Return a condition's array at the nodes of its piece, ``(n or 1, M)``."""
    values, what, axes, nodes = part.values, part.called, len(grid.shape), len(piece.nodes)
    along, side = "", (nodes,)
    if piece.side is not None:
        along = "".join(letters(axes)[axis] for axis in others(piece.side[0], axes))
        side = tuple(np.delete(grid.nodes, piece.side[0]).tolist())
    if set(letters(axes)) & {*getattr(values, "dims", ())} - set(along):
        raise ValueError(
            f"{what} has values along {values.dims[-1]}, it goes along {' and '.join(along)}"
        )
    require_place(values, grid, what)
    at_nodes = real_array(values, what)
    if at_nodes.ndim > len(side) + 1 or at_nodes.shape[-len(side) :] != side:
        needed = f"{side} nodes along {' and '.join(along)}" if len(along) > 1 else f"{nodes} nodes"
        raise ValueError(f"{what} has values of the shape {at_nodes.shape}, it has {needed}")
    return at_nodes.reshape(-1, nodes)


def _finite(values: np.ndarray, part: SidePart) -> np.ndarray:
    """Return values ``(n or 1, M)`` that are finite; else raise `ValueError`."""
    require_finite(values[0] if len(values) == 1 else values, part.called)
    return values


@concerning("sides")
def alphas(part: SidePart, piece: OutlinePiece, grid: Grid, at: np.ndarray) -> np.ndarray:
    """Evaluate ``alpha`` at some nodes of a piece, ``(M,)``; errors as of `require_alphas`."""
    if is_number(part.alpha):
        return np.full(len(piece.nodes), float(part.alpha))[at]
    values = evaluated(part.exchanging, piece, grid)[:, at]
    return require_alphas(values, part, grid, piece.nodes[at])


def alpha_on_side(part: SidePart, piece: OutlinePiece, grid: Grid) -> np.ndarray | float:
    """Return a number ``alpha``, or values at the nodes of a side, zero beyond the part."""
    if is_number(part.alpha):
        return float(part.alpha)
    acting = part.whole | (covered(part, piece, grid)[0] > 0)
    at_nodes = np.zeros(len(acting))
    at_nodes[acting] = alphas(part, piece, grid, acting)
    return piece.as_side(at_nodes, grid)


def require_alphas(
    values: np.ndarray, part: SidePart, grid: Grid, places: np.ndarray
) -> np.ndarray:
    """Return ``alpha``, ``(T,)``, at places ``(T, axes)`` in cells; `ValueError` unless finite and not negative."""
    what = part.exchanging.called
    if len(values) > 1:
        raise ValueError(
            f"{what} is of {len(values)} problems: it is one for all, as coefficients are; solve them one by one"
        )
    bad = np.flatnonzero(~((values[0] >= 0) & np.isfinite(values[0])))
    if len(bad):
        where = ", ".join(f"{along:.10g}" for along in grid.at(places[bad[0]])[::-1])
        raise ValueError(
            f"{what} must be 0 or more, and finite, everywhere; {len(bad)} of {values.shape[1]} values are not, the "
            f"first is {values[0, bad[0]]:g} at ({where})"
        )
    return values[0]


@concerning("sides")
def evaluated_at(part: SidePart, places: Sequence[np.ndarray]) -> np.ndarray:
    """Evaluate a condition at coordinates, ``(n or 1, T)``; `TypeError` for an array."""
    if shape := shape_of(part.values):
        raise TypeError(
            f"{part.called} goes along no nodes, so it takes no array, got one of the shape {shape}: give a function of "
            "the coordinates, which may look values up there, or a file of points"
        )
    return np.stack([evaluate(values, places, part.called) for values in part.each])


def _finite_near(values: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Replace values outside, ``(n, M)``, that are not finite, by means of inner neighbours.

    Further out these are zero.
    """
    padded = np.pad(np.where(inside, values, 0.0), [(0, 0), (1, 1)])
    counts = np.pad(inside.astype(int), 1)
    neighbours = np.maximum(counts[:-2] + counts[2:], 1)
    means = (padded[:, :-2] + padded[:, 2:]) / neighbours
    return np.where(inside | np.isfinite(values), values, means)


def covered(part: SidePart, piece: OutlinePiece, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Return a part's lengths around nodes, in cells, and a mask of its nodes."""
    if part.whole:
        return piece.lengths, np.ones(len(piece.nodes), bool)
    nodes = _along(piece)
    low, high = (ends[:, None] for ends in ends_of_part(part, grid))
    lengths = np.zeros(len(piece.nodes))
    for share, direction in zip(piece.shares, _ways(piece), strict=True):
        t = np.stack([nodes, nodes + 0.5 * direction])
        within = np.minimum(t.max(axis=0), high) - np.maximum(t.min(axis=0), low)
        lengths += np.minimum(within.clip(min=0.0).prod(axis=0), share)
    holds = (nodes >= low - ROUNDING_OF_ENDS) & (nodes <= high + ROUNDING_OF_ENDS)
    return lengths, np.all(holds, axis=0)


def _along(piece: OutlinePiece) -> np.ndarray:
    """Return the nodes of a side along its axes, ``(axes, M)``."""
    axes = piece.nodes.shape[1]
    assert piece.side is not None
    return piece.nodes.T[list(others(piece.side[0], axes))]


def _ways(piece: OutlinePiece) -> np.ndarray:
    """Return the directions of its shares from a node, ``(shares, axes, 1)``."""
    return np.array(list(itertools.product((-1, 1), repeat=piece.nodes.shape[1] - 1)))[..., None]


def ends_of_part(part: SidePart, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper ends of a part of a side, in cells."""
    axes = len(grid.shape)
    along = list(others(side_names(axes)[part.name][0], axes))
    places = np.array(grid.ends).T  # of all axes, as those of the side alone are no place
    for end, interval in zip(places, np.transpose(part.along), strict=True):
        end[along] = np.where(np.isfinite(interval), interval, end[along])
    low, high = grid.cells(places)[:, along]
    return low, high


def uncovered(parts: Sequence[SidePart], piece: OutlinePiece, grid: Grid) -> np.ndarray:
    """Return a mask of the nodes beside stretches of their piece that no part covers."""
    free = np.zeros(len(piece.nodes), bool)
    if not parts:
        return ~free
    nodes, ends = _along(piece), [ends_of_part(part, grid) for part in parts]
    for share, direction in zip(piece.shares, _ways(piece), strict=True):
        at, covers = nodes + 2 * direction * ROUNDING_OF_ENDS, share == 0
        for low, high in ends:
            from_low, to_high = at - low[:, None], high[:, None] - at
            covers = covers | (np.minimum(from_low, to_high) >= -ROUNDING_OF_ENDS).all(axis=0)
        free |= ~covers
    return free


@concerning("sides")
def entries(
    part: SidePart, piece: OutlinePiece, share: tuple[np.ndarray, np.ndarray], grid: Grid
) -> tuple[np.ndarray, ...]:
    """Return the nodes and values, or fluxes and exchange, of a condition for `BoundaryData`.

    ``share``: the length of each node's piece on which it acts, in cells, and which nodes it holds.
    """
    lengths, inside = share
    if piece.inside is not None:
        inside = inside & piece.inside
    at = inside if part.condition.fixed else lengths > ROUNDING_OF_ENDS
    nodes, values = piece.nodes[at], _finite(evaluated(part, piece, grid)[:, at], part)
    if part.condition.fixed:
        return nodes, values
    if piece.side is not None:
        lengths = lengths * grid.face(piece.side[0])
    return nodes, values * lengths[at], alphas(part, piece, grid, at) * lengths[at]


def collected(known: list, natural: list, periods: Periods) -> BoundaryData:
    """Join the entries of all pieces; a node with several values has their mean.

    Along a periodic axis the last node is the first.
    """
    nodes = _first_round(known, periods)
    values = joined_values([values for _, values in known])
    shape = nodes.max(axis=0, initial=0) + 1
    flat, where = np.unique(np.ravel_multi_index(tuple(nodes.T), shape), return_inverse=True)
    nodes = np.stack(np.unravel_index(flat, shape), axis=1)
    means = np.zeros((len(values), len(nodes)))
    for row, mean in zip(values, means, strict=True):
        mean += np.bincount(where, row, len(nodes)) / np.bincount(where, minlength=len(nodes))
    return BoundaryData(
        known=nodes,
        values=means,
        natural=_first_round(natural, periods),
        fluxes=joined_values([fluxes for _, fluxes, _ in natural]),
        exchange=np.concatenate([exchange for *_, exchange in natural] or [np.empty(0)]),
    )


def _first_round(entries: list, periods: Periods) -> np.ndarray:
    """Return the nodes of some entries, ``(K, 2)``."""
    nodes = np.concatenate([at for at, *_ in entries] or [np.empty((0, len(periods)), int)])
    for axis, period in enumerate(periods):
        if period is not None:
            nodes[:, axis] %= period
    return nodes


def joined_values(parts: list[np.ndarray]) -> np.ndarray:
    """Join arrays ``(n or 1, ..)`` along their last axis."""
    if not parts:
        return np.zeros((1, 0))
    most = max(map(len, parts))
    return np.concatenate([np.broadcast_to(part, (most, part.shape[1])) for part in parts], axis=1)
