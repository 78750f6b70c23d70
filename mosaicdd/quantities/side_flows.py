"""Flows out through the sides of a rectangle, and into what is held inside, node by node.

Where fluxes are given it is these, else what is left over.

A node in a corner belongs to several sides, and where what is held reaches a side, to both. What natural conditions say there is theirs; of sides with given values
each has what comes along its own axis, and all share the rest by their lengths.

A node on a periodic side and its copy on the other one are one unknown: what is left over in both volumes flows to the
values that are given at either.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaicdd.axes import common, in_rows
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.fields import Part, Periods
from mosaicdd.problems.shapes.outline import OutlinePiece, side_names
from mosaicdd.problems.sides.parts import SidePart
from mosaicdd.problems.sides.parts import common as common_part
from mosaicdd.problems.sides.side_values import alphas, covered, evaluated
from mosaicdd.quantities.control_volumes import ControlVolumes
from mosaicdd.quantities.sums import FieldOnRank, VolumesPart

_AT_ONCE = 2**17  # nodes around what is held inside
_SidePart = tuple[Part, np.ndarray, tuple[Any, ...]]
"""What `_parts` yields."""


@dataclass(frozen=True)
class SideCondition:
    """A condition on a side, or a part of it."""

    part: SidePart | None  # None where nothing is said, and a value is given
    lengths: np.ndarray  # that belong to each node of the side, ``(M,)``, in cells
    others: tuple[SidePart, ...] = ()  # the parts of the side that others are named for

    @property
    def held(self) -> bool:
        """Whether a value is given, or that of the other side, and no flux."""
        return self.part is None or self.part.condition.fixed or self.part.condition.periodic

    def within(self, piece: OutlinePiece, grid: Grid, asked: SidePart) -> np.ndarray:
        """Return the share of each node's length in a part of the side, ``(M,)``."""
        if asked.whole:
            return np.ones(len(self.lengths))
        holds_on = asked if self.part is None else self.part
        inside = _overlap(piece, grid, asked, holds_on)
        for other in self.others:
            inside = inside - _overlap(piece, grid, asked, other)
        whole = np.where(self.lengths > 0, self.lengths, 1.0)
        return np.clip(inside / whole, 0.0, 1.0)


def _overlap(piece: OutlinePiece, grid: Grid, asked: SidePart, other: SidePart) -> np.ndarray:
    """Return the length of each node that two parts have in common, in cells."""
    both = common_part(asked.along, other.along)
    if both is None:
        return np.zeros(len(piece.nodes))
    return covered(dataclasses.replace(asked, along=both), piece, grid)[0]


def side_conditions(volumes: ControlVolumes, around: str = "") -> dict[str, list[SideCondition]]:
    """Return the conditions on each side of the domain, and inside, by name; periodic sides once."""
    by_side, grid, problem = {}, volumes.grid, volumes.problem
    for name, piece in volumes.pieces.items():
        of_side = [part for part in problem.conditions.parts if part.name == name]
        default = next((part for part in of_side if part.whole), None)
        periodic = default is not None and default.condition.periodic
        if (periodic and name != around) or not piece.lengths.any():
            continue
        parts, rest = tuple(part for part in of_side if not part.whole), piece.lengths.copy()
        conditions = []
        for part in parts:
            lengths, _ = covered(part, piece, grid)
            rest -= lengths
            conditions.append(SideCondition(part, lengths))
        conditions.append(SideCondition(default, rest.clip(min=0.0), parts))
        by_side[name] = conditions
    return by_side


@dataclass(frozen=True)
class _Side:
    """The nodes of a side, and how what is left over there is divided; for all values and data.

    An unknown is held where a value is given on the side, or on part of what belongs to it or to its copies.
    """

    parts: list[_SidePart]
    nodes: np.ndarray  # their numbers, ``(M,)``, the same where sides have one in common
    unknowns: np.ndarray  # numbers of these, ``(M,)``, the same of copies on periodic sides, too
    mine: np.ndarray  # which nodes are this process's, and have a volume, ascending
    several: np.ndarray  # at which other sides hold the unknown, too, ascending
    share: np.ndarray  # of these in what no side has alone
    divided: list[
        np.ndarray | None
    ]  # what each condition has of the flow to held unknowns, ``(M,)``; None of fluxes


