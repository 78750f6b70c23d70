"""The exact discrete local solver: a factorised finite-difference problem as a dense operator."""

from functools import lru_cache

import numpy as np
import torch

from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.base import Plan
from mosaicdd.local_solvers.reflection_plan import linear_plan
from mosaicdd.problems.discrete import DirichletSystem
from mosaicdd.problems.equations import Equation


class ExactSolver:
    """Solve the discrete equation on a subdomain to rounding.

    The honest baseline: it makes the Schwarz iteration reproduce the global discrete solution.
    """

    name = "exact"
    linear = True

    def __init__(self, equation: Equation, subdomain: Subdomain):
        self.equation = equation
        self.subdomain = subdomain

    @property
    def operator(self) -> np.ndarray:
        """Values at all nodes of the subdomain, ``(m + 1, m + 1, P)``, for unit perimeter values."""
        return _operator(self.equation, self.subdomain)

    def plan(
        self,
        points: np.ndarray,
        *,
        device: torch.device,
        dtype: torch.dtype,
        weights: np.ndarray | None = None,
    ) -> Plan:
        """Prepare the solve for grid nodes ``points``, ``(Q, 2)`` integers in cells.

        Raises
        ------
        ValueError
            If a point is not a node of the subdomain's grid.
        """
        nodes = np.asarray(points).astype(int)
        m = self.subdomain.cells
        if not np.array_equal(nodes, points) or nodes.min() < 0 or nodes.max() > m:
            raise ValueError(f"the exact local solver knows grid nodes 0..{m} only")
        operator = self.operator[nodes[:, 0], nodes[:, 1]]
        kind = {"device": device, "dtype": dtype}
        return linear_plan(operator, points, self.subdomain, **kind, weights=weights)

    def outside_range(self, *, device: torch.device, dtype: torch.dtype) -> None:
        """Return None: there are no data for which it is not made."""
        return


@lru_cache(maxsize=4)
def _operator(equation: Equation, subdomain: Subdomain) -> np.ndarray:
    """Factorise and solve, once per process: every solve estimates its error by the exact solver."""
    m, perimeter = subdomain.cells, subdomain.perimeter
    nodes = np.zeros((m + 1, m + 1, 4 * m))
    nodes[perimeter[:, 0], perimeter[:, 1], np.arange(4 * m)] = 1.0
    system = DirichletSystem(equation, (m, m))
    nodes[1:-1, 1:-1] = system.solve(system.right_hand_side(nodes)).reshape(m - 1, m - 1, -1)
    nodes.flags.writeable = False
    return nodes
