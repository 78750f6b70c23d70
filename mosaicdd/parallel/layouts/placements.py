"""Placements: how one axis of the process mesh splits an array.

A `Layout` reads its placements from left to right. Each splits the local array that those before it
have left, among the coordinates of its mesh axis: every item has one owner.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mosaicdd.parallel.partition import share


class Segment(NamedTuple):
    """Items ``start..stop`` of an axis that a coordinate holds, as their owner or as a copy."""

    start: int
    stop: int
    owned: bool = True


@dataclass(frozen=True)
class Shard:
    """Consecutive items of an axis for each coordinate, without gap.

    ``axis``: of the array; ``sizes``: items per coordinate, by default as even as possible, the first ones get one more.
    """

    axis: int
    sizes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", _checked(self.sizes))

    def split(self, length: int, parts: int) -> list[list[Segment]]:
        """Return one segment per coordinate, none where it is empty."""
        bounds = _bounds(self.sizes, length, parts)
        return [[Segment(a, b)] if a < b else [] for a, b in itertools.pairwise(bounds)]


@dataclass(frozen=True)
class Halo:
    """A shard with copies of the items next to it, up to the ends of the axis.

    An empty shard has no copies.

    Parameters
    ----------
    width
        Items copied on each side; or per coordinate how many before and how many after its own.
    sizes
        Owned items per coordinate, as in `Shard`.
    period
        After how many items an axis comes round: copies go on there, and beyond its ends.
    """

    axis: int
    width: int | tuple[tuple[int, int], ...]
    sizes: tuple[int, ...] | None = None
    period: int | None = None

    def __post_init__(self) -> None:
        if np.min(self.width) < 0:
            raise ValueError(f"the width of a halo must be >= 0 items, got {self.width}")
        object.__setattr__(self, "sizes", _checked(self.sizes))

    def split(self, length: int, parts: int) -> list[list[Segment]]:
        """Return copies, owned items, copies per coordinate; empty segments are left out."""
        bounds = itertools.pairwise(_bounds(self.sizes, length, parts))
        widths = self.width if isinstance(self.width, tuple) else [(self.width,) * 2] * parts
        return [
            [
                *self._copies(a - before, a, length),
                Segment(a, b),
                *self._copies(b, b + after, length),
            ]
            if a < b
            else []
            for (a, b), (before, after) in zip(bounds, widths, strict=True)
        ]

    def _copies(self, start: int, stop: int, length: int) -> Iterator[Segment]:
        """Yield the items between two places, which may lie beyond the ends."""
        period = self.period or length
        rounds = range(1) if self.period is None else range(start // period, stop // period + 1)
        for first in (k * period for k in rounds):
            low, high = max(start - first, 0), min(stop - first, period)
            if low < high:
                yield Segment(low, high, owned=False)


def _checked(sizes: Sequence[int] | None) -> tuple[int, ...] | None:
    if sizes is not None and min(sizes, default=0) < 0:
        raise ValueError(f"sizes must be >= 0 items, got {tuple(sizes)}")
    return None if sizes is None else tuple(sizes)


def _bounds(sizes: tuple[int, ...] | None, length: int, parts: int) -> list[int]:
    """Return where the parts begin and end, ``parts + 1`` numbers."""
    if sizes is None:
        sizes = tuple(len(range(*share(length, parts, part))) for part in range(parts))
    if (len(sizes), sum(sizes)) != (parts, length):
        raise ValueError(
            f"sizes {sizes} are {len(sizes)} parts of {sum(sizes)} items in all; the mesh axis has "
            f"{parts} ranks, the array axis {length} items"
        )
    return list(itertools.accumulate(sizes, initial=0))
