"""What flows out through each side of a rectangle, and into what is held inside, node by node.

Where fluxes are given it is these, else what is left over.

A node in a corner belongs to several sides, and where what is held reaches a side, to both. What natural conditions say there is theirs; of sides with given values
each has what comes along its own axis, and all share the rest by their lengths.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.lattice.axes import common, in_rows
from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.quantities.control_volumes import ControlVolumes
from mosaicdd.problems.quantities.held_field import HeldField
from mosaicdd.problems.quantities.volumes_part import VolumesPart
from mosaicdd.problems.shapes.outline import OutlinePiece
from mosaicdd.problems.sides.conditions import Dirichlet, Periodic
from mosaicdd.problems.sides.parts import SidePart
from mosaicdd.problems.sides.parts import common as common_part
from mosaicdd.problems.sides.side_values import alphas, covered, evaluated

_AT_ONCE = 2**17  # nodes around what is held inside


@dataclass(frozen=True)
class SideCondition:
    """What holds on a side, or a part of it."""

    part: SidePart | None  # None where nothing is said, and a value is given
    lengths: np.ndarray  # that belong to each node of the side, ``(M,)``, in cells
    others: tuple[SidePart, ...] = ()  # the parts of the side that others are named for

    @property
    def held(self) -> bool:
        """Whether what flows is not: a value is given, or that of the other side."""
        return self.part is None or isinstance(self.part.condition, Dirichlet | Periodic)

    def within(self, piece: OutlinePiece, grid: Grid, asked: SidePart) -> np.ndarray:
        """Return which share of each node's length lies in a part of the side, ``(M,)``."""
        if asked.whole:
            return np.ones(len(self.lengths))
        own = asked if self.part is None else self.part
        inside = _overlap(piece, grid, asked, own)
        for other in self.others:
            inside = inside - _overlap(piece, grid, asked, other)
        whole = np.where(self.lengths > 0, self.lengths, 1.0)
        return np.clip(inside / whole, 0.0, 1.0)


def _overlap(piece: OutlinePiece, grid: Grid, asked: SidePart, other: SidePart) -> np.ndarray:
    """Return what two parts have in common of the length of each node, in cells."""
    both = common_part(asked.along, other.along)
    if both is None:
        return np.zeros(len(piece.nodes))
    return covered(dataclasses.replace(asked, along=both), piece, grid)[0]


def side_conditions(volumes: ControlVolumes, around: str = "") -> dict[str, list[SideCondition]]:
    """Return what holds on each side that the domain has, and inside, by its name; of periodic ones on one alone."""
    every, grid, problem = {}, volumes.grid, volumes.problem
    for name, piece in volumes.pieces.items():
        own = [part for part in problem.conditions.parts if part.name == name]
        default = next((part for part in own if part.whole), None)
        periodic = default is not None and isinstance(default.condition, Periodic)
        if (periodic and name != around) or not piece.lengths.any():
            continue
        parts, rest = tuple(part for part in own if not part.whole), piece.lengths.copy()
        conditions = []
        for part in parts:
            lengths, _ = covered(part, piece, grid)
            rest -= lengths
            conditions.append(SideCondition(part, lengths))
        conditions.append(SideCondition(default, rest.clip(min=0.0), parts))
        every[name] = conditions
    return every


class SideFlows:
    """What flows out through the sides at the nodes that a process speaks for.

    ``out``: by the names of sides, per condition on it, ``(n, M)``, of all nodes of the side; zero at those of others.
    ``gross``: what would flow to and from all of them if all other values fell to zero, ``(n,)``.
    ``carried``, as `Balance` has it, is no part of it. ``around``: a periodic side that is among them.
    """

    def __init__(self, volumes: ControlVolumes, field: HeldField, around: str = ""):
        self._grid, self._pieces = volumes.grid, volumes.pieces
        self._conditions = side_conditions(volumes, around)
        self.gross = np.zeros(len(field.values))
        self.out = self._split(volumes, field) if self._conditions else {}

    @property
    def names(self) -> list[str]:
        """Of the sides."""
        return list(self.out)

    def total(self, asked: SidePart) -> np.ndarray:
        """Return what flows out through a side, or a part of it, at this process's nodes, ``(n,)``."""
        piece, every = self._pieces[asked.name], self.out[asked.name]
        flows = (
            (out * condition.within(piece, self._grid, asked)).sum(axis=1)
            for condition, out in zip(self._conditions[asked.name], every, strict=True)
        )
        return sum(flows, np.zeros(len(every[0])))

    def _split(self, volumes: ControlVolumes, field: HeldField) -> dict[str, list[np.ndarray]]:
        grid, count = self._grid, len(field.values)
        names = tuple(self._conditions)
        where = volumes.kept(names, lambda: _numbered(grid, [self._pieces[n] for n in names]))
        where_of = dict(zip(names, where, strict=True))
        nodes = 1 + max(int(at.max()) for at in where)
        left = np.zeros((count, nodes))  # over, of what is not known from conditions
        own_lengths, held = np.zeros(nodes), np.zeros(nodes, int)
        out: dict[str, list[np.ndarray]] = {}
        along: dict[str, np.ndarray] = {}
        mine: dict[str, np.ndarray] = {}
        for name, conditions in self._conditions.items():
            piece, at = self._pieces[name], where_of[name]
            face = grid.spacing * (1.0 if piece.side is None else grid.face(piece.side[0]))
            u, rest, across, mine[name], gross = _on_side(volumes, field, name, piece)
            self.gross += gross
            left[:, at[mine[name]]] = rest[:, mine[name]]
            along[name] = across
            out[name] = []
            lengths = np.zeros(len(at))
            for condition in conditions:
                flows = np.zeros((count, len(at)))
                if condition.held:
                    lengths += condition.lengths
                elif condition.part is not None:
                    acting = np.flatnonzero(mine[name] & (condition.lengths > 0))
                    values = evaluated(condition.part, piece, grid)[:, acting]
                    inflow = values - alphas(condition.part, piece, grid, acting) * u[:, acting]
                    flows[:, acting] = -face * condition.lengths[acting] * inflow
                out[name].append(flows)
            own_lengths[at] += lengths
            held[at] += lengths > 0
        for name, every in out.items():
            for flows in every:
                left[:, where_of[name]] -= flows
        shared = left.copy()
        for name, conditions in self._conditions.items():
            at, lengths = where_of[name], _held_lengths(conditions)
            several = (held[at] > 1) & (lengths > 0) & mine[name]
            shared[:, at[several]] -= along[name][:, several]
        for name, conditions in self._conditions.items():
            at, lengths = where_of[name], _held_lengths(conditions)
            several = held[at] > 1
            share = lengths / np.where(own_lengths[at] > 0, own_lengths[at], 1.0)
            flows = np.where(
                several, along[name] * (lengths > 0) + shared[:, at] * share, left[:, at]
            )
            flows = np.where(mine[name] & (lengths > 0), flows, 0.0)
            for condition, total in zip(conditions, out[name], strict=True):
                if condition.held:
                    total += flows * condition.lengths / np.where(lengths > 0, lengths, 1.0)
        return out


