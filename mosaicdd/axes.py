"""One of each per axis, in the order of the axes of arrays: (y, x) in the plane, (z, y, x) in space.

What is said of an axis is made in loops over the axes, so that it serves any number of them.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Slices = tuple[slice, ...]
"""A part of an array: a slice per axis."""


def letters(axes: int) -> str:
    """Return the letters of the axes, in their order: ``yx`` of two."""
    return "zyx"[-axes:]


def coordinates(axes: int) -> str:
    """Return the names of coordinates as people write them, that along x first: ``x, y`` of two."""
    return ", ".join(letters(axes)[::-1])


def in_order(by_name: Mapping[str, Any], axes: int, default: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Return what is given by the names of coordinates, in the order of axes.

    ``default``: of each axis, for those without a name; by default all must be named.

    `ValueError` if a name is unknown or missing.
    """
    known = dict(zip(letters(axes), default, strict=False))
    wrong = sorted(set(map(str, by_name)) - set(letters(axes)))
    lacking = [name for name in letters(axes) if name not in by_name and name not in known]
    if wrong or lacking:
        names = ", ".join(wrong) if wrong else f"no {', '.join(reversed(lacking))}"
        raise ValueError(f"axes are named {coordinates(axes)}, got {names}")
    return tuple((known | dict(by_name))[name] for name in letters(axes))


def spelled(place: Sequence[float]) -> str:
    """Return a place, (x, y), in space (x, y, z), as messages have it."""
    return ", ".join(f"{value:.10g}" for value in place)


def times(sizes: Sequence[object]) -> str:
    """Return sizes as people write them, that along x first: ``3x2`` of two rows and three columns."""
    return "x".join(map(str, sizes[::-1]))


@functools.cache
def others(axis: int, axes: int) -> tuple[int, ...]:
    """Return the axes but one, in their order."""
    return tuple([other for other in range(axes) if other != axis])


def family(axis: int, axes: int) -> tuple[int, ...]:
    """Return which axes those of an array of lines constant in an axis are: this one, then the others."""
    return axis, *others(axis, axes)


def at(axis: int, axes: int, key: Any, elsewhere: Any = slice(None)) -> tuple[Any, ...]:
    """Return an index of arrays: ``key`` along an axis, ``elsewhere`` along all others."""
    return (*(elsewhere,) * axis, key, *(elsewhere,) * (axes - axis - 1))


def ends(axis: int, axes: int, elsewhere: slice = slice(None)) -> tuple[Slices, Slices]:
    """Return the nodes at the low and at the high ends of the grid edges along an axis."""
    return at(axis, axes, slice(None, -1), elsewhere), at(axis, axes, slice(1, None), elsewhere)


@functools.cache
def steps_along(axes: int) -> tuple[tuple[int, ...], ...]:
    """Return the steps from a node to the next one along each axis."""
    return tuple([at(axis, axes, 1, 0) for axis in range(axes)])


@functools.cache
def steps_across(axes: int) -> tuple[tuple[int, ...], ...]:
    """Return the steps along the diagonals of the faces of cells: of each pair of axes what rises, then what falls."""
    pairs = itertools.combinations(range(axes), 2)
    return tuple(
        [
            tuple([{first: 1, second: way}.get(axis, 0) for axis in range(axes)])
            for first, second in pairs
            for way in (1, -1)
        ]
    )


def ends_of(step: Sequence[int], elsewhere: slice = slice(None)) -> tuple[Slices, Slices]:
    """Return the nodes that a step leads from, and to, as `ends`."""
    sides = elsewhere, slice(None, -1), slice(1, None)
    return tuple([sides[s] for s in step]), tuple([sides[-s] for s in step])


def last(index: Sequence[Any]) -> tuple[Any, ...]:
    """Return an index of the last axes of arrays, of all on those before."""
    return (..., *index)


def crossed(*along: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return an array of one axis per axis in shapes that combine to the grid's: ``(y[:, None], x)`` of two."""
    return tuple(values.reshape(at(axis, len(along), -1, 1)) for axis, values in enumerate(along))


def sizes(part: Slices) -> tuple[int, ...]:
    """Return how many places a part has along each axis."""
    return tuple([p.stop - p.start for p in part])


def all_of(shape: Sequence[int]) -> Slices:
    """Return the part of an array that is all of it."""
    return tuple([slice(0, count) for count in shape])


def grown(part: Slices, by: int = 1) -> Slices:
    """Return a part with some places more all around."""
    return tuple([slice(p.start - by, p.stop + by) for p in part])


def common(part: Slices, other: Slices) -> Slices:
    """Return what two parts have in common, maybe nothing along some axes."""
    ends = [(max(p.start, o.start), min(p.stop, o.stop)) for p, o in zip(part, other, strict=True)]
    return tuple([slice(low, max(low, high)) for low, high in ends])


def contains(whole: Slices, part: Slices) -> bool:
    """Say whether a part lies in another one."""
    return all(w.start <= p.start and p.stop <= w.stop for p, w in zip(part, whole, strict=True))


def moved(part: Slices, steps: Sequence[int]) -> Slices:
    """Return a part so many nodes further along each axis."""
    return tuple([slice(p.start + s, p.stop + s) for p, s in zip(part, steps, strict=True)])


def within(part: Slices, whole: Slices) -> Slices:
    """Return where a part of the grid lies in an array that holds another, which surrounds it.

    `IndexError` if that does not hold all of the part: numpy would count from the end, or cut it short.
    """
    for p, w in zip(part, whole, strict=True):
        if not w.start <= p.start <= p.stop <= w.stop:
            raise IndexError(f"{p.start}:{p.stop} is not held here, only {w.start}:{w.stop}")
    ends = zip(part, whole, strict=True)
    return tuple([slice(p.start - w.start, p.stop - w.start) for p, w in ends])


def in_rows(part: Slices, most: int) -> Iterator[Slices]:
    """Yield a part of a grid some rows at a time, in space some planes, of about so many values."""
    rows, *across = part
    step = max(1, most // max(1, math.prod(p.stop - p.start for p in across)))
    for start in range(rows.start, rows.stop, step):
        yield slice(start, min(start + step, rows.stop)), *across


def even(count: int, most: int) -> list[slice]:
    """Cut a range into nearly even parts of at most so many."""
    parts = -(-count // most)
    ends = [part * count // parts for part in range(parts + 1)] if parts else [0]
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


def frame(outer: Slices, inner: Slices) -> list[Slices]:
    """Return what a rectangle has around another one within it: below, above, left and right."""
    parts = []
    for axis, (whole, inside) in enumerate(zip(outer, inner, strict=True)):
        for beside in (slice(whole.start, inside.start), slice(inside.stop, whole.stop)):
            parts.append((*inner[:axis], beside, *outer[axis + 1 :]))
    return [part for part in parts if all(side.start < side.stop for side in part)]