class SideFlows:
    """The flows out through the sides at a process's nodes.

    ``out``: by the names of sides, per condition on it, ``(n, M)``, of all nodes of the side: what this process's volumes
    let through there, at copies of its nodes, too.
    ``gross``: what would flow to and from all of them if all other values fell to zero, ``(n,)``.
    ``carried``, as `Balance` has it, is no part of it. ``around``: a periodic side that is among them.
    """

    def __init__(self, volumes: ControlVolumes, field: FieldOnRank, around: str = ""):
        self._grid, self._pieces = volumes.grid, volumes.pieces
        # Kept for the next data on the sides, if these are the same.
        stored: list[Any] = volumes.kept(("conditions", around), lambda: [None, {}])
        if stored[0] is not volumes.problem.conditions:
            stored[:] = volumes.problem.conditions, side_conditions(volumes, around)
        self._conditions: dict[str, list[SideCondition]] = stored[1]
        self.gross = np.zeros(len(field.values))
        self.out = self._split(volumes, field, around) if self._conditions else {}

    @property
    def names(self) -> list[str]:
        """The names of the sides."""
        return list(self.out)

    def total(self, asked: SidePart) -> np.ndarray:
        """Return the outflow through a side, or a part of it, at this process's nodes, ``(n,)``."""
        piece, outflows = self._pieces[asked.name], self.out[asked.name]
        flows = (
            (out * condition.within(piece, self._grid, asked)).sum(axis=1)
            for condition, out in zip(self._conditions[asked.name], outflows, strict=True)
        )
        return sum(flows, np.zeros(len(outflows[0])))

    def _split(
        self, volumes: ControlVolumes, field: FieldOnRank, around: str
    ) -> dict[str, list[np.ndarray]]:
        grid, count, conditions = self._grid, len(field.values), self._conditions
        sides = volumes.kept(
            tuple(conditions), lambda: _sides(volumes, field, conditions, self._pieces, around)
        )
        nodes = 1 + max(int(side.nodes.max()) for side in sides.values())
        left = np.zeros((count, nodes))  # over, of what is not known from conditions
        out: dict[str, list[np.ndarray]] = {}
        along: dict[str, np.ndarray] = {}
        for name, side in sides.items():
            piece = self._pieces[name]
            face = grid.spacing * (1.0 if piece.side is None else grid.face(piece.side[0]))
            u, rest, along[name], gross = _on_side(volumes, field, side, piece)
            self.gross += gross
            left[:, side.nodes[side.mine]] = rest[:, side.mine]
            out[name] = []
            for condition in conditions[name]:
                flows = np.zeros(rest.shape)
                if not condition.held and condition.part is not None:
                    acting = side.mine[condition.lengths[side.mine] > 0]
                    values = evaluated(condition.part, piece, grid)[:, acting]
                    inflow = values - alphas(condition.part, piece, grid, acting) * u[:, acting]
                    flows[:, acting] = -face * condition.lengths[acting] * inflow
                out[name].append(flows)
        for name, side in sides.items():
            for flows, held in zip(out[name], side.divided, strict=True):
                if held is None:
                    left[:, side.nodes] -= flows
        unknown = np.arange(nodes)
        for side in sides.values():
            unknown[side.nodes] = side.unknowns
        left = _added(left, unknown, nodes)
        shared = left.copy()
        for name, side in sides.items():
            shared_unknowns = side.unknowns[side.several]
            along[name] = _added(along[name][:, side.several], shared_unknowns, nodes)
            shared[:, shared_unknowns] -= along[name][:, shared_unknowns]
        for name, side in sides.items():
            flows, several = left[:, side.unknowns], side.several
            shared_unknowns = side.unknowns[several]
            flows[:, several] = (
                along[name][:, shared_unknowns] + shared[:, shared_unknowns] * side.share
            )
            for held, total in zip(side.divided, out[name], strict=True):
                if held is not None:
                    np.multiply(flows, held, out=total)
        return out


def _added(values: np.ndarray, unknowns: np.ndarray, count: int) -> np.ndarray:
    """Return sums of values of nodes ``(n, K)`` at each of so many unknowns."""
    return np.stack([np.bincount(unknowns, row, count) for row in values])


