"""The lattice: half-overlapping subdomains over the whole grid.

Lattice lines, in space planes, lie every ``s = m / 2`` cells. Lattice node ``(i, j)`` is grid node ``(i s, j s)``;
each node inside the domain is the centre of exactly one subdomain, which therefore is named by its
centre: ``1 <= i < K_y``, ``1 <= j < K_x`` with ``K = N / s`` lattice cells per axis.
"""

import functools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mosaicdd.axes import letters, others
from mosaicdd.grid.grid import Grid
from mosaicdd.networks.subdomain import Subdomain


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
