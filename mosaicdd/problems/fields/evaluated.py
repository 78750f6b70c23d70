"""Values at coordinates, of a number, a function or an expression; node values that are read when they are sliced."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mosaicdd.lattice.axes import coordinates, letters
from mosaicdd.problems.fields.arguments import TIME, require_coordinates, signature_of
from mosaicdd.problems.fields.expressions import Expression
from mosaicdd.problems.fields.given import is_number, real_array


def evaluate(values: Any, places: Sequence[np.ndarray | float], what: str) -> np.ndarray:
    """Evaluate a number, a function ``f(x, y)`` or the text of an expression at coordinates.

    ``places``: coordinates along each axis, in the order of arrays: ``(y, x)``, which broadcast.

    `ValueError` if an expression cannot be read, or a function gives nothing, or another shape than its coordinates.
    `TypeError` if ``values`` is none of these, or a function takes other arguments.
    """
    shape = np.broadcast_shapes(*map(np.shape, places))
    if isinstance(values, str):
        try:
            values = expression_at(values.removeprefix("expr:"), len(places))
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None
    if isinstance(values, Expression):
        return values(**dict(zip(letters(len(places)), places, strict=True)))
    if callable(values):
        require_coordinates(values, len(places), what)
        try:
            returned = values(*(np.broadcast_to(place, shape) for place in reversed(places)))
        except TypeError:
            _require_arguments(values, len(places), what)
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
    if np.ndim(values) == 0 and is_number(values):
        return np.full(shape, float(real_array(values, what)))
    raise TypeError(
        f"{what} must be a number, a function of ({coordinates(len(places))}), an expression or an "
        f"array, got {type(values).__name__}"
    )


def _require_arguments(function: Callable, axes: int, what: str) -> None:
    """Check that a function can be called with a coordinate along each axis."""
    signature = signature_of(function)
    if signature is None:
        return
    try:
        signature.bind(*[0.0] * axes)
    except TypeError:
        time = ""
        if TIME in signature.parameters:
            time = "; what depends on the time t is for steps (march)"
        raise TypeError(
            f"{what} must be a function of ({coordinates(axes)}), this one takes {signature}{time}"
        ) from None


@functools.lru_cache
def expression_at(text: str, axes: int) -> Expression:
    """Return an expression, read once for all parts of a grid."""
    return Expression(text, variables=(*reversed(letters(axes)), "pi"))


def require_finite(
    values: np.ndarray,
    what: str,
    origin: tuple[int, ...] = (0, 0, 0),
    *,
    kind: str = "node",
    counts: Callable[[], tuple[int, int]] = lambda: (0, 0),
) -> np.ndarray:
    """Return values at nodes; raise `ValueError` if one is NaN or infinite, with the first one's place.

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
    """Node values ``(.., ny + 1, nx + 1)`` that are read when they are sliced, as those of a file.

    ``read``: ``read(place)``: ``[.., rows, columns]`` of them.
    """

    def __init__(self, shape: tuple[int, ...], read: Callable[[tuple], Any]):
        self.shape = shape
        self._read = read

    def __getitem__(self, place: tuple) -> Any:
        return self._read(place)

    @classmethod
    def some(cls, values: Any, which: range) -> "Sliced":
        """Return those of some of several problems."""

        def read(place: tuple) -> Any:
            first, *nodes = place
            chosen = values[which.start : which.stop, *nodes]
            return chosen if first is Ellipsis else chosen[first]

        return cls((len(which), *values.shape[1:]), read)

    @classmethod
    def of_time(cls, values: Any, number: int) -> "Sliced":
        """Return those of one of several times."""
        shape = tuple(values.shape[1:])
        return cls(shape, lambda place: values[number, *place[-len(shape) :]])