def _sides(
    volumes: ControlVolumes,
    field: FieldOnRank,
    conditions: Mapping[str, list[SideCondition]],
    pieces: Mapping[str, OutlinePiece],
    around: str,
) -> dict[str, _Side]:
    """Plan what is split of each side, by its name.

    ``around``: a periodic side through which something is asked for, so that its nodes are not those of the other one.
    """
    grid, periods = volumes.grid, list(volumes.problem.conditions.periods(volumes.grid))
    if around:
        periods[side_names(len(periods))[around][0]] = None
    every_piece = [pieces[name] for name in conditions]
    of_names = _numbered(grid, every_piece, (None,) * len(periods))
    unknowns_of = _numbered(grid, every_piece, tuple(periods))
    count = 1 + max(int(nodes.max()) for nodes in of_names)
    all_lengths, held = np.zeros(count), np.zeros(count, int)
    held_lengths: list[np.ndarray] = []
    for unknowns, listed in zip(unknowns_of, conditions.values(), strict=True):
        lengths = sum((c.lengths for c in listed if c.held), np.zeros(len(unknowns)))
        held_lengths.append(np.bincount(unknowns, lengths, count))
        all_lengths += held_lengths[-1]
        held += held_lengths[-1] > 0
    sides = {}
    numbers = zip(of_names, unknowns_of, held_lengths, strict=True)
    for (name, listed), (nodes, unknowns, lengths) in zip(conditions.items(), numbers, strict=True):
        parts = list(_parts(volumes, field, pieces[name]))
        mine = np.zeros(len(nodes), bool)
        for wide, of_piece, at in parts:
            mine[of_piece] = volumes.on(wide).present[at]
        whole = np.where(lengths > 0, lengths, np.inf)[unknowns]
        several = np.flatnonzero((lengths[unknowns] > 0) & (held[unknowns] > 1))
        divided = [c.lengths / whole if c.held else None for c in listed]
        share = (lengths / np.where(all_lengths > 0, all_lengths, 1.0))[unknowns[several]]
        sides[name] = _Side(parts, nodes, unknowns, np.flatnonzero(mine), several, share, divided)
    return sides


def _numbered(grid: Grid, pieces: Sequence[OutlinePiece], periods: Periods) -> list[np.ndarray]:
    """Return numbers of the nodes of pieces, ``(M,)`` each, equal at common nodes; from 0 on.

    Along an axis with a period nodes have one in common with their copies.
    """
    flat = []
    for piece in pieces:
        along = zip(piece.nodes.T, periods, strict=True)
        places = tuple(n if period is None else n % period for n, period in along)
        flat.append(np.ravel_multi_index(places, grid.nodes))
    nodes = np.unique(np.concatenate(flat))
    return [np.searchsorted(nodes, ids) for ids in flat]


def _on_side(
    volumes: ControlVolumes, field: FieldOnRank, side: _Side, piece: OutlinePiece
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return of the nodes of a side: values, what is left over in their volumes, and what flows to it along its axis.

    ``(n, M)`` each, zero at nodes that this process does not speak for or that have no volume: what is given on a side
    beside a node that an outline holds has no effect, and does not flow. Last of all their share of `SideFlows.gross`.
    """
    u, rest, along = np.zeros((3, len(field.values), len(piece.nodes)))
    gross = np.zeros(len(field.values))
    for wide, of_piece, at in side.parts:
        part_volumes = volumes.on(wide)
        values, left, to_neighbours = left_over(volumes, part_volumes, field, wide)
        u[:, of_piece], rest[:, of_piece] = values[:, *at], left[:, *at]
        if piece.side is not None:
            along[:, of_piece] = -to_neighbours[piece.side[0]][:, *at]
        gross += part_volumes.falling(values)[:, *at].sum(axis=1)
    return u, rest, along, gross


def _parts(volumes: ControlVolumes, field: FieldOnRank, piece: OutlinePiece) -> Iterator[_SidePart]:
    """Yield parts of the grid around what a process has of a piece.

    The part, which nodes of the piece it is for, ``(T,)``, and where these are in it.
    """
    owned = common(piece.place, field.own)
    for part in in_rows(owned, _AT_ONCE) if all(p.stop > p.start for p in owned) else ():
        inside = zip(piece.nodes.T, part, strict=True)
        of_piece = np.flatnonzero(
            np.all([(n >= p.start) & (n < p.stop) for n, p in inside], axis=0)
        )
        if len(of_piece):
            wide = field.around(part)
            at = tuple(n - w.start for n, w in zip(piece.nodes[of_piece].T, wide, strict=True))
            yield wide, of_piece, at


def left_over(
    volumes: ControlVolumes, here: VolumesPart, field: FieldOnRank, wide: Part
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """Return values, residuals of volumes, and flows to neighbours along each axis, ``(n, rows, columns)``.

    ``here``: the volumes of the part ``wide``. Right but at nodes on the edge of the part within the grid.
    """
    u = np.where(here.present, field.at(wide), 0.0)
    to_neighbours = here.to_neighbours(u)
    rest = volumes.loads(here, wide) - here.consumed(u)
    for flows in to_neighbours:
        rest -= flows
    if here.outlines is not None:
        nodes, _, through, _ = volumes.through_outlines(here, u)
        for row, out in zip(rest.reshape(len(u), -1), through, strict=True):
            row -= np.bincount(nodes, out, len(row))
    return u, np.where(here.present, rest, 0.0), to_neighbours