def _numbered(grid: Grid, pieces: Sequence[OutlinePiece]) -> list[np.ndarray]:
    """Return numbers of the nodes of each piece, ``(M,)``, the same where they have a node in common; from 0 on."""
    flat = [np.ravel_multi_index(tuple(piece.nodes.T), grid.nodes) for piece in pieces]
    nodes = np.unique(np.concatenate(flat))
    return [np.searchsorted(nodes, ids) for ids in flat]


def _held_lengths(conditions: list[SideCondition]) -> np.ndarray:
    """Return the length of each node's piece where values are given."""
    nothing = np.zeros(len(conditions[0].lengths))
    return sum((c.lengths for c in conditions if c.held), nothing)


def _on_side(
    volumes: ControlVolumes, field: HeldField, name: str, piece: OutlinePiece
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return of the nodes of a side: values, what is left over in their volumes, and what flows to it along its axis.

    ``(n, M)`` each, and which of the nodes are this process's and have a volume, ``(M,)``: what is given on a side
    beside a node that an outline holds has no effect, and does not flow. Last of all their share of `SideFlows.gross`.
    """
    shape = (len(field.values), len(piece.nodes))
    u, rest, along = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    gross = np.zeros(len(field.values))
    mine = np.zeros(len(piece.nodes), bool)
    for wide, here, at in volumes.kept(name, lambda: list(_parts(volumes, field, piece))):
        own = volumes.on(wide)
        values, left, to_neighbours = left_over(volumes, own, field, wide)
        u[:, here], rest[:, here] = values[:, *at], left[:, *at]
        if piece.side is not None:
            along[:, here] = -to_neighbours[piece.side[0]][:, *at]
        mine[here] = own.present[at]
        gross += own.falling(values)[:, *at].sum(axis=1)
    return u, rest, along, mine, gross


def _parts(
    volumes: ControlVolumes, field: HeldField, piece: OutlinePiece
) -> Iterator[tuple[Part, np.ndarray, tuple[Any, ...]]]:
    """Yield parts of the grid around what a process has of a piece.

    The part, which nodes of the piece it is for, ``(T,)``, and where these are in it.
    """
    every = common(piece.place, field.own)
    for part in in_rows(every, _AT_ONCE) if all(p.stop > p.start for p in every) else ():
        inside = zip(piece.nodes.T, part, strict=True)
        here = np.flatnonzero(np.all([(n >= p.start) & (n < p.stop) for n, p in inside], axis=0))
        if len(here):
            wide = field.around(part)
            at = tuple(n - w.start for n, w in zip(piece.nodes[here].T, wide, strict=True))
            yield wide, here, at


def left_over(
    volumes: ControlVolumes, here: VolumesPart, field: HeldField, wide: Part
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """Return values, what is left over in each volume, and what goes from it along each axis, ``(n, rows, columns)``.

    ``here``: the volumes of the part ``wide``. Right but at nodes on the edge of the part within the grid.
    """
    u = np.where(here.present, field.at(wide), 0.0)
    to_neighbours = here.to_neighbours(u)
    rest = volumes.loads(here, wide) - here.consumed(u) - sum(to_neighbours)
    nodes, _, through, _ = volumes.through_outlines(here, u)
    for row, out in zip(rest.reshape(len(u), -1), through, strict=True):
        row -= np.bincount(nodes, out, len(row))
    return u, np.where(here.present, rest, 0.0), to_neighbours
