"""The exact discrete local solver: a factorised finite-difference problem as a dense operator."""

from functools import lru_cache

import numpy as np
import torch

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import fits, period_of, spacing_between
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.bound import Plan
from mosaicdd.local_solvers.condensed_solver import CondensedSolver
from mosaicdd.local_solvers.plans import linear_plan
from mosaicdd.local_solvers.source import Source
from mosaicdd.problems.discretisation.discrete import DirichletSystem
from mosaicdd.problems.discretisation.discretisation import Discretisation
from mosaicdd.problems.discretisation.nonlinear_discretisation import NonlinearDiscretisation
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.medium import Medium, medium_of
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.problem import Problem

# Ratio of a diagonal tensor. At 1024 x 1024 cells, to 1e-7, with interpolation as coarse space and as a medium:
# 27 iterations and 3 at 100, 75 and 2 at 1000, not converged after 100 and 2 at 3000.
_ANISOTROPY = 100.0


class Exact:
    """The exact local solver of any equation, on subdomains of so many cells per side.

    Between periodic sides they may be smaller, where the last ones would be thin.
    """

    name = "exact"
    spacing = None

    def __init__(self, cells: int = 32):
        self.cells = cells

    def bind(self, problem: Problem, grid: Grid) -> "ExactSolver | CondensedSolver":
        """Return the solver for a problem's operator and source on a grid."""
        spacing = spacing_between(grid, self.cells // 2, problem.conditions.periodic)
        subdomain = Subdomain(2 * spacing, 2 * spacing * grid.spacing)
        if not (problem.plain and fits(grid, subdomain)):
            given = Source(problem, grid, subdomain)
            rounds = problem.conditions.periods(grid)
            rows, columns = (n and period_of(n, spacing) for n in rounds)
            if isinstance(problem.operator, Nonlinear):
                flows = NonlinearDiscretisation(problem, grid, (rows, columns))
                return CondensedSolver(problem.operator, subdomain, given, flows)
            cells = f"the cells are no multiples of {spacing}"
            medium = medium_of(problem.operator, problem.hindrance or cells)
            one = Discretisation(problem, medium, grid, (rows, columns))
            return CondensedSolver(medium, subdomain, given, one)
        operator = problem.operator
        if isinstance(operator, EllipticOperator) and _strongly_anisotropic(operator):
            operator = medium_of(operator)
        if isinstance(operator, (Medium, Nonlinear)):
            return CondensedSolver(operator, subdomain, Source(problem, grid, subdomain))
        source = None if problem.source is None else Source(problem, grid, subdomain)
        return ExactSolver(operator, subdomain, source)


class ExactSolver:
    """Solve the discrete equation on a subdomain to rounding.

    The honest baseline: it makes the Schwarz iteration reproduce the global discrete solution.
    """

    name = "exact"
    linear = True

    def __init__(
        self, operator: EllipticOperator, subdomain: Subdomain, source: Source | None = None
    ):
        self.operator = operator
        self.subdomain = subdomain
        self.source = source

    @property
    def matrix(self) -> np.ndarray:
        """Values at all nodes of the subdomain, ``(m + 1, m + 1, P)``, for unit perimeter values."""
        return _matrix(self.operator, self.subdomain)

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
        rows = self.matrix[nodes[:, 0], nodes[:, 1]]
        return linear_plan(
            rows, points, self.subdomain, device=device, dtype=dtype, weights=weights
        )

    def outside_range(self, *, device: torch.device, dtype: torch.dtype) -> None:
        """Return None: there are no data for which it is not made."""
        return


def _strongly_anisotropic(operator: EllipticOperator) -> bool:
    """Return whether the coarse space of media, with modes along the weak direction, is worth its set-up."""
    ratio = max(operator.axx, operator.ayy) / min(operator.axx, operator.ayy)
    return ratio > _ANISOTROPY and operator.axy == 0.0 and operator.c >= 0.0


@lru_cache(maxsize=4)
def _matrix(operator: EllipticOperator, subdomain: Subdomain) -> np.ndarray:
    """Factorise and solve, once per process: every solve estimates its error by the exact solver."""
    m, perimeter = subdomain.cells, subdomain.perimeter
    nodes = np.zeros((m + 1, m + 1, 4 * m))
    nodes[perimeter[:, 0], perimeter[:, 1], np.arange(4 * m)] = 1.0
    system = DirichletSystem(operator, Grid((m, m), subdomain.spacing))
    nodes[1:-1, 1:-1] = system.solve(system.right_hand_side(nodes)).reshape(m - 1, m - 1, -1)
    nodes.flags.writeable = False
    return nodes
