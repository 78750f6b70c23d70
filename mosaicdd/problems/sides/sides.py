"""Boundary conditions by the names of sides and outlines, or values on all edges.

A condition belongs to a piece, or to a part of a side, as ``left[0:0.5]``, from one coordinate along it
to another. Where nothing is said a value is given: zero, or that of boundary data for all edges.

Periodic sides with a jump: the mean slope that they impose.

A solution that is larger by a jump at the high side of an axis is a slope, even all along it, and something periodic.
The latter is what is solved for, with what the slope drives on the right-hand side. Parts of the grid may reach beyond it, where
nodes are counted on and on; the slope is zero in the middle of the grid.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from mosaicdd.axes import crossed, others, times
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.evaluated import expression_at, require_finite
from mosaicdd.problems.fields.fields import Part, Periods
from mosaicdd.problems.fields.given import (
    is_immutable,
    is_number,
    is_one_each,
    real_array,
    same_values,
)
from mosaicdd.problems.shapes.outline import OutlinePiece, rectangle_outline, side_names
from mosaicdd.problems.shapes.shape import Shape
from mosaicdd.problems.sides import side_values
from mosaicdd.problems.sides.boundary import Boundary, edge_data, joined_edges
from mosaicdd.problems.sides.conditions import Dirichlet
from mosaicdd.problems.sides.parts import (
    SidePart,
    is_outline,
    part_of_name,
    part_on_outline,
    require_conditions,
)
from mosaicdd.problems.sides.side_values import ROUNDING_OF_ENDS
from mosaicdd.settings import concerning
from mosaicdd.unsupported import Unsupported


class Sides:
    """The boundary conditions of a domain.

    `ValueError` or `TypeError` if a name is unknown or given twice, something is no condition, or a periodic side is
    one of a pair, or a part of a side.

    Parameters
    ----------
    conditions
        A condition for all sides, conditions by name, or values on all edges; see `Problem`.
    data
        Values on all edges where no condition is given.
    axes
        Of the domain: two of a rectangle, three of a box.
    """

    def __init__(self, conditions: Any, data: Any = None, axes: int = 2):
        self.axes, self.data = axes, edge_data(conditions) or edge_data(data)
        self._kept: tuple[Grid, list[Boundary]] | None = None
        parts: Iterable[SidePart] = ()
        if isinstance(conditions, Mapping):
            parts = (part_of_name(name, each, axes) for name, each in conditions.items())
        elif edge_data(conditions) is None:
            parts = (SidePart(name, conditions) for name in (*side_names(axes), "outline"))
        self.parts: tuple[SidePart, ...] = tuple(parts)
        require_conditions(self.parts, axes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sides) and same_values(
            (self.parts, self.data), (other.parts, other.data)
        )

    def __hash__(self) -> int:
        return hash(self.kinds)

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Along which axes, (y, x), the domain goes on at the opposite side."""
        names = {part.name for part in self.parts if part.condition.periodic}
        sides = {side for name, side in side_names(self.axes).items() if name in names}
        return tuple({(axis, 0), (axis, 1)} <= sides for axis in range(self.axes))

    @property
    def plain(self) -> bool:
        """Whether values are given on all edges, and nowhere inside."""
        return all(
            (part.whole and part.condition.fixed and not part.inside) or is_outline(part.name)
            for part in self.parts
        )

    @property
    def named(self) -> bool:
        """Whether a condition is for one of several outlines of a shape."""
        return any(is_outline(part.name) and part.name != "outline" for part in self.parts)

    def outline(self, name: str) -> SidePart | None:
        """Return the condition on an outline of a shape; None without any."""
        return part_on_outline(self.parts, name)

    @concerning("sides")
    def on_outline(self, name: str, points: np.ndarray, grid: Grid) -> np.ndarray:
        """Evaluate the condition on an outline, ``(n or 1, T)``, at points ``(T, 2)`` in cells.

        Where nothing is said of it, it has the values of the surface that those on all edges span.

        `ValueError` if values are not finite. `TypeError` if they are given by an array.
        """
        part, places = self.outline(name), tuple(points.T)
        if part is not None:
            values = side_values.evaluated_at(part, tuple(grid.at(points).T))
            return require_finite(values, part.called)
        if self.data is None:
            return np.zeros((1, len(points)))
        return np.stack([boundary.at(*places) for boundary in self.edge_values(grid)])

    @property
    def kinds(self) -> tuple:
        """What the left-hand side of the equation depends on: all but the values."""
        return tuple(
            (str(part), type(part.condition).__name__, part.alpha if is_number(part.alpha) else "")
            for part in sorted(self.parts, key=str)
            if not part.condition.fixed or not part.whole or part.inside
        )

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of problems in the values of each part, by its name."""
        counts = {} if self.data is None else {"the boundary": self.data.problems}
        return counts | {part.called: part.problems(self.axes) for part in self.parts}

    def require_shape(self, grid: Grid) -> None:
        """Raise `ValueError` unless given values on all edges belong to a grid."""
        if self.data is not None and not self.data.made:
            self.edge_values(grid)

    def require_parts(self, grid: Grid) -> None:
        """Raise `ValueError` for a part that exceeds its side, or a text that is no expression."""
        names = side_names(self.axes)
        for part in self.parts:
            for text in part.texts:
                expression_at(text, self.axes)
            for text in part.exchanging.texts:
                with concerning(part.exchanging.called):
                    expression_at(text, self.axes)
            if is_outline(part.name) or part.whole:
                continue
            along = others(names[part.name][0], self.axes)[::-1]
            low, high = (ends[::-1] for ends in side_values.ends_of_part(part, grid))
            inside = np.minimum(low, np.take(grid.shape, along) - high) >= -ROUNDING_OF_ENDS
            if not (inside & (low < high)).all():
                first, last = (
                    ", ".join(f"{grid.ends[axis][end]:.10g}" for axis in along) for end in (0, 1)
                )
                raise ValueError(
                    f"{part} reaches beyond the side, which goes from {first} to {last}"
                )
            empty = np.ceil(low - ROUNDING_OF_ENDS) > high + ROUNDING_OF_ENDS
            if part.condition.fixed and empty.any():
                apart = times([f"{grid.steps[axis]:g}" for axis in along[::-1]])
                raise ValueError(
                    f"{part} holds no node, so its value would have no effect: nodes are "
                    f"{apart} apart; take a longer part or smaller cells"
                )

    @concerning("hold")
    def pieces_inside(self, grid: Grid, shape: Shape | None) -> dict[str, OutlinePiece]:
        """Return the nodes of a domain that are held inside, by name.

        `ValueError` or `TypeError` if there are none, or a place is none of the grid's.
        """
        pieces = {}
        for part in self.parts:
            if not part.inside:
                continue
            where = vars(part.condition)["where"]
            nodes = where.nodes(grid, shape, self.periods(grid))
            if not len(nodes):
                raise ValueError(
                    f"{part.called}, {where}, is at none of the {math.prod(grid.nodes)} nodes of the domain, "
                    f"which are {grid.cell} apart: take a larger place, or points of a line"
                )
            pieces[part.name] = OutlinePiece(nodes, np.ones((1, len(nodes))))
        return pieces

    def some(self, which: range) -> "Sides":
        """Return the sides of some of the problems."""
        conditions = {}
        for part in self.parts:
            condition: Any = part.condition
            values = part.values
            if part.problems(self.axes) > 1 and not condition.periodic:
                values = values if is_one_each(values) else real_array(values, part.called)
                condition = dataclasses.replace(condition, values=values[which.start : which.stop])
            conditions[part.as_given] = condition
        data = self.data
        if data is not None and data.problems > 1:
            data = data.some(which)
        return Sides(conditions, data, self.axes)

    def boundaries(self, grid: Grid) -> list[Boundary]:
        """Return the given values on all edges, of each problem; zero on natural sides.

        `ValueError` if values are of another shape than the grid, or not finite.
        """
        if self.data is not None and not self.parts:
            return self.edge_values(grid)
        if self._kept is None or self._kept[0] != grid:
            boundaries = self._boundaries(grid)
            if not self._is_fixed:
                return boundaries
            self._kept = grid, boundaries
        return list(self._kept[1])

    @cached_property
    def _is_fixed(self) -> bool:
        """Whether all values are immutable, numbers and texts, so that they can be cached."""
        values = [part.values for part in self.parts if not is_outline(part.name)]
        return self.data is None and all(map(is_immutable, values))

    def _boundaries(self, grid: Grid) -> list[Boundary]:
        pieces = rectangle_outline(grid)
        edges = {name: np.zeros((1, len(piece.nodes))) for name, piece in pieces.items()}
        edges |= self._edges(grid)
        for part in self.parts:
            if is_outline(part.name) or part.inside or not part.whole:
                continue
            edges[part.name] = np.zeros((1, len(pieces[part.name].nodes)))
            if part.condition.fixed:
                edges[part.name] = side_values.evaluated(part, pieces[part.name], grid)
        return [
            joined_edges({name: edge[i % len(edge)] for name, edge in edges.items()}, grid)
            for i in range(max(map(len, edges.values())))
        ]

    @concerning("boundary")
    def edge_values(self, grid: Grid) -> list[Boundary]:
        """Return the given values on all edges of each problem; an empty list without any.

        `ValueError` if they are of another shape than the grid, or not finite.
        """
        boundaries = [] if self.data is None else self.data.boundaries(grid)
        for boundary in boundaries:
            boundary.require_shape(grid)
        return boundaries

    def values(self, grid: Grid, pieces: Mapping[str, OutlinePiece]) -> side_values.BoundaryData:
        """Evaluate all conditions at the nodes of an outline.

        `ValueError` if values are of another shape than their piece, or not finite, or a part reaches beyond its
        side.
        """
        known: list[tuple[np.ndarray, ...]] = []
        natural: list[tuple[np.ndarray, ...]] = []
        for piece, conditions in self._complete(grid, pieces):
            # What a part says comes before what is said of the whole.
            parts = [part for part in conditions if not part.whole]
            (default,) = (part for part in conditions if part.whole)
            shares = [side_values.covered(part, piece, grid) for part in parts]
            rest = piece.lengths - sum(lengths for lengths, _ in shares)
            acting = [*zip(parts, shares, strict=True)]
            if not default.condition.periodic:
                acting += [(default, (rest, side_values.uncovered(parts, piece, grid)))]
            for part, share in acting:
                entries = known if part.condition.fixed else natural
                entries.append(side_values.entries(part, piece, share, grid))
        return side_values.collected(known, natural, self.periods(grid))

    def _complete(
        self, grid: Grid, pieces: Mapping[str, OutlinePiece]
    ) -> Iterator[tuple[OutlinePiece, list[SidePart]]]:
        """Yield pieces and their conditions, completed by values on the edges, or zeros."""
        edges = self._edges(grid)
        for name, piece in pieces.items():
            conditions = [part for part in self.parts if part.name == name]
            if not any(part.whole for part in conditions):
                edge = piece.as_side(edges[name], grid) if name in edges else 0.0
                conditions = [SidePart(name, Dirichlet(edge)), *conditions]
            yield piece, conditions

    def leaves(self, piece: OutlinePiece, name: str, grid: Grid) -> bool:
        """Say whether the conditions on parts of a side do not cover it."""
        parts = [part for part in self.parts if part.name == name and not part.inside]
        rest = piece.lengths - sum(side_values.covered(part, piece, grid)[0] for part in parts)
        return not parts or bool((rest > ROUNDING_OF_ENDS).any())

    def periods(self, grid: Grid) -> Periods:
        """Return the period of each axis in nodes; None where it is not periodic."""
        sizes = zip(grid.shape, self.periodic, strict=True)
        return tuple(cells if around else None for cells, around in sizes)

    def evaluated(
        self, grid: Grid, pieces: Mapping[str, OutlinePiece]
    ) -> list[side_values.EvaluatedPart]:
        """Evaluate the conditions on all sides, also default ones, at their nodes.

        But for sides that the outline of a shape replaces: what is said of that holds there.
        """
        parts = []
        for piece, conditions in self._complete(grid, pieces):
            for part in conditions if not piece.replaced else ():
                lengths, holds = side_values.covered(part, piece, grid)
                values = side_values.evaluated(part, piece, grid)
                values = piece.as_side(np.where((lengths > 0) | holds, values, 0.0), grid)
                kind = type(part.condition).__name__
                places = grid.at(piece.nodes)[:, ::-1] if part.inside else None
                alpha = side_values.alpha_on_side(part, piece, grid)
                parts.append(side_values.EvaluatedPart(str(part), kind, alpha, values, places))
        return parts

    def _edges(self, grid: Grid) -> dict[str, np.ndarray]:
        """Return the given values on all edges, ``(n, M)``, by the names of sides."""
        boundaries = self.edge_values(grid)
        return {
            name: np.stack([boundary.edges[side].ravel() for boundary in boundaries])
            for name, side in side_names(len(grid.shape)).items()
            if boundaries
        }


def jumps_of(sides: Sides) -> tuple[float, ...]:
    """Return the jumps of the solution between periodic sides along each axis, (y, x)."""
    jumps, names = [0.0] * sides.axes, side_names(sides.axes)
    for part in sides.parts:
        if part.condition.periodic and part.name in names:
            jumps[names[part.name][0]] = part.values
    return tuple(jumps)


def mean_slope(sides: Sides, grid: Grid, part: Part, *, halves: bool = False) -> np.ndarray | None:
    """Return the slope at the nodes of a part, ``(rows, columns)``; None without any jump.

    ``halves``: with the mean of both of a pair of periodic sides on each, as of the volumes between them.
    """
    if not any(jumps_of(sides)):
        return None
    along = []
    for p, cells, jump in zip(part, grid.shape, jumps_of(sides), strict=True):
        at = np.arange(p.start, p.stop)
        share = at / cells - 0.5
        along.append(jump * np.where(halves & (at % cells == 0), 0.0, share))
    return functools.reduce(np.add, crossed(*along))


def slope_at(sides: Sides, grid: Grid, nodes: np.ndarray) -> np.ndarray:
    """Return the slope at nodes ``(K, axes)``; zero without any jump."""
    return (nodes / grid.shape - 0.5) @ np.array(jumps_of(sides))


def without_slope(sides: Sides, grid: Grid, part: Part, values: Any) -> Any:
    """Return what is periodic of values ``(.., rows, columns)`` at the nodes of a part."""
    slope = mean_slope(sides, grid, part)
    return values if slope is None else values - slope


def require_no_jump(sides: Sides, equation: str, *, unless: bool) -> None:
    """Raise `Unsupported` for periodic sides with a jump, which the equation does not take."""
    if any(jumps_of(sides)) and not unless:
        raise Unsupported(
            f"periodic sides with a jump are for steady linear equations, {equation} is none: leave the jump out"
        )
