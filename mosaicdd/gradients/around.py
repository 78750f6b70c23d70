"""Fields of a residual between periodic sides: those of the first of two hold on both, and have all of the derivatives."""

from collections.abc import Callable, Mapping

import numpy as np
import torch

from mosaicdd.gradients.parameters import Parameters
from mosaicdd.problems.fields.fields import Part


def _axes_of(parameters: Parameters, name: str, shape: tuple[int, ...]) -> list[int]:
    """Return the periodic axes along which the last values of a field do not count."""
    operator, grid = parameters.problem.operator, parameters.grid
    if operator.linear or shape != grid.nodes:
        return []
    if name not in operator.taken or name == operator.factor:
        return []
    periods = parameters.problem.conditions.periods(grid)
    return [axis for axis, period in enumerate(periods) if period is not None]


def with_first(
    parameters: Parameters, named: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return fields of the whole grid whose last values along periodic axes are the first, where these hold."""
    every = dict(named)
    for name, values in named.items():
        for axis in _axes_of(parameters, name, tuple(values.shape)):
            most = every[name].narrow(axis, 0, values.shape[axis] - 1)
            every[name] = torch.cat([most, every[name].narrow(axis, 0, 1)], axis)
    return every


def to_first(
    parameters: Parameters,
    gradient: Mapping[str, torch.Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    own: Part,
    add: Callable[[np.ndarray], np.ndarray],
) -> None:
    """Move derivatives by last values to the first, in place; all processes together.

    ``gradient``: by fields, at the own nodes; ``shapes``: of what they were given; ``add``: adds up over processes.
    """
    nodes = parameters.grid.nodes
    for name, shape in shapes.items():
        for axis in _axes_of(parameters, name, shape):
            others = tuple(p for number, p in enumerate(own) if number != axis)
            line = np.zeros([n for number, n in enumerate(nodes) if number != axis])
            slope, part = gradient.get(name), own[axis]
            if slope is not None and part.stop == nodes[axis]:
                last = slope.select(axis, nodes[axis] - 1 - part.start)
                line[others] = last.numpy()
                last.zero_()
            line = add(line)
            if slope is not None and part.start == 0:
                slope.select(axis, 0).add_(torch.from_numpy(line[others]))
