"""The Lagrangian of equations that are not linear, on rectangles with values on all sides.

The adjoint solves the equation that is linearised at the solution, with the derivatives of the functional for its
source; of an energy that is its own transpose.
"""

import numpy as np
import torch

from mosaicdd.gradients.lagrangian import Lagrangian, Tensors
from mosaicdd.gradients.parameters import Parameters
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.operators.patch import Patch
from mosaicdd.schwarz.solver import Solver

_INNER = (slice(1, -1),) * 2
_LEFT = 1e-6  # of the functional's derivatives that the adjoint may leave


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
        flows = operator.at(Patch.of(u), fields, self._h) - f
        return -(self._h**2 * flows * v[_INNER]).sum()


def lagrangian_of(parameters: Parameters) -> type[Lagrangian]:
    """Return the kind that a problem has."""
    return Lagrangian if parameters.linear else NonlinearLagrangian


def linearised_adjoint(
    solver: Solver, lagrangian: Lagrangian, named: Tensors, u: np.ndarray, w: np.ndarray
) -> np.ndarray:
    """Return the adjoint of the whole grid; all ranks together.

    ``solver``: of a problem with these coefficients; ``lagrangian``, ``named``: of the whole grid.

    `RuntimeError` if it has not converged, or the equations themselves contradict that.
    """
    v = solver.change(u, w)
    at, slopes = torch.from_numpy(u).requires_grad_(), torch.from_numpy(w)
    (product,) = torch.autograd.grad(
        lagrangian(named, named, at, torch.from_numpy(v), torch.zeros_like(slopes)), at
    )
    left = torch.where(lagrangian.active, product + slopes, 0.0).norm()
    asked = _LEFT * torch.where(lagrangian.active, slopes, 0.0).norm()
    if left > asked:
        raise RuntimeError(
            f"the adjoint leaves {float(left):.1e} of the functional's derivatives, more than {float(asked):.1e}: the "
            "solution is where the equation has no derivative; give smoother data"
        )
    return v
