"""The lattice: half-overlapping subdomains over the whole grid.

Lattice lines, in space planes, lie every ``s = m / 2`` cells. Lattice node ``(i, j)`` is grid node ``(i s, j s)``;
each node inside the domain is the centre of exactly one subdomain, which therefore is named by its
centre: ``1 <= i < K_y``, ``1 <= j < K_x`` with ``K = N / s`` lattice cells per axis.

Along a periodic axis line ``K`` is line 0 again: there is no edge, and the centres are ``0 <= i < K``.
"""

import functools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mosaicdd.lattice.axes import letters, others, times
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.unsupported import Unsupported

_THIN = 0.375
"""Of the distance of lattice lines: below, the last two of a periodic axis hardly overlap with others.

On 97 x 64 cells, the last lattice cell 1 of 16 wide, it takes 17 iterations; 4 wide 6, 6 wide 5, 8 to 16 wide 4."""


def fits(grid: Grid, subdomain: Subdomain) -> bool:
    """Say whether lattice lines of these subdomains divide a grid."""
    s = subdomain.cells // 2
    return all(cells % s == 0 and cells >= 2 * s for cells in grid.shape)


def period_of(cells: int, spacing: int) -> int:
    """Return after how many nodes a periodic lattice with so many cells between its lines comes round."""
    return -(-cells // spacing) * spacing


def spacing_between(
    grid: Grid, spacing: int, periodic: tuple[bool, ...], *, whole: bool = False
) -> int:
    """Return the distance of lattice lines that leaves no thin lattice cell between periodic sides.

    It is more than half of ``spacing``, and at most that; where none of these does, it is that. ``whole``: it leaves no
    smaller cell at all, and the cells between the sides are even; `Unsupported` where none does.
    """
    around = [cells for cells, wraps in zip(grid.shape, periodic, strict=True) if wraps]

    def thinnest(s: int) -> float:
        return min(((cells - 1) % s + 1) / s for cells in around)

    if whole and around:
        every = range(spacing, 3, -1)
        fitting = [s for s in every if all(cells % s == cells % 2 == 0 for cells in around)]
        if not fitting or min(around) <= spacing:
            raise Unsupported(
                f"with a mixed derivative, axy, or bilinear elements periodic sides have even numbers of cells between them, more than {spacing}, "
                f"that one number from {every[-1]} to {spacing} divides; here there are {times(grid.shape)} cells"
            )
        return fitting[0]
    if not around or min(around) <= spacing:
        return spacing
    choices = range(spacing, spacing // 2, -1)
    return next((s for s in choices if thinnest(s) >= _THIN), spacing)


@dataclass(frozen=True)
class Lattice:
    """Placement of the subdomains on the grid.

    `ValueError` if the spacings differ, or the lattice does not divide the grid.

    Parameters
    ----------
    margins
        Cells that the lattice reaches beyond the grid at the low and the high end of each axis, by
        default none. There are no values; with them the edge of the grid lies inside the lattice, and may have unknowns.
        Along a periodic axis they are nodes on the way from the last cell back to the first node.
    periodic
        Along which axes the last line is the first, by default none.
    """

    grid: Grid
    subdomain: Subdomain
    margins: tuple[tuple[int, int], ...] = ()
    periodic: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        axes = len(self.grid.shape)
        object.__setattr__(self, "margins", self.margins or ((0, 0),) * axes)
        object.__setattr__(self, "periodic", self.periodic or (False,) * axes)
        if not np.isclose(self.grid.spacing, self.subdomain.spacing, rtol=1e-12, atol=0):
            raise ValueError(
                f"the grid spacing is {self.grid.spacing:g}, "
                f"the local solver's is {self.subdomain.spacing:g}; they must be equal"
            )
        sizes = zip(letters(axes), self.grid.shape, self.margins, strict=True)
        for letter, cells, margin in reversed(list(sizes)):
            self._check_cells(f"n{letter}", cells + sum(margin))

    @classmethod
    def around(cls, grid: Grid, subdomain: Subdomain, periodic: tuple[bool, ...] = ()) -> "Lattice":
        """Return a lattice that reaches beyond a grid of any number of cells, on sides that are no pair.

        `ValueError` if there are too few cells along a periodic axis.
        """
        s, margins = subdomain.cells // 2, []
        axes = len(grid.shape)
        sizes = zip(letters(axes), grid.shape, periodic or (False,) * axes, strict=True)
        for letter, cells, around in sizes:
            if around and cells <= s:
                raise ValueError(
                    f"n{letter} must be at least {s + 1} between periodic sides, two subdomains, got {cells}"
                )
            if around:
                margins.append((0, period_of(cells, s) - cells))
                continue
            more = max(-(-(cells + 2) // s), 2) * s - cells
            margins.append((more // 2, more - more // 2))
        return cls(grid, subdomain, tuple(margins), periodic)

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
        sizes = zip(self.grid.shape, self.margins, strict=True)
        return tuple((cells + sum(margin)) // self.spacing for cells, margin in sizes)

    @cached_property
    def periods(self) -> tuple[int | None, ...]:
        """After how many nodes of the lattice each axis comes round; None where it does not."""
        sizes = zip(self.cells, self.periodic, strict=True)
        return tuple(cells * self.spacing if around else None for cells, around in sizes)

    @cached_property
    def rounds(self) -> tuple[int | None, ...]:
        """After how many nodes of the grid each axis comes round; None where it does not."""
        sizes = zip(self.grid.shape, self.periodic, strict=True)
        return tuple(cells if around else None for cells, around in sizes)

    @cached_property
    def subdomains(self) -> tuple[int, ...]:
        """Subdomains, that is lattice nodes inside the domain, per axis."""
        return tuple(k - first for k, first in zip(self.cells, self.first_centre, strict=True))

    @cached_property
    def first_centre(self) -> tuple[int, ...]:
        """The lattice node per axis that the first subdomain is around."""
        return tuple(0 if around else 1 for around in self.periodic)

    @cached_property
    def lines(self) -> tuple[int, ...]:
        """Lattice lines per axis, each once."""
        return tuple(k + first for k, first in zip(self.cells, self.first_centre, strict=True))

    @cached_property
    def first_node(self) -> tuple[int, ...]:
        """The grid node at the lattice's lower-left corner; with margins it is beyond the grid."""
        return tuple(-low for low, _ in self.margins)

    @cached_property
    def last_node(self) -> tuple[int, ...]:
        """The grid node at the upper-right corner, likewise."""
        ends = zip(self.first_node, self.cells, strict=True)
        return tuple(node + cells * self.spacing for node, cells in ends)

    def line_shape(self, axis: int) -> tuple[int, ...]:
        """Shape of all lines constant in ``axis``: lattice lines, grid nodes along each."""
        along = others(axis, len(self.cells))
        return self.cells[axis] + 1, *(self.cells[other] * self.spacing + 1 for other in along)

    @cached_property
    def unknowns(self) -> int:
        """Interface nodes inside the domain, each counted once."""
        sizes = zip(self.cells, self.first_centre, strict=True)
        nodes = [k * self.spacing - first for k, first in sizes]
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
