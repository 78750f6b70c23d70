"""One subdomain: the square on which a local solver works.

Points are (y, x) in cells, counted from the subdomain's lower-left corner.
"""

from dataclasses import dataclass

import numpy as np

from mosaicdd.lattice.perimeter import square_perimeter


@dataclass(frozen=True)
class Subdomain:
    """A square of ``cells`` x ``cells`` grid cells with side ``size``.

    Parameters
    ----------
    cells
        Cells per side, ``m``; even, so that two lattice cells fit.
    size
        Side, in units of domain length.
    """

    cells: int = 32
    size: float = 0.5

    def __post_init__(self) -> None:
        if self.cells < 2 or self.cells % 2:
            raise ValueError(f"a subdomain needs an even number >= 2 of cells, got {self.cells}")
        if not self.size > 0:
            raise ValueError(f"the size of a subdomain must be positive, got {self.size}")

    @property
    def spacing(self) -> float:
        """Grid spacing, in units of domain length."""
        return self.size / self.cells

    @property
    def perimeter(self) -> np.ndarray:
        """Perimeter nodes in order, ``(4 m, 2)`` integers."""
        return square_perimeter(self.cells)

    def hats(self, points: int = 1) -> np.ndarray:
        """Return hats on the perimeter, 1 at every ``s / q``-th node and 0 at the next, ``(8 q, 4 m)``."""
        nodes, step = 4 * self.cells, self.cells // (2 * points)
        away = np.abs(np.arange(nodes) - step * np.arange(nodes // step)[:, None])
        return np.maximum(0.0, 1.0 - np.minimum(away, nodes - away) / step)

    @property
    def interior(self) -> np.ndarray:
        """Nodes strictly inside, row by row from the bottom, ``((m - 1)**2, 2)`` integers."""
        inner = np.arange(1, self.cells)
        y, x = np.meshgrid(inner, inner, indexing="ij")
        return np.stack([y.ravel(), x.ravel()], axis=1)

    @property
    def centre_lines(self) -> np.ndarray:
        """Nodes of the horizontal, then of the vertical centre line, ``(2 (m - 1), 2)`` integers.

        The centre itself stands in both lines, as lattice nodes stand in both line families of the
        interface.
        """
        inner = np.arange(1, self.cells)
        middle = np.full_like(inner, self.cells // 2)
        return np.concatenate([np.stack([middle, inner], 1), np.stack([inner, middle], 1)])
