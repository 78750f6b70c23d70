"""The global grid: cells, nodes and spacing. Axis order is (y, x) everywhere."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A uniform grid of square cells with its lower-left node at the origin.

    Parameters
    ----------
    shape
        Cells per axis, ``(ny, nx)``; there are ``(ny + 1, nx + 1)`` nodes.
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
        return self.shape[0] + 1, self.shape[1] + 1

    @property
    def size(self) -> tuple[float, float]:
        """Extent per axis, in units of domain length."""
        return self.shape[0] * self.spacing, self.shape[1] * self.spacing
