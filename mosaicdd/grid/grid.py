"""The global grid: cells, nodes and spacing. The order of the axes is that of arrays everywhere.

The order of the nodes on the perimeter of a rectangle, or on the surface of a box.

Points are (y, x) in cells, counted from the lower-left corner. A perimeter is made of *faces*, one for
each end of each axis, which hold each node once. That of a square of ``m`` cells a side has ``4 m``
nodes, counter-clockwise from the lower-left corner, as files and networks have it. With other numbers
of axes the faces come axis by axis, and a node is in the first of them that it lies on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from mosaicdd.axes import at, coordinates, others, spelled, times


class Face(NamedTuple):
    """The nodes of a perimeter that lie at one end of an axis.

    Parameters
    ----------
    axis, end
        Where: constant in which axis, at its low (0) or its high end (1).
    spans
        Along each other axis, the first node and the number of nodes.
    backwards
        Whether they are run through from the high to the low end of the other axis.
    """

    axis: int
    end: int
    spans: tuple[tuple[int, int], ...]
    backwards: bool = False


def perimeter_faces(shape: tuple[int, ...]) -> list[Face]:
    """Return the faces of a rectangle, or box, of so many cells per axis, in the order of its perimeter."""
    axes = len(shape)
    if axes == 2:
        ny, nx = shape
        return [
            Face(0, 0, ((0, nx),)),
            Face(1, 1, ((0, ny),)),
            Face(0, 1, ((1, nx),), backwards=True),
            Face(1, 0, ((1, ny),), backwards=True),
        ]
    return [
        Face(
            axis,
            end,
            tuple((1, shape[k] - 1) if k < axis else (0, shape[k] + 1) for k in others(axis, axes)),
        )
        for axis in range(axes)
        for end in (0, 1)
    ]


def perimeter_nodes(shape: tuple[int, ...]) -> np.ndarray:
    """Return the perimeter of a rectangle, or box, of so many cells per axis, ``(P, axes)`` integers."""
    axes, faces = len(shape), []
    for axis, end, spans, backwards in perimeter_faces(shape):
        nodes = np.empty((*(count for _, count in spans), axes), int)
        nodes[..., axis] = end * shape[axis]
        for place, (other, (first, count)) in enumerate(
            zip(others(axis, axes), spans, strict=True)
        ):
            along = np.arange(first, first + count)
            nodes[..., other] = along.reshape(at(place, axes - 1, -1, 1))
        nodes = nodes.reshape(-1, axes)
        faces.append(nodes[::-1] if backwards else nodes)
    return np.concatenate(faces)


ROUNDING = 1e-9
"""Cells by which a place may miss a node, or the domain."""

_TELLS_APART = 1e-4  # of a cell, to which places are known at least


@dataclass(frozen=True)
class Grid:
    """A uniform grid of cells.

    Cells are squares, in space cubes, or else rectangles or boxes, all alike. Then `spacing` is the side of a square
    (a cube) of the same area (volume): equations are scaled by it, as if cells were squares and what conducts along
    the axes another, by the square of `aspect`; places are counted in `steps`.

    Parameters
    ----------
    shape
        Cells per axis, ``(ny, nx)`` in the plane; there are ``(ny + 1, nx + 1)`` nodes.
    spacing
        Side of a cell, in units of domain length.
    steps
        The sides of a cell per axis, ``(dy, dx)`` in the plane; by default all are `spacing`. See `of_cells`.
    origin
        The coordinates of its first node per axis, ``(y, x)`` in the plane; by default all are 0.
    """

    shape: tuple[int, ...]
    spacing: float
    steps: tuple[float, ...] = ()
    origin: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise ValueError(f"a grid needs at least 1 cell per axis, got {self.shape}")
        for step in (*self.steps, self.spacing):
            if not 1e-100 < step < 1e100:  # its square is a number, too
                raise ValueError(
                    f"the grid spacing must be positive and finite, got {step} (1e-100 to 1e+100)"
                )
        if not self.steps:
            object.__setattr__(self, "steps", (self.spacing,) * len(self.shape))
        if not self.origin:
            object.__setattr__(self, "origin", (0.0,) * len(self.shape))
        for step, low, high in zip(self.steps, *zip(*self.ends, strict=True), strict=True):
            rounding = math.ulp(max(abs(low), abs(high)))
            if not rounding < _TELLS_APART * step:  # NaN, too
                raise ValueError(
                    f"nodes {step:g} apart cannot be told apart at {low:g}, where numbers are rounded by {rounding:.1g}: "
                    "give another origin"
                )

    def __str__(self) -> str:
        """Say in a few words what it is."""
        place = ", ".join(f"{at:.10g}" for at in self.origin[::-1])
        return f"{times(self.shape)} cells with a spacing of {self.cell}" + (
            f" from ({place}) on" if any(self.origin) else ""
        )

    @classmethod
    def of_cells(
        cls, shape: tuple[int, ...], steps: Sequence[float], origin: Sequence[float] = ()
    ) -> Self:
        """Return the grid of cells with the sides ``steps``, per axis, and its first node at the origin."""
        if len(set(steps)) == 1:
            return cls(shape, steps[0], origin=tuple(origin))
        logarithms = [math.log(step) if step > 0 else math.nan for step in steps]
        mean = math.exp(math.fsum(logarithms) / len(steps))
        return cls(shape, mean, tuple(steps), tuple(origin))

    def coarser(self, shape: tuple[int, ...], by: int) -> "Grid":
        """Return a grid of so many cells whose sides are so many times as long."""
        return Grid.of_cells(shape, [by * step for step in self.steps], self.origin)

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Nodes per axis, ``(ny + 1, nx + 1)``."""
        return tuple([cells + 1 for cells in self.shape])

    @cached_property
    def size(self) -> tuple[float, ...]:
        """Extent per axis, in units of domain length."""
        return tuple([cells * step for cells, step in zip(self.shape, self.steps, strict=True)])

    @cached_property
    def ends(self) -> tuple[tuple[float, float], ...]:
        """The coordinates of the first and of the last node, per axis."""
        return tuple([(low, low + size) for low, size in zip(self.origin, self.size, strict=True)])

    @property
    def reach(self) -> str:
        """Between which corners it lies, x first, for messages."""
        low, high = (
            ", ".join(f"{at:.10g}" for at in corner)
            for corner in zip(*self.ends[::-1], strict=True)
        )
        return f"from ({low}) to ({high})"

    @property
    def aspect(self) -> tuple[float, ...]:
        """The sides of a cell per axis in units of `spacing`; empty where all are the same."""
        return tuple(s / self.spacing for s in self.steps) if len(set(self.steps)) > 1 else ()

    @property
    def cell(self) -> str:
        """The sides of a cell as people write them, that along x first; one where all are the same."""
        return times([f"{step:g}" for step in (self.steps if self.aspect else self.steps[:1])])

    def face(self, axis: int) -> float:
        """Return the length (in space the area) of a cell's face across an axis, in powers of `spacing`."""
        return self.spacing / self.steps[axis]

    def places(self, nodes: Sequence[slice]) -> tuple[np.ndarray, ...]:
        """Return the coordinates of some nodes along each axis, by their slices, in units of domain length."""
        axes = zip(nodes, self.steps, self.origin, strict=True)
        return tuple([np.arange(p.start, p.stop) * step + first for p, step, first in axes])

    def at(self, cells: Any) -> np.ndarray:
        """Return the coordinates of places in cells from the first node, ``(.., axes)`` in the order of the axes."""
        return np.multiply(cells, self.steps) + self.origin

    def require_inside(self, place: Sequence[float], what: str) -> None:
        """Check that a place, (x, y), in space (x, y, z), is no further out than the edge, and of as many coordinates.

        `ValueError` if not, which begins with what it is of, as ``the well at ({}) is outside``.
        """
        axes = len(self.shape)
        if len(place) != axes:
            told = what.partition(")")[0].format(spelled(place))
            raise ValueError(
                f"{told}) has {len(place)} coordinates, the domain {axes}: give ({coordinates(axes)})"
            )
        cells = self.cells(np.asarray(place, float)[::-1])
        if ((cells < 0) | (cells > self.shape)).any():
            raise ValueError(
                f"{what.format(spelled(place))} of the domain, which goes {self.reach}: move it, or give the domain another origin"
            )

    def cells(self, places: Any) -> np.ndarray:
        """Return where places, ``(.., axes)`` in the order of the axes, are in cells from the first node.

        What misses a node by rounding only is at it.
        """
        cells = np.subtract(places, self.origin) / self.steps
        nodes = np.rint(cells)
        rounding = [math.ulp(max(map(abs, ends))) for ends in self.ends]
        near = np.maximum(ROUNDING, 4 * np.divide(rounding, self.steps))
        with np.errstate(invalid="ignore"):  # infinite ends of a window, which are refused later
            return np.where(abs(cells - nodes) < near, nodes, cells)
