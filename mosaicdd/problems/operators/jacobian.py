"""The derivative of a residual as a linear operator: conductances between nodes.

What the residual of a nonlinear equation is like, as far as random values show it.
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
    """Say whether the residual is the sum of what each of the cells around a node has, which it knows apart."""
    rng, axes = np.random.default_rng(0), operator.axes
    whole = torch.from_numpy(rng.uniform(0.4, 0.6, (3,) * axes))
    fields = operator.ordinary(whole[(slice(1, 2),) * axes])
    every = operator.at(StencilValues.of(whole, axes), fields, 1.0)
    total = torch.zeros_like(every)
    for corner in itertools.product((0, 1), repeat=axes):
        cells = torch.zeros((2,) * axes, dtype=torch.float64)
        cells[corner] = 1.0
        total = total + operator.at(StencilValues.of(whole, axes, cells=cells), fields, 1.0)
    return not bool((abs(total - every) > _ROUNDING * abs(every)).any())


def is_sum_of_flows(operator: "Nonlinear") -> bool:
    """Say whether the neighbours of a node count one by one, and its corners are not even asked for.

    Those of the p-Laplacian count nothing for ``p = 2``, and next to nothing beside a large ``eps``.
    """
    values = _values(operator)
    centre, count = values[0], 1 + 2 * operator.axes
    fields, h = operator.ordinary(centre), 1.0
    try:
        operator.in_squares(StencilValues(*values[:count]), fields, h)
    except IndexError:
        return False
    alone = operator.in_squares(operator.uniform(centre), fields, h)
    total, size = alone.clone(), abs(alone)
    for k in range(1, count):
        patch = StencilValues(*(values[k] if i == k else centre for i in range(len(values))))
        flow = operator.in_squares(patch, fields, h) - alone
        total, size = total + flow, size + abs(flow)
    left = abs(operator.in_squares(StencilValues(*values), fields, h) - total)
    return not (left > _ROUNDING * size).any()


def is_conserving(operator: "Nonlinear") -> bool:
    """Say whether what flows from a node to another is what flows to that, or all that flows in a cell is nothing."""
    if not operator.two_point_flux:
        return _loses_nothing(operator)
    values, steps, flows = _values(operator)[:2], neighbours_of(operator.axes), []
    ends = [operator.ordinary(values[0], seed) for seed in (0, 1)]
    for (here, there), (own, others) in zip(
        (values, values.flip(0)), (ends, ends[::-1]), strict=True
    ):
        fields = {
            name: StencilValues(at.centre, *others[name].neighbours) for name, at in own.items()
        }
        flows.append(operator.flows([here, *[there] * len(steps)], fields, 1.0)[1])
    for step, forth in zip(steps, flows[0], strict=True):
        back = flows[1][steps.index(tuple(-s for s in step))]
        if (abs(forth + back) > _ROUNDING * abs(forth)).any():
            return False
    return True


def _loses_nothing(operator: "Nonlinear") -> bool:
    """Say whether all that flows between the corners of one cell is nothing."""
    rng, axes = np.random.default_rng(0), operator.axes
    cells = torch.zeros((3,) * axes, dtype=torch.float64)
    cells[(1,) * axes] = 1.0

    def corners() -> torch.Tensor:
        return torch.from_numpy(rng.uniform(0.4, 0.6, (4,) * axes))

    u = StencilValues.of(corners(), axes, cells=cells)
    fields = {
        name: StencilValues.of(corners(), axes) if operator.taken[name].number is None else patch
        for name, patch in operator.ordinary(u.centre).items()
    }
    alone = StencilValues(*[u.centre] * len(u.values), cells=cells)
    flows = operator.at(u, fields, 1.0) - operator.at(alone, fields, 1.0)
    return bool(abs(flows.sum()) <= _ROUNDING * abs(flows).sum())


def is_as_in_squares(operator: "Nonlinear") -> bool:
    """Say whether what varies along an axis alone has the residual that it has in squares, or cubes, of the side along it."""
    rng, axes = np.random.default_rng(0), operator.axes
    whole = {name: torch.from_numpy(rng.uniform(1, 2, (3,) * axes)) for name in operator.taken}
    fields = {name: StencilValues.of(values, axes) for name, values in whole.items()}
    for axis, side in enumerate(operator.aspect):
        line = torch.from_numpy(rng.uniform(0.4, 0.6, at(axis, axes, 3, 1)))
        u = StencilValues.of(line.expand((3,) * axes), axes)
        expected = operator.in_squares(u, fields, side)
        if (abs(operator.at(u, fields, 1.0) - expected) > _ROUNDING * abs(expected)).any():
            return False
    return True


def only_reacts(operator: "Nonlinear", name: str) -> bool:
    """Say whether the residual depends on a field at the node alone, linearly, and what flows does not."""
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
    differ = (
        reactions[0] + reactions[2] - 2.0 * reactions[1],
        flows[1] - flows[0],
        residual(whole, 1.0, others) - residual(whole, 1.0),
    )
    size = torch.stack([abs(values) for values in (*reactions, *flows)]).sum(dim=0)
    return all(bool((abs(values) <= _ROUNDING * size).all()) for values in differ)


def _values(operator: "Nonlinear") -> torch.Tensor:
    """Return values of patches, ``(offsets, places)``."""
    shape = len(offsets(operator.axes)), _PLACES
    return torch.from_numpy(np.random.default_rng(0).uniform(0.4, 0.6, shape))


_PAST = 0.5  # of an energy's slope where a step begins, that it may rise by where it ends


class NotEllipticError(ValueError):
    """At some values an equation has no elliptic derivative, or no finite residual."""


class OutOfRangeError(NotEllipticError):
    """The numbers of some equations are too large, too small or too far apart for float64."""


def is_beyond(before: float, after: float) -> bool:
    """Say whether a step that an energy falls along at first leads far beyond its least, by its slopes at both ends.

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
    """Return conductances from the derivatives at the nodes inside by those at offsets from them.

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
    low, high = _negative_beyond(forth, offset), _negative_beyond(back, [-d for d in offset])
    # All but what is along the edges is known from both ends.
    for axis, end in itertools.product(range(len(offset)), (0, -1)):
        edge = at(axis, len(offset), end)
        known = inside[first][edge], inside[last][edge]
        ends = low[edge].copy(), high[edge].copy()
        low[edge] = np.where(known[0] | ~known[1], *ends)
        high[edge] = np.where(known[1] | ~known[0], *ends[::-1])
    return low, high


def _negative_beyond(values: np.ndarray, offset: Sequence[int]) -> np.ndarray:
    """Return minus the values of nodes inside, for all edges along an offset from them; beyond, that of the next edge."""
    axes = len(offset)
    edges = np.empty([n + 2 - abs(s) for n, s in zip(values.shape, offset, strict=True)])
    inner = tuple(slice(int(s >= 0), -1 if s <= 0 else None) for s in offset)
    np.negative(values, out=edges[inner])
    for axis, s in enumerate(offset):
        for end, beside in ((0, 1),) * (s >= 0) + ((-1, -2),) * (s <= 0):
            edges[at(axis, axes, end)] = edges[at(axis, axes, beside)]
    return edges


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
