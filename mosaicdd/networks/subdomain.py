"""One subdomain: the square on which a local solver works, in space a cube.

Points are (y, x) in cells, counted from the subdomain's lower-left corner; in space (z, y, x).
"""

import math
from dataclasses import dataclass

import numpy as np

from mosaicdd.axes import others
from mosaicdd.grid.grid import perimeter_nodes


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
        """Return the subdomain of side 0.5 with a number of perimeter nodes.

        A square has ``4 m`` of them, a cube ``6 m**2 + 2``.

        Of even ``m`` the first are multiples of 8 and the second are not. `ValueError` if neither has so many.
        """
        axes = 3 if nodes % 8 else 2
        made = cls(2 * round(math.sqrt((nodes - 2) / 24)) if axes == 3 else nodes // 4, axes=axes)
        if len(made.perimeter) != nodes:
            raise ValueError(f"no square and no cube has a perimeter of {nodes} nodes")
        return made

    @property
    def kind(self) -> str:
        """Its name in messages: ``square`` or ``cube``."""
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
        """Return the coarse nodes of the perimeter, every ``s / q``-th, in order.

        ``(8 q, 2)``; of a cube ``(26, 3)``, with ``q = 1``.
        """
        return self.cells // (2 * points) * perimeter_nodes((2 * points,) * self.axes)

    def hats(self, points: int = 1) -> np.ndarray:
        """Return hats on the perimeter, 1 at a coarse node and 0 at the next, ``(8 q, 4 m)``.

        On the faces of a cube they are bilinear, ``(26, P)`` with ``q = 1``.
        """
        away = np.abs(self.perimeter - self.coarse_nodes(points)[:, None])
        return np.maximum(0.0, 1.0 - away / (self.cells // (2 * points))).prod(axis=2)

    @property
    def interior(self) -> np.ndarray:
        """Nodes strictly inside, row by row: ``((m - 1)**2, 2)`` integers, of a cube ``((m - 1)**3, 3)``."""
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
