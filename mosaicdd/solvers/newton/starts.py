"""Initial guesses of Newton's method: near the solution, and found for next to nothing.

They are the harmonic surface over the conditions on the sides, or the solution on a coarser grid, which begins with that
on another (nested iteration). From there Newton's method takes two or three steps on any grid, however many it would
take from the harmonic surface. Every rank solves the whole of a coarser problem alone: of few nodes, that takes less
than to tell each other.
"""

import math
from typing import Any

import numpy as np
import torch

from mosaicdd.axes import Slices
from mosaicdd.discretisation.coarser import coarser, extrapolated, refined_at
from mosaicdd.discretisation.system import nonlinear_system
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.partition import Partition
from mosaicdd.problems.operators.jacobian import NotEllipticError
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.solvers.base_engine import engine_of
from mosaicdd.solvers.settings import SolveSettings

# Begun with a coarser grid, minimal surfaces with slopes of 4 take 5, 5, 4, 4 steps at 64 to 512 cells a side; at 256
# the Poisson-Boltzmann equation takes 1 for 3, the p-Laplacian 4 for 8 (`benchmarks/nonlinear_peers.py`).
_MOST = 2**18  # nodes of the coarser grid, or a quarter of what each rank has of the finer one
_LEAST = 32  # cells along its sides
_RTOL = 1e-6  # of its solution


class NestedGuess:
    """Nested iteration: the solution on a coarser grid, extrapolated where two are known.

    Parameters
    ----------
    problem
        The problem there.
    apart
        Distance of its nodes, in cells of the grid.

    Attributes
    ----------
    apart
        As given.
    solution
        The solution there, once it has been asked for.
    """

    def __init__(self, problem: Problem, apart: int, settings: SolveSettings):
        grid = problem.domain.grid()
        solver = nonlinear_system(problem, grid)
        loose = settings.with_changes(rtol=_RTOL, certify=None, atol=0.0, max_iterations=None)
        alone = Partition.alone(grid, (False,) * len(grid.shape))
        self._engine: Any = engine_of(solver.method)(alone, solver, loose)
        self._boundaries, self.apart = problem.boundaries(grid), apart
        self.solution: np.ndarray | None = None

    def check(self) -> None:
        """Check that it can be solved for; as `BaseEngine.check`."""
        self._engine.check(self._boundaries)

    def __call__(self, part: Slices) -> np.ndarray | None:
        """Return the values at some nodes of the grid; None if the equation breaks down on the way."""
        if self.solution is None:
            self.solution = self._solved()
        values = self.solution
        if values is None:
            return None
        below = self._engine.coarse_solution
        if below is not None and self.apart == 2:
            values = extrapolated(values, below)
        return refined_at(values, self.apart, part)

    def _solved(self) -> np.ndarray | None:
        try:
            (outcome,) = self._engine.solve_many(self._boundaries)
        except NotEllipticError:
            return None
        if outcome.field is None or not torch.isfinite(outcome.field).all():
            return None
        return outcome.field.double().cpu().numpy()


def nested_start(
    problem: Problem,
    grid: Grid,
    boundary: Boundary,
    number: int,
    settings: SolveSettings,
    ranks: int,
) -> NestedGuess | None:
    """Return the nested guess of one of several problems; None where there is no coarser grid.

    ``ranks``: how many share the finer grid.
    """
    most = max(_MOST, math.prod(grid.shape) // (4 * ranks))
    apart = _distance(grid, most)
    coarse = None if apart is None else coarser(problem, grid, boundary, number, apart)
    return None if apart is None or coarse is None else NestedGuess(coarse, apart, settings)


def _distance(grid: Grid, nodes: int) -> int | None:
    """Return the coarsening factor for about so many nodes at most; None if no grid fits."""
    least = 2
    while math.prod(grid.shape) > nodes * least**2:
        least *= 2
    fits = (
        apart
        for apart in (least, least // 2)
        if apart > 1 and all(n % apart == 0 and n >= apart * _LEAST for n in grid.shape)
    )
    return next(fits, None)
