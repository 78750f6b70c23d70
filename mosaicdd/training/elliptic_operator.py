"""A linear second-order operator with constant coefficients, as the PDE loss applies it."""

from dataclasses import dataclass

import torch

from mosaicdd.local_solvers.networks.taylor import Jet
from mosaicdd.problems.equations import Equation


@dataclass(frozen=True)
class EllipticOperator:
    """``D[u] = sum_k a_k d^2u/dx_k^2 + sum_k b_k du/dx_k + c u`` in coordinates of ``[-1, 1]``.

    Parameters
    ----------
    second, first
        ``a`` and ``b`` along (y, x).
    zeroth
        ``c``.
    """

    second: tuple[float, float]
    first: tuple[float, float] = (0.0, 0.0)
    zeroth: float = 0.0

    @classmethod
    def of_equation(cls, equation: Equation) -> "EllipticOperator":
        """Read the coefficients off an equation, whose operator is linear."""
        return cls((float(equation.operator(1.0, 0.0)), float(equation.operator(0.0, 1.0))))

    @property
    def second_only(self) -> bool:
        """Whether neither the value nor the gradient enters."""
        return not (self.zeroth or any(self.first))

    def apply(self, jet: Jet) -> torch.Tensor:
        """Return ``D[u]`` for a jet whose ``second`` is ``sum_k a_k d^2u/dx_k^2``."""
        result = jet.second
        for weight, derivative in zip(
            self.first, jet.first if any(self.first) else (), strict=False
        ):
            result = result + weight * derivative
        return result + self.zeroth * jet.value if self.zeroth else result
