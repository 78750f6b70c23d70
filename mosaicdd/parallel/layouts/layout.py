"""How an array lies over the ranks, as a value that every rank knows without asking, by intervals of its axes.

Placements: how one axis of the process mesh splits an array.

A `Layout` reads its placements from left to right. Each splits the local array that those before it
have left, among the coordinates of its mesh axis: every item has one owner.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
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


class Run(NamedTuple):
    """Items ``start..stop`` of the whole axis, which lie at ``local`` and after in a rank's."""

    start: int
    stop: int
    local: int


class Overlap(NamedTuple):
    """Items that two ranks' shares have in common: how many, and where they lie in each."""

    length: int
    here: int
    there: int


@dataclass(frozen=True)
class AxisShare:
    """A rank's share of an axis."""

    length: int  # items in the local array
    # held, owned: which items they are, and those of them that the rank owns; as few runs as
    # possible, in the order of the local array
    held: tuple[Run, ...]
    owned: tuple[Run, ...]

    @classmethod
    def whole(cls, length: int) -> "AxisShare":
        """Return the share of a rank that owns all items."""
        runs = (Run(0, length, 0),) if length else ()
        return cls(length, runs, runs)

    def cut(self, segments: Sequence[Segment]) -> "AxisShare":
        """Return what is left when only segments of the local array are kept, one after another."""
        held: list[Run] = []
        owned: list[Run] = []
        offset = 0
        for segment in segments:
            held += _window(self.held, segment, offset)
            if segment.owned:
                owned += _window(self.owned, segment, offset)
            offset += segment.stop - segment.start
        return AxisShare(offset, tuple(_joined(held)), tuple(_joined(owned)))

    def window(self, start: int, stop: int) -> "AxisShare":
        """Return the share of items ``start..stop`` only, counted from there, where they are."""
        held, owned = (
            tuple(Run(a - start, b - start, local) for a, b, local in _clipped(runs, start, stop))
            for runs in (self.held, self.owned)
        )
        return AxisShare(self.length, held, owned)


def overlaps(here: Iterable[Run], there: Sequence[Run]) -> list[Overlap]:
    """List the items that two sets of runs have in common."""
    return [
        Overlap(stop - start, a.local + start - a.start, b.local + start - b.start)
        for a in here
        for b in there
        if (start := max(a.start, b.start)) < (stop := min(a.stop, b.stop))
    ]


def _window(runs: Iterable[Run], segment: Segment, offset: int) -> Iterator[Run]:
    """Keep the part of the runs in a segment of the local array, which moves to ``offset``."""
    for start, stop, local in runs:
        first = max(local, segment.start)
        last = min(local + stop - start, segment.stop)
        if first < last:
            yield Run(start + first - local, start + last - local, offset + first - segment.start)


def _clipped(runs: Iterable[Run], start: int, stop: int) -> Iterator[Run]:
    """Keep the part of the runs in ``start..stop`` of the whole axis."""
    for run in runs:
        first, last = max(run.start, start), min(run.stop, stop)
        if first < last:
            yield Run(first, last, run.local + first - run.start)


def _joined(runs: Iterable[Run]) -> Iterator[Run]:
    """Join runs where one goes on as the last ended."""
    last = None
    for run in runs:
        if last and (run.start, run.local - last.local) == (last.stop, last.stop - last.start):
            last = Run(last.start, run.stop, last.local)
            continue
        if last:
            yield last
        last = run
    if last:
        yield last


Slices = tuple[slice, ...]


class Box(NamedTuple):
    """A part of a rank's array: where it belongs in the whole, and where it lies in the local."""

    whole: Slices
    local: Slices


