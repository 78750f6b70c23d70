"""The global grid: cells, nodes and spacing. The order of the axes is that of arrays everywhere."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A uniform grid of square cells, in space cubes, with its lower-left node at the origin.

    Parameters
    ----------
    shape
        Cells per axis, ``(ny, nx)`` in the plane; there are ``(ny + 1, nx + 1)`` nodes.
    spacing
        Side of a cell, in units of domain length.
    """

    shape: tuple[int, ...]
    spacing: float

    def __post_init__(self) -> None:
        if min(self.shape) < 1:
            raise ValueError(f"a grid needs at least 1 cell per axis, got {self.shape}")
        if not 1e-100 < self.spacing < 1e100:  # its square is a number, too
            raise ValueError(f"the grid spacing must be positive and finite, got {self.spacing}")

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes per axis, ``(ny + 1, nx + 1)``."""
        return tuple(cells + 1 for cells in self.shape)

    @property
    def size(self) -> tuple[float, ...]:
        """Extent per axis, in units of domain length."""
        return tuple(cells * self.spacing for cells in self.shape)
