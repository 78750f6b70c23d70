"""The Lagrangian of equations that are not linear, on rectangles with values on all sides."""

import torch

from mosaicdd.gradients.lagrangian import Lagrangian, Tensors
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.operators.patch import Patch

_INNER = (slice(1, -1),) * 2


class NonlinearLagrangian(Lagrangian):
    """As `Lagrangian`; of the wide nodes the outermost count as neighbours only."""

    def _tested(
        self,
        named: Tensors,
        before: Tensors,
        u: torch.Tensor,
        v: torch.Tensor,
        w: torch.Tensor,
        rises: Tensors,
    ) -> torch.Tensor:
        operator = self._parameters.problem.operator
        if not isinstance(operator, Nonlinear):
            raise TypeError(f"a nonlinear operator is needed, got {operator}")
        fields = {name: Patch.of(named[name]) for name in operator.fields}
        f = named["f"].expand(u.shape)[_INNER]
        numbers = {name: named[name] for name in self._parameters.numbers}
        flows = operator.at(Patch.of(u), fields, self._h, numbers) - f
        return -(self._h**2 * flows * v[_INNER]).sum()


def lagrangian_of(parameters: Parameters) -> type[Lagrangian]:
    """Return the kind that a problem has."""
    return Lagrangian if parameters.linear else NonlinearLagrangian
