"""Where Newton's method begins: a smooth surface with the conditions of the problem, found loosely."""

from functools import cached_property

import torch

from mosaicdd.lattice.lattice import Lattice
from mosaicdd.local_solvers.condensed_solver import CondensedSolver
from mosaicdd.local_solvers.exact import Exact, ExactSolver
from mosaicdd.parallel.ranks import Ranks
from mosaicdd.problems.boundary import Boundary
from mosaicdd.problems.elliptic import EllipticOperator
from mosaicdd.problems.smooth_start import screening, smooth_problem
from mosaicdd.schwarz.condensed_engine import CondensedEngine
from mosaicdd.schwarz.engine import Engine
from mosaicdd.schwarz.settings import SolveSettings
from mosaicdd.schwarz.stopwatch import Stopwatch

_LOOSE = 1e-3  # relative update at which a surface is good enough to begin with


class HarmonicStart:
    """Finds the harmonic surface over the values on the sides, which lies between these.

    Where natural sides leave its level open, it is screened, over the width of the domain.

    Parameters
    ----------
    solver
        Of the nonlinear problem.
    """

    def __init__(
        self,
        ranks: Ranks,
        lattice: Lattice,
        solver: CondensedSolver,
        settings: SolveSettings,
        clock: Stopwatch,
    ):
        self._ranks, self._lattice, self._solver = ranks, lattice, solver
        self._settings = settings.with_changes(rtol=_LOOSE, certify=None)
        self._clock = clock

    def __call__(self, number: int, boundary: Boundary) -> torch.Tensor:
        """Return the nodes that this rank owns, of one of the problems that are solved now."""
        if self._solver.discretisation is None:
            field = self._on_rectangle.solve(boundary).field
        else:
            linear, c = self._on_outlines
            grid, problem = self._lattice.grid, self._solver.source.problem
            one = smooth_problem(problem, grid, c)
            linear.source.update(one if one.problems == 1 else one.some(range(number, number + 1)))
            place = self._ranks, self._lattice, linear, self._settings
            field = CondensedEngine(*place, clock=self._clock).solve(boundary).field
        if field is None:
            raise RuntimeError("the field of a harmonic surface is kept")
        return field

    @cached_property
    def _on_rectangle(self) -> Engine:
        solver = ExactSolver(EllipticOperator(), self._solver.subdomain)
        return Engine(self._ranks, self._lattice, solver, self._settings, clock=self._clock)

    @cached_property
    def _on_outlines(self) -> tuple[CondensedSolver, float]:
        """What solves, and its reaction."""
        return self._ranks.agree(self._bound)

    def _bound(self) -> tuple[CondensedSolver, float]:
        problem, grid = self._solver.source.problem, self._lattice.grid
        c = screening(problem, grid)
        found = Exact(self._solver.subdomain.cells).bind(smooth_problem(problem, grid, c), grid)
        if not isinstance(found, CondensedSolver):
            raise TypeError("sides that are not all given need condensed elements")
        return found, c
