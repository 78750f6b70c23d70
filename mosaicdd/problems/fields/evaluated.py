"""Evaluation of numbers, functions and expressions at coordinates; arrays read when sliced; checksums.

A checksum of node values is the sum of each value's bits times a factor of its place, modulo 2^64: ranks add theirs up,
for any process grid. It is one pass over the memory, about 1 ms for 1024 x 1024 values.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mosaicdd.axes import Slices, coordinates, in_rows, letters, within
from mosaicdd.problems.fields.expressions import Expression, require_arguments, require_coordinates
from mosaicdd.problems.fields.given import is_number, real_array
from mosaicdd.problems.limits import exact

STRIP = 2**14
"""Values that are sampled or summed up at a time: with what a function makes by the way they stay in the cache."""


def checksum(values: np.ndarray, place: Slices) -> int:
    """Return the checksum of values ``(n, ..)`` at the nodes of a part.

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
    """Return the checksum of a part's samples, ``strip`` values at a time.

    Unless ``summed`` it is 0: sampled only, as for a check.
    """
    total = 0
    for place in in_rows(part, strip):
        values = sample(place)
        total += checksum(values, place) if summed else 0
    return total % 2**64


def over_ranks(sums: Mapping[str, int], allgather: Callable[[Any], list]) -> dict[str, str]:
    """Return checksums of whole arrays by name, as texts, from the sums of all ranks; collective."""
    together = allgather(dict(sums))
    return {name: f"{sum(part[name] for part in together) % 2**64:016x}" for name in sums}


def checksum_of_row(values: np.ndarray) -> int:
    """Return the checksum of values on a side, of one or several problems, ``(n, N)``."""
    values = np.atleast_2d(values)
    values = values.reshape(-1, values.shape[-1])
    return checksum(values, (slice(0, values.shape[1]),))


@functools.lru_cache(2**10)  # strips beside each other have the same, and those of the next time
def _factors(first: int, count: int, stream: int) -> np.ndarray:
    """Return odd pseudorandom factors of places along an axis, by splitmix64; read only."""
    z = np.arange(first, first + count).astype(np.uint64) + np.uint64(stream << 40)
    z *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ z >> np.uint64(shift)) * np.uint64(factor)
    return z ^ z >> np.uint64(31) | np.uint64(1)


def evaluate(values: Any, places: Sequence[np.ndarray | float], what: str) -> np.ndarray:
    """Evaluate a number, a function ``f(x, y)`` or the text of an expression at coordinates.

    ``places``: coordinates along each axis, in the order of arrays: ``(y, x)``, which broadcast.

    `ValueError` if an expression cannot be read, or a function gives nothing, or another shape than its coordinates.
    `TypeError` if ``values`` is none of these, or a function takes other arguments.
    """
    axes, shape = len(places), np.broadcast_shapes(*map(np.shape, places))
    if isinstance(values, str):
        try:
            values = expression_at(values, axes)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None
    if isinstance(values, Expression):
        return values(**dict(zip(letters(axes), places, strict=True)))
    if callable(values):
        require_coordinates(values, axes, what)
        try:
            returned = values(*(np.broadcast_to(place, shape) for place in reversed(places)))
        except TypeError:
            require_arguments(values, axes, what)
            raise
        if returned is None:
            raise ValueError(f"{what} is a function that returns None; it must return values")
        returned = real_array(returned, what)
        if returned.shape not in ((), shape):
            raise ValueError(
                f"the function for {what} must give an array of the shape of its coordinates, "
                f"{shape}, got {returned.shape}"
            )
        return np.broadcast_to(returned, shape).copy()
    if is_number(values):
        return np.full(shape, float(real_array(values, what)))
    raise TypeError(
        f"{what} must be a number, a function of ({coordinates(axes)}), an expression or an "
        f"array, got {type(values).__name__}"
    )


@functools.lru_cache
def expression_at(text: str, axes: int) -> Expression:
    """Parse an expression, with ``expr:`` in front or not; cached."""
    return Expression(text.removeprefix("expr:"), variables=(*reversed(letters(axes)), "pi"))


def expression_in_time(text: str, variables: tuple[str, ...], t: float) -> Expression:
    """Return an expression at a time, a one-sided limit where it may jump."""
    expression = Expression(text, variables, t=t)
    return expression if expression.may_jump("t") else Expression(text, variables, t=exact(t))


def require_finite(
    values: np.ndarray,
    what: str,
    origin: tuple[int, ...] = (0, 0, 0),
    *,
    kind: str = "node",
    counts: Callable[[], tuple[int, int]] = lambda: (0, 0),
) -> np.ndarray:
    """Return values at nodes; raise `ValueError` with the first place where one is not finite.

    Parameters
    ----------
    origin
        Where they begin in the whole, on the last axes.
    kind
        Of the places that they are of.
    counts
        Returns how many of an array's values are not finite, and all; zeros where values are no array's.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):  # as it is next to always: no array of flags then
            return values
    bad = ~np.isfinite(values)
    if bad.any():
        at = np.argwhere(bad)[0]
        first = tuple(int(i) + o for i, o in zip(at, origin[-len(at) :], strict=True))
        count, size = counts()
        way_out = ": give values there, or leave the place out of the domain, by --domain or Domain.from_mask"
        raise ValueError(
            f"{what} has {count or int(bad.sum())} of {size or values.size} values that are not finite, the first at "
            f"{kind} {first[0] if len(first) == 1 else first}{way_out if size else ''}"
        )
    return values


class Sliced:
    """Node values ``(.., ny + 1, nx + 1)`` that are read when they are sliced.

    Parameters
    ----------
    read
        ``read(place)``: ``[.., rows, columns]`` of the values.
    part
        Nodes where a rank has the values, which nobody else changes; by default all. Coefficients are needed everywhere.
    """

    def __init__(
        self, shape: tuple[int, ...], read: Callable[[tuple], Any], part: Slices | None = None
    ):
        self.shape, self.part = shape, part
        self.as_value = None if part is None else self
        self._read = read

    def __getitem__(self, place: tuple) -> Any:
        return self._read(place)

    @classmethod
    def on_part(cls, nodes: tuple[int, ...], values: np.ndarray, part: Slices) -> "Sliced":
        """Return node values on the part of a rank; `IndexError` beyond it."""
        return cls(nodes, lambda place: values[within(place[-len(part) :], part)], part)

    @classmethod
    def some(cls, values: Any, which: range) -> "Sliced":
        """Return the values of some of several problems."""

        def read(place: tuple) -> Any:
            first, *nodes = place
            chosen = values[which.start : which.stop, *nodes]
            return chosen if first is Ellipsis else chosen[first]

        return cls((len(which), *values.shape[1:]), read)

    @classmethod
    def of_time(cls, values: Any, number: int) -> "Sliced":
        """Return the values of one of several times."""
        shape = tuple(values.shape[1:])
        return cls(shape, lambda place: values[number, *place[-len(shape) :]])
