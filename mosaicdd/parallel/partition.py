"""How items are shared among the ranks of a process grid, evenly or by their loads: arithmetic without MPI.

Evenly, the first ranks of an axis get one item more where it does not divide.

Cuts that balance loads go through the whole domain, so that blocks stay rectangles with one neighbour a side. With the
other axes cut, the best cuts of an axis are found exactly, one axis after another, until none helps (Nicol,
Rectilinear partitioning of irregular data parallel computations, 1994). An L on two by two ranks, even
and balanced; ``.`` has no load:

```
   # # | . .      # # . | .
   # # | . .      # # . | .
   ----+----      # # . | .
   # # | # #      ------+--
   # # | # #      # # # | #
```
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mosaicdd.axes import letters, others, times

Dims = tuple[int, ...]
"""Numbers per axis, (y, x) in the plane."""


def share(count: int, ranks: int, coordinate: int) -> tuple[int, int]:
    """Return start and stop of what one rank of an axis gets of ``count`` items."""
    base, more = divmod(count, ranks)
    start = coordinate * base + min(coordinate, more)
    return start, start + base + (coordinate < more)


@functools.lru_cache(256)
def fitting_dims(size: int, counts: Dims) -> tuple[Dims, ...]:
    """Return the dims of so many ranks that fit the counts of items per axis, the least surface of blocks first.

    If none fit it is a `ValueError`.
    """
    fitting = list(factors(size, counts))
    if not fitting:
        raise ValueError(
            f"{size} ranks do not fit: the lattice has {times(counts)} subdomains, each rank needs "
            f"one at least; use at most {_most_ranks(size, counts)} ranks"
        )

    def surface(dims: Dims) -> float:
        edges = [count / dim for count, dim in zip(counts, dims, strict=True)]
        axes = range(len(edges))
        return sum([math.prod([edges[k] for k in others(axis, len(edges))]) for axis in axes])

    return tuple(sorted(fitting, key=surface))


def require_fitting(dims: Dims, counts: Dims) -> None:
    """Check that every rank gets an item; `ValueError` if an axis has fewer items than ranks."""
    if len(dims) != len(counts):
        raise ValueError(f"dims {times(dims)}: one number is needed for each of {len(counts)} axes")
    for letter, dim, count in zip(letters(len(dims)), dims, counts, strict=True):
        if dim > count:
            raise ValueError(
                f"dims {times(dims)}: {dim} ranks along {letter}, but the "
                f"lattice has only {count} subdomains there"
            )


def factors(size: int, counts: Dims) -> Iterator[Dims]:
    """Yield all dims of so many ranks that give every rank an item."""
    if not counts:
        yield from [()] if size == 1 else []
        return
    *first, last = counts
    for dim in range(1, min(size, last) + 1):
        if size % dim == 0:
            yield from ((*before, dim) for before in factors(size // dim, tuple(first)))


def _most_ranks(size: int, counts: Dims) -> int:
    """Return the largest number of ranks, at most ``size``, that fit the lattice."""
    most = min(size, math.prod(counts))
    return next(n for n in range(most, 0, -1) if any(True for _ in factors(n, counts)))


_NEARLY = 1.1
"""Dims whose largest load is so many times the least are as good: those with the shortest edges win."""


@dataclass(frozen=True)
class Cuts:
    """Where the axes are cut."""

    # Of each axis, the first item of each rank, and the number of items at the end
    axes: tuple[tuple[int, ...], ...]

    @property
    def dims(self) -> Dims:
        """Ranks per axis."""
        return tuple(len(cuts) - 1 for cuts in self.axes)

    @property
    def counts(self) -> Dims:
        """Items per axis."""
        return tuple(cuts[-1] for cuts in self.axes)

    def largest(self, loads: np.ndarray) -> int:
        """Return the largest load of a rank."""
        return int(_summed(loads, self.axes).max())


def balanced_cuts(loads: np.ndarray, size: int, dims: Dims | None = None) -> Cuts:
    """Return cuts that leave every rank an item at least, and the largest load as small as they can.

    Loads are of each item, whole numbers that are not negative, an array with the axes.
    `ValueError` if no dims fit, or not the given ones.
    """
    if dims is not None:
        require_fitting(dims, loads.shape)
    tried = (dims,) if dims is not None else fitting_dims(size, loads.shape)
    best = [_cuts(loads, candidate) for candidate in tried]
    largest = [cuts.largest(loads) for cuts in best]
    return next(
        cuts for cuts, load in zip(best, largest, strict=True) if load <= _NEARLY * min(largest)
    )


def _cuts(loads: np.ndarray, dims: Dims) -> Cuts:
    """Return the cuts for some dims: the axes in turn, as long as they get better."""
    best: Cuts | None = None
    axes: list[tuple[int, ...]] = [(0, count) for count in loads.shape]

    def cut(axis: int) -> None:
        strips = _summed(loads, [cuts if k != axis else None for k, cuts in enumerate(axes)])
        axes[axis] = tuple(
            _along(np.moveaxis(strips, axis, 0).reshape(loads.shape[axis], -1), dims[axis])
        )

    for axis in range(len(axes) - 1):
        cut(axis)
    while True:
        for axis in reversed(range(len(axes))):
            cut(axis)
        cuts = Cuts(tuple(axes))
        if best is not None and cuts.largest(loads) >= best.largest(loads):
            return best
        best = cuts


def _summed(loads: np.ndarray, axes: Sequence[tuple[int, ...] | None]) -> np.ndarray:
    """Add up what lies between the cuts of each axis that has some."""
    for axis, cuts in enumerate(axes):
        if cuts is not None:
            loads = np.add.reduceat(loads, cuts[:-1], axis=axis)
    return loads


def _along(loads: np.ndarray, ranks: int) -> list[int]:
    """Cut an axis so that the largest load is least; loads are ``(items, strips of the other axes)``."""
    until = np.concatenate([np.zeros_like(loads[:1]), loads.cumsum(axis=0)])
    low, high = 0, int(until[-1].max())
    while low < high:
        most = (low + high) // 2
        if _filled(until, ranks, most)[1]:
            high = most
        else:
            low = most + 1
    return _filled(until, ranks, high)[0]


def _filled(until: np.ndarray, ranks: int, most: int) -> tuple[list[int], bool]:
    """Give each rank as many items as it may carry; say whether none is left over."""
    items, cuts = len(until) - 1, [0]
    for rank in range(ranks):
        start = cuts[-1]
        ends = [int(np.searchsorted(u, u[start] + most, "right")) - 1 for u in until.T]
        left = ranks - 1 - rank  # each of these wants an item
        cuts.append(min(max(min(ends), start + 1), items - left))
    fits = all((until[b] - until[a]).max() <= most for a, b in itertools.pairwise(cuts))
    done = cuts[-1] == items and fits
    cuts[-1] = items
    return cuts, done
