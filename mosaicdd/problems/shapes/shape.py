"""The part of a rectangle, or box, that a domain is: where a level at the nodes of the grid is negative.

The outline is where the level, linear along grid edges, is zero. Of a signed distance, or anything
like it, that is right to second order. A mask of nodes has the level -1 at these and 0 at all others: its
outline is the staircase of the first nodes outside. One of cells has 0 on its outline, along grid lines.

The outside falls into connected pieces, whose outlines have names: ``outer`` what reaches a side that is
not periodic, ``hole1``, ``hole2``, ... what does not, by their lowest nodes, of these the leftmost.

Masks of nodes and of cells of a rectangle, as levels: the outline is a staircase, or runs along grid lines.
"""

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import scipy.ndimage
import scipy.sparse
import scipy.sparse.csgraph

from mosaicdd.axes import all_of, grown, in_rows, sizes
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.fields.fields import Field, Part, Periods, overlap
from mosaicdd.problems.fields.given import is_number, same_values
from mosaicdd.problems.shapes.apertures import cells_touching
from mosaicdd.problems.shapes.outline import OutlinePiece

_AT_ONCE = 2**20  # nodes that are looked at at once
_COORDINATES = ("x", "y", "z")
_ON = 1e-6  # cells from the outline within which a node lies on it


class Shape(ABC):
    """A part of a rectangle.

    ``staircase``: whether the outline is known to a cell only; ``voxels``: the mask that it is, ``(nz, ny, nx)``; None of a
    shape that may cut cells; ``of_cells``: whether it is a mask of cells of a rectangle. ``parameters``: by name, the numbers that move its outline smoothly.
    """

    staircase: bool
    voxels: np.ndarray | None = None
    of_cells: bool = False
    parameters: Mapping[str, float] = MappingProxyType({})

    @abstractmethod
    def require_shape(self, grid: Grid) -> None:
        """Check that it belongs to a grid; raise `ValueError` if not."""

    @abstractmethod
    def level(self, grid: Grid, part: Part) -> np.ndarray:
        """Return the level at the nodes of a part of a grid, ``(rows, columns)``."""

    @abstractmethod
    def outlines(self, grid: Grid, periods: Periods) -> tuple[tuple[str, ...], np.ndarray]:
        """Return the names of the outlines, and their numbers at the nodes outside.

        The numbers ``(ny + 1, nx + 1)`` of nodes inside are 0. Of voxels, those that they themselves belong to.
        """

    def clip_side(self, piece: OutlinePiece, grid: Grid) -> OutlinePiece:
        """Return the part of a side that the shape has."""
        return piece.within(self.level(grid, piece.place))

    def inside(self, level: np.ndarray) -> np.ndarray:
        """Mark the nodes where coefficients are known, by the level."""
        return level < 0

    def on(self, periods: Periods) -> Self:
        """Return the same between periodic sides, where it goes on at the other one."""
        return self

    def with_parameters(self, parameters: Mapping[str, float]) -> "Shape":
        """Return the same with other numbers, by names of its parameters."""
        return self

    def cells(self, part: Part) -> np.ndarray | None:
        """Return the mask of its cells around the nodes of a part; None if it cuts cells."""
        return None


