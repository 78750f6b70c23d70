"""The structure of a nonlinear residual, as random values show it: a sum of flows, or of what cells have."""

import itertools
from typing import TYPE_CHECKING

import numpy as np
import torch

from mosaicdd.axes import at
from mosaicdd.problems.operators.patch import StencilValues, neighbours_of, offsets

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
