"""Tiles: subdomains that do not overlap and cover the domain.

They lie between the even lattice lines, so which tile a node lies in depends on the lattice alone.
Where an axis has an odd number of lattice cells, the last cell is half of a tile, of the subdomain
that ends with it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from mosaicdd.lattice.block import Block


@dataclass(frozen=True)
class Tiles:
    """A run of tiles along one axis, in lattice lines of the whole domain."""

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
