"""How items are shared evenly among the ranks of a process grid: arithmetic without MPI.

The first ranks of an axis get one item more where it does not divide.
"""

import math
from collections.abc import Iterator

from mosaicdd.lattice.axes import letters, others, times

Dims = tuple[int, ...]
"""Numbers per axis, (y, x) in the plane."""


def share(count: int, ranks: int, coordinate: int) -> tuple[int, int]:
    """Return start and stop of what one rank of an axis gets of ``count`` items."""
    base, more = divmod(count, ranks)
    start = coordinate * base + min(coordinate, more)
    return start, start + base + (coordinate < more)


def fitting_dims(size: int, counts: Dims) -> list[Dims]:
    """List the dims of ``size`` ranks that fit, those with the least surface of blocks first.

    Parameters
    ----------
    size
        Number of ranks.
    counts
        Items to distribute per axis.

    Raises
    ------
    ValueError
        If no dims fit.
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
        return sum(math.prod(edges[k] for k in others(axis, len(edges))) for axis in axes)

    return sorted(fitting, key=surface)


def require_fitting(dims: Dims, counts: Dims) -> None:
    """Check that every rank gets an item.

    Raises
    ------
    ValueError
        If an axis has fewer items than ranks.
    """
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
