"""The derivative of a nonlinear residual, as conductances between nodes, and the residual's structure.

Random values show the structure: a sum of flows between two nodes, or of contributions of cells.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from mosaicdd.axes import at, ends_of, steps_across, steps_along
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.patch import Offset, StencilValues, neighbours_of, offsets

if TYPE_CHECKING:
    from mosaicdd.problems.operators.nonlinear import Nonlinear


_ROUNDING = 1e-9  # relative, of residuals
_PLACES = 16


def is_sum_of_cells(operator: "Nonlinear") -> bool:
    """Say whether the residual is a sum over the cells around a node, `StencilValues.cells`."""
    rng, axes = np.random.default_rng(0), operator.axes
    whole = torch.from_numpy(rng.uniform(0.4, 0.6, (3,) * axes))
    fields = operator.ordinary(whole[(slice(1, 2),) * axes])
    total = operator.at(StencilValues.of(whole, axes), fields, 1.0)
    left = total
    for corner in itertools.product((0, 1), repeat=axes):
        cells = torch.zeros((2,) * axes, dtype=torch.float64)
        cells[corner] = 1.0
        left = left - operator.at(StencilValues.of(whole, axes, cells=cells), fields, 1.0)
    return not _exceeds(left, total)


def is_sum_of_flows(operator: "Nonlinear") -> bool:
    """Say whether the residual is a sum of a reaction and one flow to each neighbour.

    It must not even ask for corners: those of the p-Laplacian count nothing for ``p = 2``, and next to nothing beside a
    large ``eps``.
    """
    values = _values(operator)
    centre, count = values[0], 1 + 2 * operator.axes
    fields = operator.ordinary(centre)
    try:
        operator.in_squares(StencilValues(*values[:count]), fields, 1.0)
    except IndexError:
        return False
    alone = operator.in_squares(operator.uniform(centre), fields, 1.0)
    total, size = alone.clone(), abs(alone)
    for k in range(1, count):
        patch = StencilValues(*(values[k] if i == k else centre for i in range(len(values))))
        flow = operator.in_squares(patch, fields, 1.0) - alone
        total, size = total + flow, size + abs(flow)
    return not _exceeds(operator.in_squares(StencilValues(*values), fields, 1.0) - total, size)


def is_conserving(operator: "Nonlinear") -> bool:
    """Say whether flows conserve: both ends of an edge, or the corners of a cell, add to zero."""
    if not operator.two_point_flux:
        return _loses_nothing(operator)
    low, high = _values(operator)[:2]
    ends, steps = [operator.ordinary(low, seed) for seed in (0, 1)], neighbours_of(operator.axes)
    flows = []
    for (value, beside), (own, others) in (((low, high), ends), ((high, low), ends[::-1])):
        fields = {
            name: StencilValues(at.centre, *others[name].neighbours) for name, at in own.items()
        }
        flows.append(operator.flows([value, *[beside] * len(steps)], fields, 1.0)[1])
    back = [flows[1][steps.index(tuple(-s for s in step))] for step in steps]
    return not any(_exceeds(f + b, f) for f, b in zip(flows[0], back, strict=True))


def _loses_nothing(operator: "Nonlinear") -> bool:
    """Say whether the flows between the corners of one cell add to zero."""
    rng, axes = np.random.default_rng(0), operator.axes
    cells = torch.zeros((3,) * axes, dtype=torch.float64)
    cells[(1,) * axes] = 1.0

    def corners() -> torch.Tensor:
        return torch.from_numpy(rng.uniform(0.4, 0.6, (4,) * axes))

    u = StencilValues.of(corners(), axes, cells=cells)
    fields = {
        name: StencilValues.of(corners(), axes)
        if operator.residual_fields[name].number is None
        else patch
        for name, patch in operator.ordinary(u.centre).items()
    }
    alone = StencilValues(*[u.centre] * len(u.values), cells=cells)
    flows = operator.at(u, fields, 1.0) - operator.at(alone, fields, 1.0)
    return _is_rounding(flows.sum(), abs(flows).sum())


def is_as_in_squares(operator: "Nonlinear") -> bool:
    """Say whether variation along one axis has the residual of squares, or cubes, of its side."""
    rng, axes = np.random.default_rng(0), operator.axes
    whole = {
        name: torch.from_numpy(rng.uniform(1, 2, (3,) * axes)) for name in operator.residual_fields
    }
    fields = {name: StencilValues.of(values, axes) for name, values in whole.items()}
    for axis, side in enumerate(operator.aspect):
        line = torch.from_numpy(rng.uniform(0.4, 0.6, at(axis, axes, 3, 1)))
        u = StencilValues.of(line.expand((3,) * axes), axes)
        expected = operator.in_squares(u, fields, side)
        if _exceeds(operator.at(u, fields, 1.0) - expected, expected):
            return False
    return True


def only_reacts(operator: "Nonlinear", name: str) -> bool:
    """Say whether a field enters the reaction alone: at the node, and linearly."""
    u = _values(operator)
    others = torch.from_numpy(np.random.default_rng(1).uniform(0.5, 1.5, tuple(u.shape)))
    ordinary = operator.ordinary(u[0])

    def residual(
        values: StencilValues, held: float, around: torch.Tensor | None = None
    ) -> torch.Tensor:
        field = operator.uniform(torch.full_like(u[0], held))
        if around is not None:
            field = StencilValues(field.centre, *around[1:])
        return operator.in_squares(values, ordinary | {name: field}, 1.0)

    whole, alone = StencilValues(*u), operator.uniform(u[0])
    reactions = [residual(alone, held) for held in (0.5, 1.0, 1.5)]
    flows = [residual(whole, held) - r for held, r in ((0.5, reactions[0]), (1.5, reactions[2]))]
    size = torch.stack([abs(values) for values in (*reactions, *flows)]).sum(dim=0)
    return (
        _is_rounding(reactions[0] + reactions[2] - 2.0 * reactions[1], size)
        and _is_rounding(flows[1] - flows[0], size)
        and _is_rounding(residual(whole, 1.0, others) - residual(whole, 1.0), size)
    )


def _exceeds(left: torch.Tensor, of: torch.Tensor) -> bool:
    """Say whether a difference of residuals is more than rounding, of their sizes; NaN, which shows nothing, is not."""
    return bool((abs(left) > _ROUNDING * abs(of)).any())


def _is_rounding(left: torch.Tensor, of: torch.Tensor) -> bool:
    """Say whether a difference of residuals is rounding, of their sizes; NaN is not."""
    return bool((abs(left) <= _ROUNDING * abs(of)).all())


def _values(operator: "Nonlinear") -> torch.Tensor:
    """Return values of stencils, ``(offsets, places)``."""
    shape = len(offsets(operator.axes)), _PLACES
    return torch.from_numpy(np.random.default_rng(0).uniform(0.4, 0.6, shape))


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
