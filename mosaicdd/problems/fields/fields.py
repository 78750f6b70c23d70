"""Fields over the domain, sampled at the nodes of a part; signs of coefficients."""

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np

from mosaicdd.axes import (
    Slices,
    contains,
    coordinates,
    crossed,
    ends,
    in_rows,
    last,
    letters,
    within,
)
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.evaluated import STRIP, checksum_of, evaluate, require_finite
from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.fields.given import is_number, real_array, require_spacing, shape_of, usable
from mosaicdd.problems.fields.random_media import PREFIX, Lognormal
from mosaicdd.unsupported import Unsupported

_STRIP = 2**16  # values that are looked at at a time
_READ = 2**20  # values of a file that are read at once
DIFFUSION = "a", "axx", "ayy", "azz"
Part = Slices
"""Nodes of the grid: a slice with bounds per axis, (y, x)."""

Periods = tuple[int | None, ...]
"""After how many nodes each axis comes round, (y, x); None where it does not."""


class Field:
    """Values of one or several problems at nodes, or per cell.

    A node's value is then the mean of the cells around it, of which its control volume consists.

    `ValueError` if they are complex, a number that is not finite, or a setting of random values is not allowed.
    `TypeError` if they are none of these.

    Parameters
    ----------
    name
        For messages.
    values
        A number; a function ``f(x, y)`` of arrays of coordinates in units of domain length; the text
        of an expression in ``x`` and ``y``, or ``lognormal:seed=0,length=L,contrast=C`` for random
        values (`Lognormal`); points with a strength (`Wells`); a medium with foils (`Foils`); or node values ``(ny + 1, nx + 1)``, of several problems
        ``(n, ny + 1, nx + 1)``, or values per cell, ``(ny, nx)`` or ``(n, ny, nx)``: an array, a tensor, or anything
        with a shape that gives an array when it is sliced, as a file that need not be read whole.
    axes
        Of the grid: in space functions are ``f(x, y, z)``, and node values ``(nz + 1, ny + 1, nx + 1)``.

    Attributes
    ----------
    foils
        The `Foils` in it; None without any. ``values`` are then those of the medium around them.
    number
        The number, if it is one.
    of_rank
        Whether a rank has values of its part alone.
    """

    def __init__(self, name: str, values: Any, axes: int = 2):
        self.name, self.axes = name, axes
        self._what = f"the field {name}"
        self.foils = values if hasattr(values, "foils") else None
        values = usable(values if self.foils is None else values.beside, self._what)
        is_one = is_number(values)
        if is_one or isinstance(values, (list, tuple)):
            values = real_array(values, self._what)
        if is_one and not np.isfinite(values):
            raise ValueError(f"{self._what} must be finite, got {values}")
        self.values: Any = float(values) if is_one else values
        self.number: float | None = self.values if is_one and self.foils is None else None
        self._shape, self._text = shape_of(values), isinstance(values, str)
        # What samples itself on a grid: random values, and points with a strength
        self._sampled = values if hasattr(values, "sample") else None
        if self._text and values.startswith(PREFIX):
            self._sampled = Lognormal.of_text(values)
        if not (is_one or self._shape or self._text or self._sampled or callable(values)):
            raise TypeError(
                f"{self._what} must be a real number, a function of ({coordinates(axes)}), an expression or an "
                f"array, got {type(values).__name__}"
            )
        self.of_rank = getattr(values, "part", None) is not None
        self._kept: tuple[Grid, Part, np.ndarray] | None = None
        self._fits: Grid | None = None  # to which node values are known to belong

    def among_foils(self, values: Any) -> Any:
        """Return other values with the foils of this field."""
        return values if self.foils is None else self.foils.among(values)

    @property
    def value(self) -> Hashable | None:
        """A hashable value that identifies an immutable field: a number, a text, a file's version."""
        fixed = self._text or type(self.values) is float
        value = self.values if fixed else getattr(self.values, "as_value", None)
        return value if self.foils is None or value is None else (value, self.foils.foils)

    def fingerprint(self, grid: Grid, part: Part) -> Hashable:
        """Return the field's `value`, or a checksum at the nodes of a part."""
        if self.value is not None:
            return self.value
        held = type(self.values) is np.ndarray or not self._shape
        sample = functools.partial(self.sample_as_given, grid, checked=False)
        total = checksum_of(sample, part, strip=STRIP if held else _READ)
        return total if self.foils is None else (total, self.foils.foils)

    def keep(self, grid: Grid, part: Part) -> None:
        """Cache the values of a function at the nodes of a part."""
        if callable(self.values) and not isinstance(self.values, Expression):
            strips = [self.sample_as_given(grid, s, checked=False) for s in in_rows(part, STRIP)]
            if strips:
                self._kept = grid, part, np.concatenate(strips, axis=1)

    def forget(self) -> None:
        """Drop the cached values of a function."""
        self._kept = None

    def follow(self, other: "Field") -> None:
        """Read from the array of another field with the same values, unless values are cached."""
        if self._kept is None:
            vars(self).update(vars(other), _kept=None, _fits=None)

    def __str__(self) -> str:
        """Describe the field in a few words."""
        if self.foils is not None:
            return f"{Field(self.name, self.values, self.axes)} with {self.foils}"
        if self.number is not None:
            return f"{self.number:g}"
        if self._text:
            return self.values
        if self._shape and not hasattr(self.values, "name"):
            return f"array of shape {self._shape}"
        if self._sampled is not None:
            return str(self.values)
        return str(getattr(self.values, "name", getattr(self.values, "__name__", "function")))

    @property
    def problems(self) -> int:
        """Number of problems with values of their own; 1 for values common to all."""
        return self._shape[0] if len(self._shape) > self.axes else 1

    @property
    def times(self) -> int | None:
        """Number of times in values ``(n, times, ny + 1, nx + 1)``; None without that axis."""
        return self._shape[1] if len(self._shape) == self.axes + 2 else None

    def require_shape(self, grid: Grid, *, in_time: bool = False, cells: bool = False) -> None:
        """Raise `ValueError` unless values fit a grid, whose spacing resolves random ones.

        ``in_time``: whether they may have an axis for times; ``cells``: whether they may be per cell.
        """
        require_spacing(self.values, grid, self._what)
        if self._sampled is not None:
            self._sampled.require_grid(grid)
        axes, most = self.axes, self.axes + 1 + in_time
        fits = self._shape[-axes:] == grid.nodes or (cells and self.per_cell(grid))
        if self._shape and (len(self._shape) > most or not fits):
            sizes = ", ".join(f"n{letter} + 1" for letter in letters(axes))
            backwards = self._shape[: -axes - 1 : -1]
            hint = ""
            if self.times is not None and fits:
                hint = f" and no axes for {self._shape[0]} problems and {self.times} times: only steps in time (march) take a source of these"
            elif self._shape == grid.shape:
                hint = f", and {self.name} is given there, not per cell"
            elif len(self._shape) <= axes + 1 and backwards in (grid.nodes, grid.shape):
                hint = f": its axes are in the order ({coordinates(axes)}), give its transpose"
            raise ValueError(
                f"{self._what} has the shape {self._shape}, the grid has {grid.nodes} nodes "
                f"({sizes}){hint}"
            )

    def require_common(self, grid: Grid, *, cells: bool) -> None:
        """Check the shape, as `require_shape`; raise `Unsupported` for values of several problems."""
        if self.problems > 1:
            raise Unsupported(
                f"{self._what} is of {self.problems} problems; problems that are solved "
                "at once share their coefficients: solve them one by one"
            )
        self.require_shape(grid, cells=cells)

    def per_cell(self, grid: Grid) -> bool:
        """Say whether values are given per cell of a grid."""
        return self._shape[-len(grid.shape) :] == tuple(grid.shape)

    def count(self, wrong: Callable[[np.ndarray], np.ndarray]) -> tuple[int, int]:
        """Count the wrong values of an array, and all of them; zeros for other fields."""
        if not self._shape:
            return 0, 0
        rows = range(self._shape[-self.axes])
        every = (slice(None),) * (self.axes - 1)
        values = (real_array(self.values[last((row, *every))], self.name) for row in rows)
        return sum(int(wrong(row).sum()) for row in values), math.prod(self._shape)

    def sample_as_given(self, grid: Grid, part: Part, *, checked: bool = True) -> np.ndarray:
        """Return the values at nodes, or in the cells whose lower corners these are.

        ``(n, rows, columns)``; of cells, those there are. Unless ``checked``, they need not be finite.
        """
        if self.per_cell(grid):
            cells = (slice(p.start, min(p.stop, n)) for p, n in zip(part, grid.shape, strict=True))
            values = self.sample_cells(tuple(cells))
            values = values.reshape(self.problems, *values.shape[-len(part) :])
        else:
            values = self._values(grid, part)
        return require_finite(values, self._what) if checked else values

    def sample_cells(self, part: Part) -> np.ndarray:
        """Return a part of an array of node or cell values, ``(.., rows, columns)``, unchecked."""
        return real_array(self.values[last(part)], self._what)

    def sample(self, grid: Grid, part: Part, where: np.ndarray | None = None) -> np.ndarray:
        """Return values at the nodes of a part, ``(n, rows, columns)``; n is 1 for common values.

        Of values per cell the means of those around, on a rectangle; within a shape see `sample_near`.
        ``where``: which nodes must have finite values, ``(rows, columns)``; by default all.

        `ValueError` if values belong to another grid, or one is not finite.
        """
        if where is None and self.per_cell(grid):
            cells = cells_of(part, grid)
            self.require_finite(self.sample_cells(cells), grid, cells)
        values = self._values(grid, part)
        checked = values if where is None else np.where(where, values, 0.0)
        self.require_finite(checked[0] if len(values) == 1 else checked, grid, part)
        return values

    def require_finite(self, values: np.ndarray, grid: Grid, part: Part) -> np.ndarray:
        """Return values of a part; raise `ValueError` with a count where they are not finite."""
        return require_finite(
            values,
            self._what,
            (0, *(p.start for p in part)),
            kind="cell" if self.per_cell(grid) else "node",
            counts=lambda: self.count(lambda held: ~np.isfinite(held)),
        )

    def strips(self, grid: Grid) -> Iterator[tuple[Part, np.ndarray]]:
        """Yield strips of the grid and the first problem's values on them, unchecked."""
        for part in in_rows(tuple(slice(0, nodes) for nodes in grid.nodes), _STRIP):
            yield part, self._values(grid, part)[0]

    def _values(self, grid: Grid, part: Part) -> np.ndarray:
        """Return values at the nodes of a part, ``(n, rows, columns)``, unchecked."""
        if self._kept is not None and self._kept[0] == grid:
            whole, cached = self._kept[1:]
            if contains(whole, part):
                return cached[:, *within(part, whole)]
        if self.per_cell(grid):
            values = self._means(grid, part)
        elif self._shape:
            if self._fits is not grid:
                self.require_shape(grid)
                self._fits = grid
            values = self.sample_cells(part)
        elif self._sampled is not None:
            values = self._sampled.sample(grid, part)
        else:
            values = evaluate(self.values, crossed(*grid.places(part)), self._what)
        return values.reshape(math.prod(values.shape[: -len(part)]), *values.shape[-len(part) :])

    def _means(self, grid: Grid, part: Part) -> np.ndarray:
        """Return the means of finite values in the cells around nodes; NaN where none is finite."""
        values = self.sample_cells(cells_of(part, grid))
        finite = np.isfinite(values)
        nodes = zip(part, grid.nodes, strict=True)
        beyond = [(int(p.start == 0), int(p.stop == count)) for p, count in nodes]
        padding = [(0, 0)] * (values.ndim - len(part)) + beyond
        total, count = (np.pad(a, padding) for a in (np.where(finite, values, 0.0), finite * 1.0))
        for axis in range(len(part)):
            low, high = (last(end) for end in ends(axis, len(part)))
            total, count = (a[low] + a[high] for a in (total, count))
        return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def cells_of(part: Part, grid: Grid) -> Part:
    """Return the cells of the grid around the nodes of a part."""
    return tuple(
        slice(max(p.start - 1, 0), min(p.stop, count))
        for p, count in zip(part, grid.shape, strict=True)
    )


