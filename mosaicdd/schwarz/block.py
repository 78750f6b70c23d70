r"""The lattice of half-overlapping subdomains, and the block of it that one rank owns.

A lattice of 6 x 4 lattice cells, ``K = (4, 6)``, has 5 x 3 subdomains, one around each lattice node
inside the domain. Two ranks own the blocks A, columns 1 to 3, and B, columns 4 and 5:

```
  line 4 +-----+-----+-----+-----+-----+-----+  edge of the domain: boundary data
         |     |     |     |     |     |     |
       3 +-----A-----A-----A-----B-----B-----+     A, B  centres of the subdomains of each block
         |     |     |     |     |     |     |     +     lattice nodes on the edge
       2 +-----A-----A-----A-----B=====B=====+     ===   the nodes of line 2 that B owns, from its first
         |     |  /##|##\  |     |     |     |           centre to the edge; the cell before is A's
       1 +-----A--##-A-##--A-----B-----B-----+     ##    the subdomain of the centre (1, 2): the four
         |     |  \##|##/  |     |     |     |           lattice cells around it; its perimeter are
       0 +-----+-----+-----+-----+-----+-----+           the lines 0 and 2, and the columns 1 and 3
         0     1     2     3     4     5     6
         <------- region of A ------>              lines start - halo .. stop - 1 + halo: 0 .. 4
                     <------ region of B ---->     3 .. 6; with a halo of 1 they share one lattice cell
```

A block that owns the centres ``start..stop`` of an axis stores its *region*: the lattice lines
``start - halo .. stop - 1 + halo``, closed, as far as the domain reaches. With a halo of one lattice
cell these are the perimeters of the owned subdomains, and neighbouring regions share one cell; each
cell more lets the block compute one more ring of subdomains around its own. A lattice cell between
two blocks belongs to the lower. Subdomains of the region are counted from its lower-left corner.
Without ranks there is one block, the whole lattice.

Lattice lines, in space planes, lie every ``s = m / 2`` cells. Lattice node ``(i, j)`` is grid node ``(i s, j s)``;
each node inside the domain is the centre of exactly one subdomain, which therefore is named by its
centre: ``1 <= i < K_y``, ``1 <= j < K_x`` with ``K = N / s`` lattice cells per axis.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mosaicdd.axes import Slices, family, frame, letters, others
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.window import Window
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


# A part of the interface: which family of lines (the axis they are constant in), which part.
InterfacePart = tuple[int, Slices]


@dataclass(frozen=True)
class Block:
    """The subdomains centred at the lattice nodes ``start <= (i, j) < stop``.

    ``halo``: lattice cells that the region reaches beyond the owned centres.
    """

    lattice: Lattice
    start: tuple[int, ...]
    stop: tuple[int, ...]
    halo: int = 1

    @classmethod
    def whole(cls, lattice: Lattice) -> "Block":
        """Return the block of all subdomains."""
        return cls(lattice, (1,) * len(lattice.cells), lattice.cells)

    @cached_property
    def first(self) -> tuple[int, ...]:
        """First lattice line of the region per axis."""
        return tuple(max(a - self.halo, 0) for a in self.start)

    @cached_property
    def last(self) -> tuple[int, ...]:
        """Last lattice line of the region per axis."""
        high = [b - 1 + self.halo for b in self.stop]
        return tuple(min(b, k) for b, k in zip(high, self.lattice.cells, strict=True))

    @cached_property
    def subdomains(self) -> tuple[int, ...]:
        """Owned subdomains per axis."""
        return tuple(b - a for a, b in zip(self.start, self.stop, strict=True))

    @property
    def centres(self) -> Slices:
        """The lattice nodes at the centres of the owned subdomains, among all lattice nodes."""
        return tuple(map(slice, self.start, self.stop))

    @cached_property
    def region_subdomains(self) -> tuple[int, ...]:
        """Subdomains per axis whose perimeters lie in the region."""
        return tuple(b - a - 1 for a, b in zip(self.first, self.last, strict=True))

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """Grid cells of the region per axis."""
        s = self.lattice.spacing
        return tuple((b - a) * s for a, b in zip(self.first, self.last, strict=True))

    @cached_property
    def origin(self) -> tuple[int, ...]:
        """Grid node at the lower-left corner of the region."""
        return tuple(a * self.lattice.spacing for a in self.first)

    @cached_property
    def nodes(self) -> Slices:
        """Grid nodes of the region, its outline included."""
        return tuple(slice(a, a + n + 1) for a, n in zip(self.origin, self.cells, strict=True))

    def at_edge(self, axis: int) -> tuple[bool, ...]:
        """Say whether the region touches the domain's edge at the low and high end of an axis."""
        return self.first[axis] == 0, self.last[axis] == self.lattice.cells[axis]

    def ring(self, number: int) -> Slices:
        """Return the region's subdomains within ``number`` rings around the owned ones."""
        return self._subdomains_between(
            [max(a - number, 1) for a in self.start],
            [min(b + number, k) for b, k in zip(self.stop, self.lattice.cells, strict=True)],
        )

    def inner_subdomains(self) -> Slices:
        """Return the owned subdomains, whose perimeters no other block contributes to."""
        low = [a + (a > 1) for a in self.start]
        high = [b - (b < k) for b, k in zip(self.stop, self.lattice.cells, strict=True)]
        return self._subdomains_between(low, [max(a, b) for a, b in zip(low, high, strict=True)])

    def rings_around(self, part: Slices) -> int:
        """Return the number of rings that subdomains of the region reach: 0 for inner ones, 1 for owned ones."""
        inner = self.inner_subdomains()
        if all(i.start <= p.start and p.stop <= i.stop for i, p in zip(inner, part, strict=True)):
            return 0
        beyond = [
            max(o.start - p.start, p.stop - o.stop) for o, p in zip(self.ring(0), part, strict=True)
        ]
        return 1 + max(0, *beyond)

    def _subdomains_between(self, start: list[int], stop: list[int]) -> Slices:
        return tuple(
            slice(a - first - 1, b - first - 1)
            for a, b, first in zip(start, stop, self.first, strict=True)
        )

    def line_shape(self, axis: int) -> tuple[int, ...]:
        """Shape of the lines constant in ``axis``: lattice lines, grid nodes along each."""
        along = others(axis, len(self.cells))
        return self.last[axis] - self.first[axis] + 1, *(self.cells[other] + 1 for other in along)

    def boundary_parts(self) -> list[InterfacePart]:
        """List the parts of the interface on the edge of the domain, where the data are given."""
        axes, everything = len(self.cells), slice(None)
        return [
            (axis, tuple(end if other == edge else everything for other in family(axis, axes)))
            for axis in range(axes)
            for edge in family(axis, axes)
            for end, at in zip((slice(0, 1), slice(-1, None)), self.at_edge(edge), strict=True)
            if at
        ]

    def inner(self, axis: int) -> Slices:
        """Return the part of the lines constant in ``axis`` that is not on the domain's edge."""
        sides = map(self.at_edge, family(axis, len(self.cells)))
        return tuple(
            slice(int(low), count - int(high))
            for (low, high), count in zip(sides, self.line_shape(axis), strict=True)
        )

    def owned_cells(self, axis: int) -> slice:
        """Return the lattice cells along an axis that this block owns, counted from its region.

        A cell between two blocks belongs to the lower.
        """
        start = 0 if self.start[axis] == 1 else self.start[axis]
        return slice(start - self.first[axis], self.stop[axis] - self.first[axis])

    def owned(self, axis: int) -> Slices:
        """Return the part of the lines constant in ``axis`` that this block alone owns."""
        s, first = self.lattice.spacing, self.first[axis]
        along = map(self.owned_cells, others(axis, len(self.cells)))
        lines = slice(self.start[axis] - first, self.stop[axis] - first)
        return lines, *(slice(max(cells.start * s, 1), cells.stop * s) for cells in along)

    def owned_lattice_nodes(self) -> Slices:
        """Return the lattice nodes that this block owns on the lines constant in the first axis."""
        s = self.lattice.spacing
        lines, *along = (
            slice(a - first, b - first)
            for a, b, first in zip(self.start, self.stop, self.first, strict=True)
        )
        return lines, *(slice(nodes.start * s, (nodes.stop - 1) * s + 1, s) for nodes in along)

    def settled(self, axis: int) -> Slices:
        """Return the part of `owned` to which no other block's subdomains contribute."""
        lines, *nodes = self.owned(axis)
        for place, along in enumerate(others(axis, len(self.cells))):
            if self.stop[along] < self.lattice.cells[along]:
                last = (self.stop[along] - 1 - self.first[along]) * self.lattice.spacing
                nodes[place] = slice(nodes[place].start, last + 1)
        return lines, *nodes

    def late(self, axis: int) -> list[Slices]:
        """Return the parts of `owned` to which other blocks' subdomains contribute."""
        return frame(self.owned(axis), self.settled(axis))

    def owned_nodes(self) -> tuple[Slices, Slices]:
        """Return the nodes that this block alone owns, in the region and in the whole field."""
        local, whole = [], []
        for axis, origin in enumerate(self.origin):
            s, cells = self.lattice.spacing, self.owned_cells(axis)
            last = int(self.stop[axis] == self.lattice.cells[axis])  # the node on the edge
            part = slice(cells.start * s, cells.stop * s + last)
            local.append(part)
            whole.append(slice(part.start + origin, part.stop + origin))
        return tuple(local), tuple(whole)


