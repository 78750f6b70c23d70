"""The exact solver: of constant coefficients a dense operator on all subdomains, else the equations of the whole grid."""

from functools import lru_cache
from typing import Unpack

import numpy as np

from mosaicdd.discretisation.discrete import DirichletSystem
from mosaicdd.discretisation.system import Method, system_of
from mosaicdd.grid.grid import Grid
from mosaicdd.networks.subdomain import Subdomain
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.problem import Problem
from mosaicdd.schwarz.lattice import fits
from mosaicdd.schwarz.local_solvers.bound import Plan, SharedSolver
from mosaicdd.schwarz.local_solvers.plans import linear_plan
from mosaicdd.schwarz.local_solvers.source import Source
from mosaicdd.tensors import Tensors

# Ratio of a diagonal tensor. At 512 x 512 cells, to 1e-7, with interpolation as coarse space and by multigrid:
# 27 iterations and 25 at 100, 72 and 31 at 1000, 100 and 33 at 3000.
_ANISOTROPY = 100.0


class Exact:
    """The exact solver of any equation: by one operator for all subdomains, by transforms, multigrid or Newton's method.

    Parameters
    ----------
    cells
        Per side of a subdomain, in space half as many.
    shared
        Whether constant coefficients are solved by one operator for all subdomains, where these fit the domain.
    """

    name = "exact"
    spacing = None
    axes = (2, 3)

    def __init__(self, cells: int = 32, *, shared: bool = True):
        self.cells, self._shared = cells, shared

    def bind(self, problem: Problem, grid: Grid) -> Method:
        """Return what solves a problem on a grid."""
        cells, operator = self.cells if len(grid.shape) == 2 else self.cells // 2, problem.operator
        subdomain = Subdomain(cells, cells * grid.spacing, len(grid.shape))
        alike = operator.constant and not _strongly_anisotropic(operator)
        if not (alike and self._shared and problem.plain and fits(grid, subdomain)):
            return system_of(problem, grid)
        source = None if problem.source is None else Source(problem, grid, subdomain)
        return ExactSolver(operator, subdomain, source)


class ExactSolver(SharedSolver):
    """Solve the discrete equation on a subdomain to rounding.

    The honest baseline: it makes the Schwarz iteration reproduce the global discrete solution.
    """

    name = "exact"
    exact = True

    def __init__(
        self, operator: EllipticOperator, subdomain: Subdomain, source: Source | None = None
    ):
        self.operator, self.subdomain, self.source = operator, subdomain, source

    @property
    def matrix(self) -> np.ndarray:
        """Values at all nodes of the subdomain, ``(m + 1, m + 1, P)``, for unit perimeter values; of a cube with an axis more."""
        return _matrix(self.operator, self.subdomain)

    def plan(
        self, points: np.ndarray, *, weights: np.ndarray | None = None, **tensors: Unpack[Tensors]
    ) -> Plan:
        """Prepare the solve for grid nodes ``points``, ``(Q, 2)`` or ``(Q, 3)`` integers in cells; no others are allowed."""
        nodes = np.asarray(points).astype(int)
        m = self.subdomain.cells
        if not np.array_equal(nodes, points) or nodes.min() < 0 or nodes.max() > m:
            raise ValueError(f"the exact local solver knows grid nodes 0..{m} only")
        rows = self.matrix[tuple(nodes.T)]
        return linear_plan(rows, points, self.subdomain, weights=weights, **tensors)


def _strongly_anisotropic(operator: EllipticOperator) -> bool:
    """Return whether multigrid, with aggregates along the strong direction, is worth its set-up."""
    ratio = max(operator.axx, operator.ayy) / min(operator.axx, operator.ayy)
    return ratio > _ANISOTROPY and operator.axy == 0.0 and operator.c >= 0.0


@lru_cache(maxsize=4)
def _matrix(operator: EllipticOperator, subdomain: Subdomain) -> np.ndarray:
    """Factorise and solve, once per process: every solve estimates its error by the exact solver."""
    perimeter = subdomain.perimeter
    columns = np.arange(len(perimeter))
    system = DirichletSystem(operator, Grid(subdomain.shape, subdomain.spacing))
    nodes = np.zeros((*system.grid.nodes, len(perimeter)))
    nodes[(*perimeter.T, columns)] = 1.0
    inside = nodes[(slice(1, -1),) * subdomain.axes]
    if subdomain.axes == 2:
        inside[...] = system.solve(system.right_hand_side(nodes)).reshape(inside.shape)
    else:  # the nodes of a face have one neighbour inside, those of an edge none
        beside = perimeter.clip(1, subdomain.cells - 1)
        faced = np.abs(perimeter - beside).sum(axis=1) == 1
        inside[(*(beside[faced] - 1).T, columns[faced])] = -system.stencil.min()
        solution = system.solve_by_sines(inside.reshape(-1, len(perimeter)))
        inside[...] = solution.reshape(inside.shape)
    nodes.flags.writeable = False
    return nodes
