"""Parts of a field: windows, strips, and points between its nodes.

A window is a rectangle of grid nodes, in space a box. A strip has some rows of a rank's part; fields are made,
measured and written strip by strip.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import Slices, common, in_order, letters
from mosaicdd.grid.grid import Grid

Extent = Sequence[tuple[float, float]] | Mapping[str, tuple[float, float]]
"""A part of the domain by its ends: of all axes in the order (y, x), or by the names of some."""


class Placed:
    """What has values at nodes along the axes of a grid, and says where these lie."""

    def coordinates(self, axis: int) -> np.ndarray:
        """Return where the nodes lie along an axis, in units of domain length; `IndexError` if there is none."""
        raise NotImplementedError

    @property
    def x(self) -> np.ndarray:
        """Where the columns of a field lie, ``(nx + 1,)``, in units of domain length."""
        return self.coordinates(-1)

    @property
    def y(self) -> np.ndarray:
        """Where the rows of a field lie, ``(ny + 1,)``, in units of domain length."""
        return self.coordinates(-2)

    @property
    def z(self) -> np.ndarray:
        """Where the planes of a field in space lie, ``(nz + 1,)``.

        Raises
        ------
        AttributeError
            If the domain has no z axis.
        """
        try:
            return self.coordinates(-3)
        except IndexError:
            raise AttributeError("the domain is a rectangle, and has no z axis") from None


@dataclass(frozen=True)
class Window:
    """The grid nodes ``start <= (i, j) < stop``."""

    start: tuple[int, ...]
    stop: tuple[int, ...]

    @classmethod
    def whole(cls, grid: Grid) -> "Window":
        """Return the window of all nodes."""
        return cls((0,) * len(grid.nodes), grid.nodes)

    @classmethod
    def of_extent(cls, grid: Grid, extent: Extent) -> "Window":
        """Snap a rectangle outwards to grid nodes.

        ``extent``: low and high end, in domain coordinates: of some axes by their names, or of all in their order.

        `TypeError` if these are not two ends for each axis. `ValueError` if it is empty or reaches beyond the domain.
        """
        if isinstance(extent, Mapping):
            extent = in_order(extent, len(grid.shape), grid.ends)
        try:
            ends = np.asarray(extent, float)
        except (ValueError, TypeError):
            ends = np.empty(0)
        names = letters(len(grid.shape))
        if ends.shape != (len(names), 2):
            form = ", ".join(f"({name}0, {name}1)" for name in names)
            raise TypeError(f"the ends must be numbers ({form}), got {extent!r}")
        start, stop = [], []
        places = grid.cells(ends.T).T.tolist()
        axes = zip(names, ends.tolist(), places, grid.shape, grid.ends, strict=True)
        for name, (low, high), (first_at, last_at), cells, whole in axes:
            if not low < high:
                raise ValueError(
                    f"{name} from {low:g} to {high:g} holds nothing; the first number must be less"
                )
            # Infinite ends, too, lie beyond.
            first = math.floor(max(first_at, -1.0))
            last = math.ceil(min(last_at, cells + 1.0))
            if first < 0 or last > cells:
                raise ValueError(
                    f"{name} from {low:g} to {high:g} reaches beyond the domain, {whole[0]:.10g} to {whole[1]:.10g}"
                )
            start.append(first)
            stop.append(last + 1)
        return cls(tuple(start), tuple(stop))

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes per axis."""
        return tuple(b - a for a, b in zip(self.start, self.stop, strict=True))

    @property
    def place(self) -> Slices:
        """The nodes as slices of the whole field."""
        return tuple(slice(a, b) for a, b in zip(self.start, self.stop, strict=True))

    def coordinates(self, grid: Grid, axis: int) -> np.ndarray:
        """Return where the nodes lie along an axis, in domain coordinates."""
        return grid.places(self.place)[axis]

    def extent(self, grid: Grid) -> tuple[tuple[float, float], ...]:
        """Return the low and the high end per axis, in domain coordinates."""
        corners = grid.at([self.start, np.subtract(self.stop, 1)])
        return tuple((low, high) for low, high in corners.T.tolist())

    def clip(self, place: Slices) -> Slices:
        """Return the part of a place in the whole field that lies in the window, maybe nothing."""
        both = common(self.place, place)
        empty = any(part.start == part.stop for part in both)
        return tuple(slice(0, 0) for _ in place) if empty else both

    def within(self, place: Slices) -> Slices:
        """Return where a place in the whole field lies in that of the window."""
        return tuple(
            slice(part.start - a, part.stop - a) for part, a in zip(place, self.start, strict=True)
        )


