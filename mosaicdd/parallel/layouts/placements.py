"""Placements: how one axis of the process mesh splits an array, and how its parts merge again.

A `Layout` reads its placements from left to right. Each splits the local array that those before it
have left, among the coordinates of its mesh axis. The set is open: whatever satisfies `Cut` is
one, for example

```
@dataclass(frozen=True)
class BlockCyclic:
    axis: int
    block: int
    merge = Merge.OWNER

    def split(self, length, parts):
        starts = (range(c * self.block, length, parts * self.block) for c in range(parts))
        return [[Segment(a, min(a + self.block, length)) for a in mine] for mine in starts]
```
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, NamedTuple, Protocol, TypeGuard

import numpy as np

from mosaicdd.parallel.partition import share


class Merge(Enum):
    """What the local arrays along a mesh axis are to each other.

    ``OWNER``: parts; every value belongs to one coordinate, from which it is taken. ``ANY``: the
    same array on all coordinates. ``SUM``: terms, to be added in the order of the ranks.
    """

    OWNER = "owner"
    ANY = "any"
    SUM = "sum"


class Segment(NamedTuple):
    """Items ``start..stop`` of an axis that a coordinate holds, as their owner or as a copy."""

    start: int
    stop: int
    owned: bool = True


class Placement(Protocol):
    """What a `Layout` asks of a placement, a hashable value; one with ``OWNER`` is a `Cut`."""

    merge: ClassVar[Merge]


class Cut(Placement, Protocol):
    """What is asked of a placement with ``OWNER``, too.

    ``axis``: the array axis that is cut.
    """

    @property
    def axis(self) -> int: ...  # noqa: D102 - said above

    def split(self, length: int, parts: int) -> Sequence[Sequence[Segment]]:
        """Return what each coordinate holds of an axis, in the order of its local array.

        Over all coordinates, the owned segments must hold every item once. A copy is written by a
        redistribution, never read: its owner is asked.
        """
        ...


def is_cut(placement: Placement) -> TypeGuard[Cut]:
    """Say whether a placement cuts an axis, so that every item has one owner."""
    return placement.merge is Merge.OWNER


@dataclass(frozen=True)
class Replicate:
    """Every coordinate holds the same array."""

    merge: ClassVar[Merge] = Merge.ANY


@dataclass(frozen=True)
class PartialSum:
    """The array is the sum of all coordinates' arrays.

    A redistribution to it leaves the sum on coordinate 0 and zeros on the others.
    """

    merge: ClassVar[Merge] = Merge.SUM


@dataclass(frozen=True)
class Shard:
    """Consecutive items of an axis for each coordinate, without gap.

    ``sizes``: items per coordinate; by default as even as possible, the first ones get one more.
    """

    axis: int
    sizes: tuple[int, ...] | None = None

    merge: ClassVar[Merge] = Merge.OWNER

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

    merge: ClassVar[Merge] = Merge.OWNER

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


@dataclass(frozen=True)
class On:
    """Everything on one coordinate; the others hold no item of the axis.

    Parameters
    ----------
    coordinate
        Which; with a mesh of one axis, the rank.
    axis
        The axis along which the other ranks' arrays are empty.
    """

    coordinate: int = 0
    axis: int = 0

    merge: ClassVar[Merge] = Merge.OWNER

    def split(self, length: int, parts: int) -> list[list[Segment]]:
        """Return one segment with everything, and nothing for the other coordinates."""
        if not 0 <= self.coordinate < parts:
            raise ValueError(f"{self}: the mesh axis has only the coordinates 0 to {parts - 1}")
        whole = [Segment(0, length)]
        return [whole if coordinate == self.coordinate else [] for coordinate in range(parts)]


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
