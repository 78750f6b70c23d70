"""The lattice: half-overlapping subdomains over the whole grid.

Lattice lines, in space planes, lie every ``s = m / 2`` cells. Lattice node ``(i, j)`` is grid node ``(i s, j s)``;
each node inside the domain is the centre of exactly one subdomain, which therefore is named by its
centre: ``1 <= i < K_y``, ``1 <= j < K_x`` with ``K = N / s`` lattice cells per axis.

The order of the nodes on the perimeter of a rectangle, or on the surface of a box: said here only.

Points are (y, x) in cells, counted from the lower-left corner. A perimeter is made of *faces*, one for
each end of each axis, which hold each node once. That of a square of ``m`` cells a side has ``4 m``
nodes, counter-clockwise from the lower-left corner, as files and networks have it. With other numbers
of axes the faces come axis by axis, and a node is in the first of them that it lies on.

One subdomain: the square on which a local solver works, in space a cube.

Points are (y, x) in cells, counted from the subdomain's lower-left corner; in space (z, y, x).
"""

import functools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mosaicdd.lattice.axes import at, letters, others
from mosaicdd.lattice.grid import Grid


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


@dataclass(frozen=True)
class Subdomain:
    """A square of ``cells`` x ``cells`` grid cells with side ``size``, in space a cube.

    Parameters
    ----------
    cells
        Cells per side, ``m``; even, so that two lattice cells fit.
    size
        Side, in units of domain length.
    axes
        2 of a square, 3 of a cube.
    """

    cells: int = 32
    size: float = 0.5
    axes: int = 2

    def __post_init__(self) -> None:
        if self.cells < 2 or self.cells % 2:
            raise ValueError(f"a subdomain needs an even number >= 2 of cells, got {self.cells}")
        if not self.size > 0:
            raise ValueError(f"the size of a subdomain must be positive, got {self.size}")

    @classmethod
    def of_perimeter(cls, nodes: int) -> "Subdomain":
        """Return the one of side 0.5 with so many perimeter nodes: ``4 m`` of a square, ``6 m**2 + 2`` of a cube.

        Of even ``m`` the first are multiples of 8 and the second are not. `ValueError` if neither has so many.
        """
        axes = 3 if nodes % 8 else 2
        made = cls(2 * round(math.sqrt((nodes - 2) / 24)) if axes == 3 else nodes // 4, axes=axes)
        if len(made.perimeter) != nodes:
            raise ValueError(f"no square and no cube has a perimeter of {nodes} nodes")
        return made

    @property
    def kind(self) -> str:
        """What people call it: ``square`` or ``cube``."""
        return "square" if self.axes == 2 else "cube"

    @property
    def spacing(self) -> float:
        """Grid spacing, in units of domain length."""
        return self.size / self.cells

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells per axis."""
        return (self.cells,) * self.axes

    @property
    def perimeter(self) -> np.ndarray:
        """Perimeter nodes in order, ``(P, 2)`` integers; ``P = 4 m`` of a square."""
        return perimeter_nodes(self.shape)

    def coarse_nodes(self, points: int = 1) -> np.ndarray:
        """Return every ``s / q``-th node of the perimeter, in order, ``(8 q, 2)``; of a cube ``(26, 3)`` with ``q = 1``."""
        return self.cells // (2 * points) * perimeter_nodes((2 * points,) * self.axes)

    def hats(self, points: int = 1) -> np.ndarray:
        """Return hats on the perimeter, 1 at a coarse node and 0 at the next, ``(8 q, 4 m)``.

        On the faces of a cube they are bilinear, ``(26, P)`` with ``q = 1``.
        """
        away = np.abs(self.perimeter - self.coarse_nodes(points)[:, None])
        return np.maximum(0.0, 1.0 - away / (self.cells // (2 * points))).prod(axis=2)

    @property
    def interior(self) -> np.ndarray:
        """Nodes strictly inside, row by row from the bottom, ``((m - 1)**2, 2)`` integers, of a cube ``((m - 1)**3, 3)``."""
        return np.indices((self.cells - 1,) * self.axes).reshape(self.axes, -1).T + 1

    @property
    def centre_lines(self) -> np.ndarray:
        """Nodes of the horizontal, then of the vertical centre line, ``(2 (m - 1), 2)`` integers.

        The centre itself stands in both lines, as lattice nodes stand in both line families of the
        interface. In space there are three planes.
        """
        lines = []
        for axis in range(self.axes):
            along = np.indices((self.cells - 1,) * (self.axes - 1)).reshape(self.axes - 1, -1).T + 1
            nodes = np.full((len(along), self.axes), self.cells // 2)
            nodes[:, others(axis, self.axes)] = along
            lines.append(nodes)
        return np.concatenate(lines)


def fits(grid: Grid, subdomain: Subdomain) -> bool:
    """Say whether lattice lines of these subdomains divide a grid."""
    s = subdomain.cells // 2
    return all(cells % s == 0 and cells >= 2 * s for cells in grid.shape)


@dataclass(frozen=True)
class Lattice:
    """Placement of the subdomains on the grid.

    `ValueError` if the spacings differ, or the lattice does not divide the grid.
    """

    grid: Grid
    subdomain: Subdomain

    def __post_init__(self) -> None:
        if not np.isclose(self.grid.spacing, self.subdomain.spacing, rtol=1e-12, atol=0):
            raise ValueError(
                f"the grid spacing is {self.grid.spacing:g}, "
                f"the local solver's is {self.subdomain.spacing:g}; they must be equal"
            )
        sizes = zip(letters(len(self.grid.shape)), self.grid.shape, strict=True)
        for letter, cells in reversed(list(sizes)):
            self._check_cells(f"n{letter}", cells)

    def _check_cells(self, name: str, cells: int) -> None:
        s, m = self.spacing, self.subdomain.cells
        below = max(cells // s * s, m)
        nearest = str(m) if cells < m else f"{below}, {below + s}"
        if cells % s:
            raise ValueError(
                f"{name} must be a multiple of {s} (half a subdomain), got {cells}; "
                f"nearest: {nearest}; or any number by the local solver 'exact'"
            )
        if cells < m:
            raise ValueError(f"{name} must be at least {m} (one subdomain), got {cells}")

    @property
    def spacing(self) -> int:
        """Distance of lattice lines, in cells: half a subdomain."""
        return self.subdomain.cells // 2

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """Lattice cells per axis, ``(K_y, K_x)``."""
        return tuple(cells // self.spacing for cells in self.grid.shape)

    @cached_property
    def subdomains(self) -> tuple[int, ...]:
        """Subdomains, that is lattice nodes inside the domain, per axis."""
        return tuple(k - 1 for k in self.cells)

    @cached_property
    def lines(self) -> tuple[int, ...]:
        """Lattice lines per axis."""
        return tuple(k + 1 for k in self.cells)

    def line_shape(self, axis: int) -> tuple[int, ...]:
        """Shape of all lines constant in ``axis``: lattice lines, grid nodes along each."""
        along = others(axis, len(self.cells))
        return self.cells[axis] + 1, *(self.cells[other] * self.spacing + 1 for other in along)

    @cached_property
    def unknowns(self) -> int:
        """Interface nodes inside the domain, each counted once."""
        nodes = [k * self.spacing - 1 for k in self.cells]
        between = [n - on for n, on in zip(nodes, self.subdomains, strict=True)]
        return math.prod(nodes) - math.prod(between)

    @property
    def hat(self) -> np.ndarray:
        """The weights ``1 - |t - s| / s`` at ``t = 1..m - 1`` cells from the edge of a subdomain."""
        s = self.spacing
        return 1.0 - np.abs(np.arange(1, 2 * s) - s) / s

    @property
    def centre_weights(self) -> np.ndarray:
        """The weights of a subdomain's centre lines, ``(2 (m - 1),)``: of each line `hat`; of a plane, crossed hats."""
        axes = len(self.grid.shape)
        crossed = functools.reduce(np.multiply.outer, [self.hat] * (axes - 1), np.ones(()))
        return np.tile(crossed.ravel(), axes)

    def hats(self, axis: int, start: int, stop: int) -> np.ndarray:
        """Return the weights of the partition of unity along one axis.

        They are the `hat`; where no other subdomain reaches, next to the edge of the domain, 1.
        Returns ``(stop - start, m - 1)`` for the subdomains ``start..stop`` at ``t = 1..m - 1``.
        """
        s = self.spacing
        t = np.arange(1, 2 * s)
        weights = np.tile(self.hat, (stop - start, 1))
        if start == 1:
            weights[0, t < s] = 1.0
        if stop == self.cells[axis]:
            weights[-1, t > s] = 1.0
        return weights
