"""The Lagrangian of equations that are not linear, on rectangles and boxes with values on all sides."""

import torch

from mosaicdd.gradients.lagrangian import Lagrangian, Tensors
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.lattice.axes import at
from mosaicdd.problems.operators.medium import Medium
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.operators.patch import Patch, neighbours_of


class NonlinearLagrangian(Lagrangian):
    """As `Lagrangian`; of the wide nodes the outermost count as neighbours only."""

    @property
    def _operator(self) -> Nonlinear:
        operator = self._parameters.problem.operator
        if not isinstance(operator, Nonlinear):
            raise TypeError(f"a nonlinear operator is needed, got {operator}")
        return operator

    @property
    def _medium(self) -> Medium:
        return self._operator.faces

    def _tested(
        self,
        named: Tensors,
        before: Tensors,
        u: torch.Tensor,
        v: torch.Tensor,
        w: torch.Tensor,
        rises: Tensors,
    ) -> torch.Tensor:
        operator, axes = self._operator, self._axes
        inner = (slice(1, -1),) * axes
        taken = {**named, operator.factor or "": torch.ones((), dtype=torch.float64)}
        fields = {name: Patch.of(taken[name], axes) for name in operator.taken}
        numbers = {name: named[name] for name in self._parameters.numbers}
        patch = Patch.of(u, axes)
        if operator.by_flows:
            outward = self._by_flows(named, patch, fields, numbers)
        else:
            outward = operator.at(patch, fields, self._h, numbers)
        f = named["f"].expand(u.shape)[inner]
        return -(self._h**2 * (outward - f) * v[inner]).sum()

    def _by_flows(
        self, named: Tensors, u: Patch, fields: dict[str, Patch], numbers: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """Return the reaction and what flows to each neighbour, times conductances; as `NonlinearEquations` does."""
        operator, axes = self._operator, self._axes
        unit = torch.ones((), dtype=torch.float64)
        between = self._conductances({"a": named.get(operator.factor or "", unit)})
        values = [u.centre, *u.neighbours]
        total, flows = operator.flows(values, fields, self._h, numbers)
        for offset, flow in zip(neighbours_of(axes), flows, strict=True):
            axis = next(axis for axis, step in enumerate(offset) if step)
            edges = slice(1, None) if offset[axis] > 0 else slice(None, -1)
            total = total + between[axis][at(axis, axes, edges, slice(1, -1))] * flow
        return total


def lagrangian_of(parameters: Parameters) -> type[Lagrangian]:
    """Return the kind that a problem has."""
    return Lagrangian if parameters.linear else NonlinearLagrangian