def part_in_window(block: Block, window: Window) -> Block | None:
    """Return the smallest part of a block that owns its nodes of a window, None if none."""
    place = window.clip(block.owned_nodes()[1])
    if place[0].stop == 0:
        return None
    s, start, stop = block.lattice.spacing, [], []
    for axis, nodes in enumerate(place):
        # Centre i owns the lattice cell above it; the first one also the cell below.
        first = max(nodes.start // s, block.start[axis])
        last = min((nodes.stop - 1) // s, block.stop[axis] - 1)
        start.append(min(first, block.stop[axis] - 1))
        stop.append(max(last, start[-1]) + 1)
    return Block(block.lattice, tuple(start), tuple(stop), block.halo)


@dataclass(frozen=True)
class Tiles:
    """A run of tiles along one axis: subdomains that do not overlap and cover the domain.

    They lie between the even lattice lines, so which tile a node lies in depends on the lattice alone. Where an
    axis has an odd number of lattice cells, the last cell is half of a tile, of the subdomain that ends with it.
    """

    line: int  # that the first tile begins at
    count: int  # tiles
    cells: int = 2  # lattice cells of each: both of its subdomain, or the last only

    @property
    def end(self) -> int:
        """Lattice line that the last tile ends at."""
        return self.line + self.cells * self.count

    def subdomains(self, block: Block, axis: int) -> slice:
        """Return their subdomains, counted from the region of a block."""
        first = self.line + self.cells - 2 - block.first[axis]
        return slice(first, first + 2 * self.count - 1, 2)

    def split(self, largest: int) -> Iterator["Tiles"]:
        """Cut into runs of at most ``largest`` tiles."""
        for first in range(0, self.count, largest):
            count = min(largest, self.count - first)
            yield Tiles(self.line + self.cells * first, count, self.cells)


def region_tiles(block: Block, axis: int) -> list[Tiles]:
    """Return the tiles that lie in a block's region, at most two runs."""
    return _between(block.first[axis], block.last[axis], block.lattice.cells[axis])


def owned_tiles(block: Block, axis: int) -> list[Tiles]:
    """Return the tiles whose subdomains a block owns, at most two runs."""
    return _between(block.start[axis] - 1, block.stop[axis], block.lattice.cells[axis])


def _between(low: int, high: int, cells: int) -> list[Tiles]:
    even = low + low % 2
    runs = [Tiles(even, max(0, high - even) // 2)]
    if high == cells and cells % 2:
        runs.append(Tiles(cells - 1, 1, cells=1))
    return [run for run in runs if run.count]
