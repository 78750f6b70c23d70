"""How an array lies over the ranks, as a value that every rank knows without asking, by intervals of its axes."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mosaicdd.parallel.layouts.placements import Halo, Segment, Shard


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
        for share in self.shares[rank]:
            (run,) = share.owned
            first = run.start - run.local
            places.append(slice(first, first + share.length))
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
