"""The derivative of a residual as a linear operator: conductances between nodes."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from mosaicdd.axes import at, ends_of, steps_across, steps_along
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.patch import Offset, neighbours_of

_PAST = 0.5  # of an energy's slope where a step begins, that it may rise by where it ends


class NotEllipticError(ValueError):
    """The derivative of an equation is not elliptic at some values, or its residual not finite."""


class OutOfRangeError(NotEllipticError):
    """The numbers of some equations are too large, too small or too far apart for float64."""


def is_beyond(before: float, after: float) -> bool:
    """Say by an energy's slopes at both ends of a step whether it overshoots the minimum.

    The residual alone may not tell: where flows are bounded, as of a minimal surface, it is hardly any larger far away.
    """
    return before < 0 and after > -_PAST * before


def elliptic_conductances(partial: Mapping[Offset, np.ndarray], *, symmetric: bool) -> Conductances:
    """Return the conductances of derivatives at the nodes inside, as `conductances_of`.

    `NotEllipticError` if they are those of no elliptic equation.
    """
    crossed = any(map(_crosses, partial))
    if crossed and not symmetric:
        raise NotEllipticError(
            "a residual that depends on the corners of its patches must be self-adjoint, as that of an "
            "energy is"
        )
    _require_elliptic(partial, crossed=crossed)
    return conductances_of(partial, symmetric=symmetric)


def conductances_of(partial: Mapping[Offset, np.ndarray], *, symmetric: bool) -> Conductances:
    """Return conductances from the derivatives of inner nodes' residuals by values at offsets.

    ``partial``: by offset, ``(rows, columns)``; one that is missing is zero.
    It has one node more all around.
    """
    axes = len(next(iter(partial)))
    centre = (0,) * axes
    zero = np.zeros_like(partial[centre])
    steps: tuple[Offset, ...] = steps_along(axes)
    if any(map(_crosses, partial)):
        steps += steps_across(axes)
    between = (
        _couplings(partial.get(step, zero), partial.get(tuple(-d for d in step), zero), step)
        for step in steps
    )
    reaction = np.zeros([n + 2 for n in zero.shape])
    total = reaction[(slice(1, -1),) * axes]
    for values in partial.values():
        total += values
    if not symmetric:
        along, against = zip(*between, strict=True)
        return Conductances(along, reaction, against)
    means = []
    for forth, back in between:
        forth += back
        forth /= 2
        means.append(forth)
    along, across = tuple(means[:axes]), means[axes:]
    return Conductances(along, reaction, across=tuple(across))


def _crosses(offset: Offset) -> bool:
    return sum(map(bool, offset)) > 1


def _couplings(
    forth: np.ndarray, back: np.ndarray, offset: Offset
) -> tuple[np.ndarray, np.ndarray]:
    """Return the couplings along an offset in the equations of its first and of its last nodes.

    ``forth`` and ``back``: derivatives in the equations of all nodes inside: along the offset, and against it.
    """
    first, last = ends_of(offset)
    inside = np.pad(np.ones(forth.shape, bool), 1)
    low, high = _along(-forth, offset), _along(-back, [-d for d in offset])
    # All but what is along the edges is known from both ends.
    for axis, end in itertools.product(range(len(offset)), (0, -1)):
        edge = at(axis, len(offset), end)
        known = inside[first][edge], inside[last][edge]
        ends = low[edge].copy(), high[edge].copy()
        low[edge] = np.where(known[0] | ~known[1], *ends)
        high[edge] = np.where(known[1] | ~known[0], *ends[::-1])
    return low, high


def _along(values: np.ndarray, offset: Sequence[int]) -> np.ndarray:
    """Return values of nodes inside for all edges along an offset from them; beyond, those of the next edge."""
    return np.pad(values, [(int(s >= 0), int(s <= 0)) for s in offset], mode="edge")


def require_positive(own: np.ndarray) -> None:
    """Check the derivatives by the nodes' own values; NaN passes, as an iteration's end."""
    wrong = own <= 0
    if wrong.any():
        raise NotEllipticError(
            f"the equation's derivative by a node's own value is not positive at {int(wrong.sum())} of "
            f"{wrong.size} nodes: it is not elliptic there"
        )


def _require_elliptic(partial: Mapping[Offset, np.ndarray], *, crossed: bool) -> None:
    """Check derivatives; NaN passes, as an iteration's end.

    Where only neighbours count, one by one; else what the elimination needs shows whether they are
    positive definite, and here only that they may be.
    """
    axes = len(next(iter(partial)))
    beside = [partial.get(offset, np.zeros(1)) for offset in neighbours_of(axes)]
    count = sum(int((derivative >= 0).sum()) for derivative in beside)
    if count and not crossed:
        largest = max(np.nanmax(derivative) for derivative in beside)
        raise NotEllipticError(
            f"the equation's derivative by a neighbour is not negative at {count} of "
            f"{len(beside) * beside[0].size} places (largest {largest:.3g}): the grid is too coarse for it, or "
            "a coefficient that depends on the solution is not positive there"
        )
    require_positive(partial[(0,) * axes])
