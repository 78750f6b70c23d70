"""A checksum of values at nodes, whoever holds them: ranks add theirs up, for any process grid.

Each value's bits times a factor of its place, modulo 2^64: one pass over the memory, about 1 ms for
1024 x 1024 values.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mosaicdd.lattice.axes import Slices, in_rows

STRIP = 2**14
"""Values that are sampled or summed up at a time: with what a function makes by the way they stay in the cache."""


def checksum(values: np.ndarray, place: Slices) -> int:
    """Return that of values ``(n, ..)`` at the nodes of a part of the grid.

    The factors are odd and differ in all bits. As a number's last bits are often zeros, which would take
    the first bits of its factor away, its first bits are added to them.
    """
    bits = np.ascontiguousarray(values, "<f8").view("<u8")
    sums = bits ^ bits >> np.uint64(32)
    for axis in reversed(range(sums.ndim)):
        first = place[axis - 1].start if axis else 0
        sums = sums @ _factors(first, sums.shape[-1], axis)
    return int(sums)


def checksum_of(
    sample: Callable[[Slices], np.ndarray], part: Slices, *, strip: int = STRIP, summed: bool = True
) -> int:
    """Return that of what is sampled at the nodes of a part, so many values at a time.

    Unless ``summed`` it is 0: sampled only, as for a check.
    """
    total = 0
    for here in in_rows(part, strip):
        values = sample(here)
        total += checksum(values, here) if summed else 0
    return total % 2**64


def over_ranks(sums: Mapping[str, int], allgather: Callable[[Any], list]) -> dict[str, str]:
    """Return checksums of whole arrays as texts, from those of each rank's part, by name; all ranks together."""
    together = allgather(dict(sums))
    return {name: f"{sum(part[name] for part in together) % 2**64:016x}" for name in sums}


def checksum_of_row(values: np.ndarray) -> int:
    """Return that of values along a line, in space on a face, or of several problems' ``(n, N)``."""
    values = np.atleast_2d(values)
    values = values.reshape(-1, values.shape[-1])
    return checksum(values, (slice(0, values.shape[1]),))


@functools.lru_cache(2**10)  # strips beside each other have the same, and those of the next time
def _factors(first: int, count: int, stream: int) -> np.ndarray:
    """Return odd numbers for places along an axis, as random as splitmix64 makes them; not to be changed."""
    z = np.arange(first, first + count).astype(np.uint64) + np.uint64(stream << 40)
    z *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ z >> np.uint64(shift)) * np.uint64(factor)
    return z ^ z >> np.uint64(31) | np.uint64(1)