@dataclass(frozen=True)
class Strip:
    """Some rows of this rank's part of the field, with a node more all around within the domain."""

    # ``(n, rows, columns)``, in general a buffer that the next strip overwrites
    values: torch.Tensor
    inner: Slices  # which of them this rank owns
    place: Slices  # where these belong in the field of the whole domain

    @property
    def owned(self) -> torch.Tensor:
        """The values without those of other ranks, and without those of other strips."""
        return self.values[:, *self.inner]

    def times(self, factors: np.ndarray) -> "Strip":
        """Return the values of each problem multiplied, ``(n,)``; these, if all factors are 1."""
        if (factors == 1.0).all():
            return self
        each = torch.from_numpy(factors).view(-1, *[1] * len(self.inner)).to(self.values)
        return Strip(self.values * each, self.inner, self.place)


def in_window(strips: Iterator[Strip], window: Window) -> Iterator[Strip]:
    """Yield the parts of strips that lie in a window."""
    for strip in strips:
        place = window.clip(strip.place)
        if place[0].stop > 0:
            inner = tuple(
                slice(own.start + part.start - whole.start, own.start + part.stop - whole.start)
                for own, part, whole in zip(strip.inner, place, strip.place, strict=True)
            )
            yield Strip(strip.values, inner, place)


def as_points(points: Any, axes: int = 2) -> np.ndarray:
    """Return points as an array ``(q, axes)``; they may be a list, a tensor, or a single point.

    `ValueError` if they are not rows of so many numbers.
    """
    row = f"rows ({', '.join(reversed(letters(axes)))})"
    try:
        array = np.asanyarray(points.detach().cpu() if hasattr(points, "detach") else points)
        array = np.ma.filled(array.astype(float), np.nan)  # as what is no place is
    except (ValueError, TypeError) as error:
        raise ValueError(f"points must be {row} of numbers, got {points!r}") from error
    if array.shape == (axes,):
        array = array[None]
    if array.ndim != 2 or array.shape[1] != axes:
        raise ValueError(f"points must have the shape (q, {axes}), {row}, got {array.shape}")
    return array


def on_grid(points: np.ndarray, grid: Grid) -> np.ndarray:
    """Turn points ``(q, 2)``, (x, y) in domain coordinates, into cells in the order of the axes.

    `ValueError` if one is not finite or lies outside of the domain.
    """
    cells = grid.cells(points[:, ::-1])
    outside = ~((cells >= 0) & (cells <= grid.shape)).all(axis=1)  # NaN, too
    if outside.any():
        first = int(outside.argmax())
        ends = zip(reversed(letters(len(grid.size))), reversed(grid.ends), strict=True)
        domain = " and ".join(
            f"{low:.10g} to {high:.10g} along {letter}" for letter, (low, high) in ends
        )
        raise ValueError(
            f"{outside.sum()} of {len(points)} points lie outside of the domain, {domain}; the first is "
            f"number {first + 1}, ({', '.join(f'{x:g}' for x in points[first])})"
        )
    return cells


def interpolate(field: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Interpolate fields ``(n, rows, columns)`` linearly along each axis at ``(q, 2)``: ``(n, q)``.

    `ValueError` if a point lies beside the field, in a window of the domain.
    """
    values = np.zeros((len(field), len(cells)))
    for nodes, weights in nodes_around(cells, field.shape[1:]):
        index: tuple[slice | np.ndarray, ...] = (slice(None), *nodes)
        values += weights * field[index]
    return values


def nodes_around(
    cells: np.ndarray, nodes: tuple[int, ...]
) -> Iterator[tuple[tuple[np.ndarray, ...], np.ndarray]]:
    """Yield the nodes at the corners of the cells that points lie in, an index per axis, and their weights ``(q,)``.

    `ValueError` if a point lies beside the array of so many nodes, in a window of the domain.
    """
    last = np.array(nodes) - 1
    if ((cells < 0) | (cells > last)).any():
        raise ValueError("a point lies outside of the window that the field is known in")
    low = np.minimum(cells.astype(int), np.maximum(last - 1, 0))
    ends, above = (low, np.minimum(low + 1, last)), cells - low
    for corner in itertools.product((0, 1), repeat=len(last)):
        place = tuple(ends[end][:, axis] for axis, end in enumerate(corner))
        shares = [above[:, axis] if end else 1 - above[:, axis] for axis, end in enumerate(corner)]
        yield place, np.prod(shares, axis=0)


def interpolate_within(
    field: np.ndarray, inside: np.ndarray, level: np.ndarray, cells: np.ndarray
) -> np.ndarray:
    """Interpolate fields that are NaN outside of a domain; outside, where the level is positive, NaN.

    In cells that have nodes without values, the weights of the others are scaled up.
    ``inside``: the nodes where the fields have values; ``level``: at their nodes, negative inside.
    """
    weights = interpolate(inside[None].astype(float), cells)[0]
    outside = (interpolate(level[None], cells)[0] > 0) | (weights == 0)
    values = interpolate(np.where(inside, field, 0.0), cells)
    return np.where(outside, np.nan, values / np.where(weights > 0, weights, 1.0))
