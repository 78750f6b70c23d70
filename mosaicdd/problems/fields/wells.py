"""Point sources of given totals, on or between the nodes."""

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from mosaicdd.axes import Slices
from mosaicdd.grid.grid import Grid
from mosaicdd.problems.fields.evaluated import expression_in_time
from mosaicdd.problems.fields.expressions import Expression, require_of_time
from mosaicdd.problems.fields.fields import Field
from mosaicdd.problems.fields.given import is_number, real_array, same_values, usable
from mosaicdd.unsupported import Unsupported

Strength = float | str | Callable[[float], float]
_NAMES = ("pi",)
_STRENGTH = "the strength of a well"


class Wells:
    """Point sources, each of a given total, added to a distributed source ``f``.

    A strength is shared out among the nodes of the cell around its place, linearly along each axis; so their total, and the
    place's mean, are exact wherever it lies, and what is some cells away is of second order. At a node on a side it acts with the half of a cell that the node has of the domain. In time a strength may depend on ``t``; one that is
    switched at the end of a step, ``1.0 * (t < 5)``, counts as it is within the step.

    Parameters
    ----------
    points
        Pairs of a place ``(x, y)``, in space ``(x, y, z)``, in units of domain length, and a strength: what flows in there, as
        `Balance` counts it, a number, the text of an expression in ``t``, or a function of it.
    beside
        What else the source has: all that `Field` takes, of one problem.

    Raises
    ------
    ValueError
        If there is no point, or places are not finite or of different numbers of coordinates.
    TypeError
        If a strength is none.
    """

    def __init__(self, points: Iterable[tuple[Sequence[float], Strength]], beside: Any = 0.0):
        points = [*points] if isinstance(points, Iterable) else [points]
        for point in points:
            if not (hasattr(point, "__len__") and len(point) == 2):
                raise TypeError(
                    f"wells are pairs of a place and a strength, as [((x, y), strength), ...], got {point!r}"
                )
        self.points: tuple[tuple[tuple[float, ...], Strength], ...] = tuple(
            (tuple(real_array(place, "the place of a well").ravel().tolist()), _sound(strength))
            for place, strength in points
        )
        if not self.points:
            raise ValueError("there are no wells: give [((x, y), strength), ...], or f=0")
        sizes = {len(place) for place, _ in self.points}
        if len(sizes) != 1 or not sizes <= {2, 3}:
            raise ValueError(
                "wells are pairs of a place (x, y), or (x, y, z), and a strength, at least one, got places of "
                f"{' and '.join(map(str, sorted(sizes))) or 'no'} coordinates"
            )
        if not np.isfinite([place for place, _ in self.points]).all():
            raise ValueError("the place of a well is not finite")
        self.beside = usable(beside, "what is beside wells")
        self._beside = Field("f", self.beside, sizes.pop())
        if self._beside.problems > 1:
            raise Unsupported(
                f"wells are beside the source of one problem, got {self._beside.problems}, or of many times: "
                "solve one by one, or give a function of t"
            )
        self._spread: tuple[Grid, np.ndarray, np.ndarray] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wells) and same_values(
            (self.points, self.beside), (other.points, other.beside)
        )

    def __hash__(self) -> int:
        return hash(tuple(place for place, _ in self.points))

    def __str__(self) -> str:
        count = len(self.points)
        return f"{count} well{'s' * (count > 1)} beside {self._beside}"

    @cached_property
    def as_value(self) -> Hashable | None:
        """Points and distributed source, where these are immutable."""
        fixed = self._beside.value is not None and not any(callable(s) for _, s in self.points)
        return (self.points, self._beside.value) if fixed else None

    @property
    def may_jump(self) -> bool:
        """Whether a strength may jump in time."""
        strengths = (strength for _, strength in self.points)
        changing = (s for s in strengths if not isinstance(s, float))
        return any(callable(s) or _expression(s, 0.0).may_jump("t") for s in changing)

    def at_time(self, t: float, beside: Any) -> Self:
        """Return the wells at a time with another distributed source; themselves if nothing differs."""
        points = tuple((place, _at(strength, t)) for place, strength in self.points)
        if beside is self.beside and points == self.points:
            return self
        return type(self)(points, beside)

    def require_grid(self, grid: Grid) -> None:
        """Raise `ValueError` if one is outside of a grid, or of another number of axes."""
        self._on(grid)
        self._beside.require_shape(grid)

    def around(self, grid: Grid) -> np.ndarray:
        """Return the nodes among which each point is shared out, ``(points, nodes, axes)``."""
        nodes, _ = self._on(grid)
        return nodes.reshape(len(self.points), -1, nodes.shape[1])

    def sample(self, grid: Grid, part: Slices) -> np.ndarray:
        """Return the source at the nodes of a part, ``(n, rows, columns)``."""
        values = self._beside.sample_as_given(grid, part, checked=False).copy()
        nodes, shares = self._on(grid)
        strengths = np.array([_at(strength, None) for _, strength in self.points])
        loads = np.repeat(strengths, len(shares) // len(strengths)) * shares
        inside = np.logical_and.reduce(
            [(n >= p.start) & (n < p.stop) for n, p in zip(nodes.T, part, strict=True)]
        )
        places = tuple(n[inside] - p.start for n, p in zip(nodes.T, part, strict=True))
        for field in values:
            np.add.at(field, places, loads[inside])
        return values

    def _on(self, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
        """Return nodes ``(K, axes)``, equally many a point, and their shares per volume."""
        if self._spread is None or self._spread[0] != grid:
            self._spread = grid, *self._spread_on(grid)
        return self._spread[1:]

    def _spread_on(self, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
        for place, _ in self.points:
            grid.require_inside(place, "the well at ({}) is outside")
        at = grid.cells(np.array([place[::-1] for place, _ in self.points]))
        first = np.minimum(np.floor(at).astype(int), np.array(grid.shape) - 1)
        nodes, shares = [], []
        for step in itertools.product((0, 1), repeat=len(grid.shape)):
            node = first + step
            weights = np.prod(np.where(np.array(step) == 1, at - first, 1 - (at - first)), axis=1)
            ends = (node == 0) | (node == grid.shape)
            volumes = np.prod(np.where(ends, 0.5, 1.0), axis=1) * np.prod(grid.steps)
            nodes.append(node)
            shares.append(weights / volumes)
        return np.concatenate(np.stack(nodes, axis=1)), np.stack(shares, axis=1).ravel()


def _sound(strength: Any) -> Strength:
    """Return a valid strength; else raise `TypeError` or `ValueError`."""
    if callable(strength):
        require_of_time(strength, _STRENGTH)
    elif isinstance(strength, str):
        strength = strength.removeprefix("expr:")
        _expression(strength, 0.0)
    elif is_number(strength):
        strength = float(real_array(strength, _STRENGTH))
    else:
        raise TypeError(
            f"{_STRENGTH} must be a number, an expression in t or a function of it, got {type(strength).__name__}"
        )
    return strength


def _at(strength: Strength, t: float | None) -> float:
    """Return a strength at a time; `ValueError` if it is infinite, or needs a time."""
    value: Any = strength
    if isinstance(strength, str):
        value = float(_expression(strength, t)())
    elif callable(strength):
        if t is None:
            raise ValueError(f"{_STRENGTH} is a function of the time: it is for steps (march)")
        value = float(real_array(strength(float(t)), _STRENGTH))
    if not np.isfinite(value):
        raise ValueError(f"{_STRENGTH} must be finite, got {value}")
    return value


def _expression(text: str, t: float | None) -> Expression:
    """Return the expression of a strength at a time, or without a time."""
    return Expression(text, _NAMES) if t is None else expression_in_time(text, _NAMES, t)