@dataclass(frozen=True, eq=False)
class Level(Shape):
    """The part of a rectangle where a function is negative, best a signed distance.

    `ValueError` if a text is no expression, or parameters are of node values, or no numbers.

    Parameters
    ----------
    values
        A function ``f(x, y)``, the text of an expression, or node values ``(ny + 1, nx + 1)``; in space with z, too.
    lost_cells
        Cells of a mask, ``(L, 2)``, that have no node inside: parts that are one cell wide.
    parameters
        Numbers by the names that they have in the expression, or as arguments of the function.
    """

    values: Any
    staircase: bool = False
    of_cells: bool = False
    lost_cells: np.ndarray = dataclasses.field(default_factory=lambda: np.empty((0, 2), int))
    parameters: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = {name: _number(name, value) for name, value in self.parameters.items()}
        object.__setattr__(self, "parameters", numbers)
        self.field  # noqa: B018 - checks the values

    @cached_property
    def field(self) -> Field:
        """The values as a field, with the numbers put in."""
        values, numbers = self.values, self.parameters
        if isinstance(values, str):
            text = values.removeprefix("expr:")
            expression = Expression(text, (*_COORDINATES, "pi"), **numbers)
            values = expression if numbers else values  # it is checked
        elif numbers and callable(values):
            values = functools.partial(values, **numbers)
        elif numbers:
            raise ValueError(
                f"parameters {', '.join(numbers)} are of an expression or a function, and the distance is "
                "given at nodes: leave them out"
            )
        # Of a box, too: values with an axis more are refused where the grid is known.
        return Field("domain", values, max(2, len(self._shape)))

    @property
    def _shape(self) -> tuple[int, ...]:
        return getattr(self.values, "shape", ())

    def with_parameters(self, parameters: Mapping[str, float]) -> "Level":
        """Return the same with other numbers."""
        return dataclasses.replace(self, parameters={**self.parameters, **parameters})

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Level)
            and (self.staircase, self.of_cells) == (other.staircase, other.of_cells)
            and self.parameters == other.parameters
            and same_values(self.values, other.values)
        )

    def __hash__(self) -> int:
        return hash(self.staircase)

    def __str__(self) -> str:
        known = ", ".join(f"{name}={value:g}" for name, value in self.parameters.items())
        text = "mask" if self.staircase else str(Field("domain", self.values))
        return f"{text} with {known}" if known else text

    def require_shape(self, grid: Grid) -> None:
        """Check that node values belong to a grid and are of one problem; else raise `ValueError`."""
        if len(self._shape) > len(grid.shape):
            raise ValueError(f"a domain is the same for all problems, got {self._shape[0]} of them")
        self.field.require_shape(grid)

    def level(self, grid: Grid, part: Part) -> np.ndarray:
        """Return the values at the nodes of a part, zero where the outline is near.

        `ValueError` if one is not finite.
        """
        values = self.field.sample(grid, part)[0]
        # Of a mask values are 1, however long a cell is in the unit of lengths. It may be the array given.
        return np.where(abs(values) < _ON * min(*grid.steps, 1.0), 0.0, values)

    def outlines(self, grid: Grid, periods: Periods) -> tuple[tuple[str, ...], np.ndarray]:
        """Return the names of the outlines, and their numbers at the nodes outside."""
        outside = self.level(grid, all_of(grid.nodes)) >= 0
        numbers, count = labelled(outside, periods, np.ones((3,) * outside.ndim))
        return named_pieces(numbers, count, periods)


def _number(name: str, value: Any) -> float:
    """Return the value of a parameter; raise `ValueError` if it is no number, or the name one of a coordinate."""
    if not is_number(value) or not math.isfinite(value) or name in (*_COORDINATES, "pi"):
        raise ValueError(
            f"a parameter of a domain is a finite number with a name of its own, not x, y, z or pi; got {name}={value!r}"
        )
    return float(value)


def require_inside(shape: Shape, grid: Grid) -> None:
    """Check that some node lies inside a shape; else raise `ValueError`."""
    strips = in_rows(all_of(grid.nodes), _AT_ONCE)
    if not any((shape.level(grid, strip) < 0).any() for strip in strips):
        raise ValueError(
            f"the domain is empty: none of the {math.prod(grid.nodes)} nodes lies inside"
        )


def inside_ring(shape: Shape | None, grid: Grid, part: Part) -> np.ndarray | None:
    """Return the mask of nodes inside a shape, with one more all around; None of a rectangle."""
    if shape is None:
        return None
    ring = grown(part)
    there, where = overlap(ring, grid.nodes)
    inside = np.zeros(sizes(ring), bool)
    inside[where] = shape.inside(shape.level(grid, there))
    return inside


def has_values(shape: Shape | None, grid: Grid, part: Part, field: np.ndarray) -> np.ndarray:
    """Return the mask of nodes where fields ``(.., rows, columns)`` have values.

    At all nodes inside, finite or not; of whole voxels at those on the outline, too. Beyond these a field is NaN, but
    where its outline runs through a node that has an unknown, or a given value.
    ``shape``: None of a rectangle, where all have.
    """
    finite = np.isfinite(field)
    if shape is None:
        return np.ones(finite.shape, bool)
    return finite if finite.all() else finite | shape.inside(shape.level(grid, part))


def require_well_inside(
    shape: Shape, grid: Grid, around: np.ndarray, places: Sequence[tuple[float, ...]]
) -> None:
    """Check that points lie inside a shape, and have whole cells around them.

    Parameters
    ----------
    around
        The nodes around each point, ``(points, nodes, axes)``.
    places
        Of the points, x first.
    """
    for nodes, place in zip(around, places, strict=True):
        part = tuple(slice(int(n.min()), int(n.max()) + 1) for n in nodes.T)
        inside = inside_ring(shape, grid, part)
        if inside is not None and not inside.all():
            text = ", ".join(f"{value:.10g}" for value in place)
            raise ValueError(
                f"the well at ({text}) is outside of the domain's shape, or less than two cells of {grid.cell} from "
                "its outline: move it inside, or take more cells"
            )


