"""Some rows of an array in a layout, as they lie there: to move an array in portions."""

from dataclasses import dataclass
from functools import cached_property

from mosaicdd.parallel.layouts.axis_share import AxisShare
from mosaicdd.parallel.layouts.layout import Box, Layout, boxes
from mosaicdd.parallel.layouts.placements import Merge


@dataclass(frozen=True)
class Window:
    """Items ``start..stop`` of the first axis; the ranks' arrays stay those of the layout.

    To a `Redistribution` it is a layout of an array with ``stop - start`` rows. As a target, the
    other rows of the ranks' arrays are left as they are, so the layout must not be a `PartialSum`.

    Raises
    ------
    ValueError
        If the rows are not in the array, or it is a sum of terms.
    """

    layout: Layout
    start: int
    stop: int

    def __post_init__(self):
        if not 0 <= self.start <= self.stop <= self.layout.shape[0]:
            raise ValueError(
                f"rows {self.start}..{self.stop} of an array of {self.layout.shape[0]} rows"
            )
        if self.spread(Merge.SUM):
            raise ValueError(f"a part of {self.layout}: redistribute it without PartialSum first")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the rows."""
        return (self.stop - self.start, *self.layout.shape[1:])

    @property
    def mesh(self) -> tuple[int, ...]:
        """The layout's mesh."""
        return self.layout.mesh

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.layout.size

    @cached_property
    def shares(self) -> tuple[tuple[AxisShare, ...], ...]:
        """What every rank holds of the rows."""
        return tuple(
            (first.window(self.start, self.stop), *others) for first, *others in self.layout.shares
        )

    def spread(self, merge: Merge) -> list[int]:
        """List the mesh axes of several ranks whose placement merges in a certain way."""
        return self.layout.spread(merge)

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Return the place of a rank in the mesh."""
        return self.layout.coordinates(rank)

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """Return the shape of a rank's array, of all its rows."""
        return self.layout.local_shape(rank)

    def held(self, rank: int) -> list[Box]:
        """List the boxes of a rank's array that are in the window."""
        return boxes([share.held for share in self.shares[rank]])