@dataclass(frozen=True)
class Layout:
    """An array with one axis or more over a mesh of ranks, with one placement per axis of the mesh.

    The placements are read from left to right, each splitting what those before it have left; the
    last mesh axis is the fastest in the numbers of the ranks. ``Layout((3, 5), (2, 2), (Shard(0),
    Halo(1, width=1)))`` gives

    ```
       rank 0: rows 0..2, columns 0..4, owns 0..3    rank 1: rows 0..2, columns 2..5, owns 3..5
       rank 2: row  2..3, columns 0..4, owns 0..3    rank 3: row  2..3, columns 2..5, owns 3..5
    ```

    `ValueError` if the placements do not fit the mesh or the shape.

    Parameters
    ----------
    shape
        Of the whole array.
    mesh
        Ranks per axis of the mesh; any number of axes, which need not be the array's.
    placements
        One per axis of the mesh.
    shares
        What every rank holds, per axis of the array: by default what the placements say.
    """

    shape: tuple[int, ...]
    mesh: tuple[int, ...]
    placements: tuple[Shard | Halo, ...]
    shares: tuple[tuple[AxisShare, ...], ...] = ()

    def __post_init__(self) -> None:
        for name in ("shape", "mesh", "placements"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if len(self.mesh) != len(self.placements) or min(self.mesh, default=0) < 1:
            raise ValueError(
                f"a mesh of {self.mesh} ranks needs one axis, 1 rank per axis and "
                f"{len(self.mesh)} placements at least, got {len(self.placements)} placements"
            )
        if not self.shape or min(self.shape) < 0:
            raise ValueError(f"an array in a layout needs an axis, and sizes >= 0: {self.shape}")
        for placement in self.placements:
            if not 0 <= placement.axis < len(self.shape):
                raise ValueError(
                    f"{placement}: an array of shape {self.shape} has axes 0 to "
                    f"{len(self.shape) - 1}"
                )
        if not self.shares:
            object.__setattr__(self, "shares", self._split())

    def __str__(self) -> str:
        shape, mesh = ("x".join(map(str, sizes)) for sizes in (self.shape, self.mesh))
        return f"{shape} over {mesh} ranks: {', '.join(map(str, self.placements))}"

    @property
    def size(self) -> int:
        """Number of ranks."""
        return math.prod(self.mesh)

    def _split(self) -> tuple[tuple[AxisShare, ...], ...]:
        """Return what the placements leave to every rank."""
        ranks = [tuple(map(AxisShare.whole, self.shape))]
        for parts, placement in zip(self.mesh, self.placements, strict=True):
            axis = placement.axis
            ranks = [
                (*shares[:axis], shares[axis].cut(segments), *shares[axis + 1 :])
                for shares in ranks
                for segments in placement.split(shares[axis].length, parts)
            ]
        return tuple(ranks)

    def rows(self, start: int, stop: int) -> "Layout":
        """Return the layout of rows ``start..stop`` of the first axis, to move them alone.

        Local arrays stay those of all rows: as a target, their other rows are left as they are.
        """
        if not 0 <= start <= stop <= self.shape[0]:
            raise ValueError(f"rows {start}..{stop} of an array of {self.shape[0]} rows")
        shares = tuple((first.window(start, stop), *others) for first, *others in self.shares)
        return Layout((stop - start, *self.shape[1:]), self.mesh, self.placements, shares)

    def stacked(self, count: int) -> "Layout":
        """Return the layout of several arrays in this one, ``(count, ...)``, that move together."""
        shares = tuple((AxisShare.whole(count), *of_rank) for of_rank in self.shares)
        return Layout((count, *self.shape), self.mesh, self.placements, shares)

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """Return the shape of a rank's array."""
        return tuple(share.length for share in self.shares[rank])

    def held(self, rank: int) -> list[Box]:
        """List the boxes that make up a rank's array."""
        return boxes([share.held for share in self.shares[rank]])

    def owned(self, rank: int) -> list[Box]:
        """List the boxes of a rank's array that are not copies of another coordinate's."""
        return boxes([share.owned for share in self.shares[rank]])

    def place(self, rank: int) -> Slices:
        """Return where a rank's array of consecutive items lies in the whole; copies may go on beyond it.

        `ValueError` if what the rank owns is not consecutive, or nothing.
        """
        places = []
        for along in self.shares[rank]:
            (run,) = along.owned
            first = run.start - run.local
            places.append(slice(first, first + along.length))
        return tuple(places)

    def cut(self, whole: np.ndarray, rank: int) -> np.ndarray:
        """Copy a rank's array out of the whole one."""
        local = np.empty(self.local_shape(rank), whole.dtype)
        for box in self.held(rank):
            local[box.local] = whole[box.whole]
        return local


def boxes(runs_per_axis: Sequence[Sequence[Run]]) -> list[Box]:
    """List the boxes that runs along each axis span."""
    return [
        Box(
            tuple(slice(run.start, run.stop) for run in runs),
            tuple(slice(run.local, run.local + run.stop - run.start) for run in runs),
        )
        for runs in itertools.product(*runs_per_axis)
    ]