def labelled(
    where: np.ndarray, periods: Periods, around: np.ndarray | None = None
) -> tuple[np.ndarray, int]:
    """Label the connected pieces of a mask of nodes, which go on at periodic sides.

    ``around``: which of the 3 x 3 nodes around one it is connected with, by default those along the axes.

    Returns
    -------
    numbers : ndarray
        From 1 on, by the pieces' lowest nodes, of these the leftmost; 0 elsewhere.
    count : int
        How many pieces there are.
    """
    parts, count = scipy.ndimage.label(where, around)
    joined = [
        np.moveaxis(parts, axis, 0)[[0, -1]].reshape(2, -1)
        for axis, period in enumerate(periods)
        if period
    ]
    if not joined:
        return parts, count
    first, last = np.concatenate(joined, axis=1)
    both = (first > 0) & (last > 0)
    links = scipy.sparse.coo_array((both[both], (first[both], last[both])), shape=(count + 1,) * 2)
    components, numbers = scipy.sparse.csgraph.connected_components(links, directed=False)
    # What is elsewhere is a component alone, with the number 0.
    return numbers[parts], components - 1


def named_pieces(
    numbers: np.ndarray, count: int, periods: Periods
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the outlines of pieces outside, ``1..count``, and the numbers of these."""
    holes = enclosed(numbers, count, periods)
    of_piece = np.zeros(count + 1, np.int32)
    of_piece[holes] = np.arange(1, len(holes) + 1)
    return ("outer", *(f"hole{k + 1}" for k in range(len(holes)))), of_piece[numbers]


def enclosed(numbers: np.ndarray, count: int, periods: Periods = (None, None)) -> np.ndarray:
    """Return the pieces of ``1..count`` that reach no side but periodic ones."""
    edges = [
        np.moveaxis(numbers, axis, 0)[[0, -1]].ravel()
        for axis, period in enumerate(periods)
        if not period
    ]
    return np.setdiff1d(np.arange(1, count + 1), np.concatenate([[0], *edges]))


def level_of_mask(mask: np.ndarray) -> Level:
    """Return the shape of a mask of nodes ``(ny + 1, nx + 1)``, true inside.

    `ValueError` if it is empty, or has a hole thinner than a cell.
    """
    if not mask.any():
        raise ValueError("the mask is true nowhere: there is no domain")
    numbers, count = scipy.ndimage.label(~mask, np.ones((3, 3)))
    wide = scipy.ndimage.binary_opening(~mask, np.ones((2, 2)))
    thin = np.setdiff1d(enclosed(numbers, count), numbers[wide])
    if len(thin):
        row, column = np.argwhere(numbers == thin[0])[0]
        raise ValueError(
            f"the mask has {len(thin)} holes thinner than a cell, the first at node "
            f"({row}, {column}) (row, column): a hole has 2 x 2 nodes somewhere; widen or fill them, or "
            "take a finer grid"
        )
    return Level(-mask.astype(np.int8), staircase=True)


def level_of_cells(cells: np.ndarray) -> Level:
    """Return the shape of a mask of cells ``(ny, nx)``, true inside: its outline runs along grid lines.

    The level is 0 on the outline; so what the cells beside it have of volumes and faces is exact.

    `ValueError` if it is empty, falls apart where it is one cell wide, or has a hole thinner than a cell.
    """
    nodes = mask_of_cells(cells)
    level_of_mask(nodes)  # checks it
    held = cells_touching(nodes)
    on = cells_touching(np.pad(held, 1))
    level = np.where(nodes, -1, np.where(on, 0, 1)).astype(np.int8)
    return Level(level, lost_cells=np.argwhere(cells & ~held), of_cells=True)


def mask_of_cells(cells: np.ndarray) -> np.ndarray:
    """Return the mask of nodes with cells of the domain alone around them, ``(ny, nx)`` cells.

    `ValueError` if parts of the domain hang together by cells without such a node, which would be lost.
    """
    nodes = ~cells_touching(~np.pad(cells, 1, mode="edge"))
    whole, count = scipy.ndimage.label(cells)
    parts, _ = scipy.ndimage.label(nodes)
    y, x = np.nonzero(nodes)
    of_node = whole[np.minimum(y, len(cells) - 1), np.minimum(x, cells.shape[1] - 1)]
    apart = np.bincount(np.unique([of_node, parts[y, x]], axis=1)[0], minlength=count + 1) > 1
    if apart.any():
        split = cells & apart[whole]
        thin = split & ~cells_touching(
            nodes
        )  # or none: then it is two cells wide, but not side by side
        row, column = np.argwhere(thin if thin.any() else split)[0]
        raise ValueError(
            f"the mask falls apart where it is one cell wide, as near cell ({row}, {column}) (row, column): "
            "a bridge is 2 cells wide, with nodes inside; widen or cut it, or take a finer grid"
        )
    return nodes
