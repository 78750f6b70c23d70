"""Nested iteration: a solve begins with the solution on a coarser grid, which begins with that on another.

From there it takes as many iterations on any grid, Newton's method two or three, however many it would take from the
harmonic surface. Every rank solves the whole of a coarser problem alone: of few nodes, that takes less than to tell
each other.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch

from mosaicdd.lattice.axes import Slices
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.exact import Exact
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.coarser import coarser, refined
from mosaicdd.problems.operators.jacobian import NotEllipticError
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.engines import engine_of
from mosaicdd.schwarz.settings import SolveSettings

# Begun so, minimal surfaces with slopes of 4 take 5, 5, 4, 4 steps at 64 to 512 cells a side; at 256 the
# Poisson-Boltzmann equation takes 1 for 3, the p-Laplacian 4 for 8 (`scripts/bench_nonlinear.py`).
_MOST = 2**18  # nodes of the coarser grid
_LEAST = 32  # cells along its sides
_SMALLEST = 8  # cells of a subdomain there
_RTOL = 1e-6  # of its solution


class NestedStart:
    """The solution of one of several problems on a coarser grid.

    Parameters
    ----------
    one
        The problem there.
    apart
        Distance of its nodes, in cells of the grid.
    cells
        Of its subdomains.
    """

    def __init__(self, problem: Problem, apart: int, cells: int, settings: SolveSettings):
        grid = problem.domain.grid()
        solver = Exact(cells).newton(problem, grid)
        loose = settings.with_changes(rtol=_RTOL, certify=None, atol=0.0, max_iterations=None)
        lattice = Lattice(grid, solver.subdomain)
        self._engine = engine_of(solver.method)(Ranks.alone(), lattice, solver, loose)
        self._boundaries, self._apart = problem.boundaries(grid), apart

    def check(self) -> None:
        """Check that it can be solved for; as `BaseEngine.check`."""
        self._engine.check(self._boundaries)

    def __call__(self, part: Slices) -> np.ndarray | None:
        """Return the values at some nodes of the grid; None if the equation breaks down on the way."""
        try:
            (outcome,) = self._engine.solve_many(self._boundaries)
        except NotEllipticError:
            return None
        if outcome.field is None or not torch.isfinite(outcome.field).all():
            return None
        rows, columns = part
        values = refined(outcome.field.double().cpu().numpy(), self._apart)[:, columns]
        return refined(values.T, self._apart)[:, rows].T


def nested_start(
    problem: Problem,
    lattice: Lattice,
    boundary: Boundary,
    number: int,
    settings: SolveSettings,
) -> NestedStart | None:
    """Return it for one of several problems; None where there is no coarser grid for it."""
    grid = lattice.grid
    apart, cells = next(_coarser_grids(grid, lattice.subdomain.cells), (0, 0))
    if not apart:
        return None
    coarse = coarser(problem, grid, boundary, number, apart)
    return None if coarse is None else NestedStart(coarse, apart, cells, settings)


def _coarser_grids(grid: Grid, cells: int) -> Iterator[tuple[int, ...]]:
    """Yield how far apart nodes may be, and the cells of subdomains that cover them then, the best first."""
    most = 2
    while math.prod(grid.shape) > _MOST * most**2:
        most *= 2
    for apart in (most, most // 2):
        for m in (cells, cells // 2, cells // 4):
            step, least = apart * m // 2, apart * max(_LEAST, m)
            fits = all(n % step == 0 and n >= least for n in grid.shape)
            if fits and apart > 1 and m >= _SMALLEST:
                yield apart, m