def overlap(part: Part, counts: tuple[int, ...]) -> tuple[Part, Part]:
    """Return a part's intersection with an array of a shape, as places in both."""
    return next(overlaps(part, counts, (None,) * len(counts)))


def overlaps(part: Part, counts: tuple[int, ...], periods: Periods) -> Iterator[tuple[Part, Part]]:
    """Yield a part's intersections with the periodic images of an array, as places in both."""
    along = []
    for p, n, period in zip(part, counts, periods, strict=True):
        shared = []
        rounds = range(1) if period is None else range(p.start // period, -(-p.stop // period))
        for k in rounds:
            first, count = (0, n) if period is None else (k * period, period)
            low = max(p.start, first)
            high = max(min(p.stop, first + count), low)
            shared.append((slice(low - first, high - first), slice(low - p.start, high - p.start)))
        along.append(shared)
    for places in itertools.product(*along):
        source, target = zip(*places, strict=True)
        yield source, target


def require_sign(
    values: np.ndarray, field: Field, grid: Grid, part: Part, *, positive: bool
) -> np.ndarray:
    """Check the sign of a coefficient in a part of a grid; return the values.

    `ValueError` if one is not positive, or negative: with its place, how many there are in the array that was given,
    and what to do where nothing conducts.
    """
    bad = values <= 0 if positive else values < 0
    if not bad.any():
        return values
    first = np.argwhere(bad)[0]
    place = tuple(int(i) + p.start for i, p in zip(first, part, strict=True))
    count, size = field.count(lambda held: held <= 0 if positive else held < 0)
    what = f"{count} of the {size} values given are not, the first is" if size else "it is"
    way_out = ": leave what does not conduct out of the domain, by --domain or Domain.from_mask"
    raise ValueError(
        f"the field {field.name} must be {'positive' if positive else 'not negative'} everywhere; "
        f"{what} {values[tuple(first)]:g} at {'cell' if field.per_cell(grid) else 'node'} {place}"
        f"{way_out if field.name in DIFFUSION else ''}"
    )
