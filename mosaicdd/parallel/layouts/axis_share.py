"""What one rank holds of one array axis: the arithmetic of intervals below the layouts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mosaicdd.parallel.layouts.placements import Segment


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
