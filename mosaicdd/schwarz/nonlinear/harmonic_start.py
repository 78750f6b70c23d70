"""Where Newton's method begins: a smooth surface with the conditions of the problem, found loosely."""

from functools import cached_property

import numpy as np

from mosaicdd.local_solvers.condensed_solver import CondensedSolver, NewtonSolver
from mosaicdd.local_solvers.exact import Exact
from mosaicdd.problems.references.smooth_start import screening, smooth_problem
from mosaicdd.problems.sides.boundary import Boundary
from mosaicdd.schwarz.condensed.condensed_engine import CondensedEngine
from mosaicdd.schwarz.nonlinear.inner_nodes import NodesInside
from mosaicdd.schwarz.nonlinear.newton_steps import Steps

_LOOSE = 1e-3  # relative update at which a surface is good enough to begin with


class HarmonicStart:
    """Finds the harmonic surface over the values on the sides, which lies between these.

    Where natural sides leave its level open, it is screened, over the width of the domain.

    Parameters
    ----------
    inner
        Of a rectangle with values on all sides.
    solver
        Of the nonlinear problem.
    """

    def __init__(self, steps: Steps, inner: NodesInside | None, solver: NewtonSolver):
        self._steps, self._inner, self._solver = steps, inner, solver

    def __call__(self, number: int, boundary: Boundary) -> np.ndarray:
        """Return the nodes that this rank owns, of one of the problems that are solved now."""
        steps = self._steps
        if self._inner is not None:
            with steps.clock.part("start"):
                return self._inner.harmonic(boundary)
        linear, c = self._on_outlines
        smooth = smooth_problem(self._solver.source.problem, steps.lattice.grid, c)
        linear.source.update(
            smooth if smooth.problems == 1 else smooth.some(range(number, number + 1))
        )
        settings = steps.settings.with_changes(rtol=_LOOSE, certify=None)
        engine = CondensedEngine(steps.ranks, steps.lattice, linear, settings, clock=steps.clock)
        field = engine.solve(boundary).field
        if field is None:
            raise RuntimeError("the field of a harmonic surface is kept")
        return field.cpu().numpy()

    @cached_property
    def _on_outlines(self) -> tuple[CondensedSolver, float]:
        """What solves, and its reaction."""
        return self._steps.ranks.agree(self._bound)

    def _bound(self) -> tuple[CondensedSolver, float]:
        problem, grid = self._solver.source.problem, self._steps.lattice.grid
        c = screening(problem, grid)
        exact = Exact(self._solver.subdomain.cells)
        return exact.condensed(smooth_problem(problem, grid, c), grid), c
