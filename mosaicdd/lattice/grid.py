"""The global grid: cells, nodes and spacing. The order of the axes is that of arrays everywhere."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from mosaicdd.lattice.axes import times


@dataclass(frozen=True)
class Grid:
    """A uniform grid of cells, with its lower-left node at the origin.

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
    """

    shape: tuple[int, ...]
    spacing: float
    steps: tuple[float, ...] = ()

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

    @classmethod
    def of_cells(cls, shape: tuple[int, ...], steps: Sequence[float]) -> Self:
        """Return the grid of cells with the sides ``steps``, per axis."""
        if len(set(steps)) == 1:
            return cls(shape, steps[0])
        logarithms = [math.log(step) if step > 0 else math.nan for step in steps]
        mean = math.exp(math.fsum(logarithms) / len(steps))
        return cls(shape, mean, tuple(steps))

    def coarser(self, shape: tuple[int, ...], by: int) -> "Grid":
        """Return a grid of so many cells whose sides are so many times as long."""
        return Grid.of_cells(shape, [by * step for step in self.steps])

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes per axis, ``(ny + 1, nx + 1)``."""
        return tuple(cells + 1 for cells in self.shape)

    @property
    def size(self) -> tuple[float, ...]:
        """Extent per axis, in units of domain length."""
        return tuple(cells * step for cells, step in zip(self.shape, self.steps, strict=True))

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
        return tuple(np.arange(p.start, p.stop) * s for p, s in zip(nodes, self.steps, strict=True))
