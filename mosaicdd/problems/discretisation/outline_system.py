"""The linear system of a whole problem, whatever holds on its outline: what references solve."""

from functools import cached_property

import numpy as np
import scipy.sparse

from mosaicdd.lattice.grid import Grid
from mosaicdd.problems.discretisation.discrete import LinearSystem
from mosaicdd.problems.discretisation.discretisation import Discretisation
from mosaicdd.problems.operators.medium import medium_of
from mosaicdd.problems.problem import Problem


class OutlineSystem(LinearSystem):
    """The system ``A u = b`` of all nodes of a grid, with unit rows where there is no unknown.

    Nodes of the second of two periodic sides are those of the first.

    Parameters
    ----------
    problem
        With any sides.
    number
        Which of several problems.
    """

    def __init__(self, problem: Problem, grid: Grid, number: int = 0):
        self.operator = medium_of(problem.operator)
        self._discretisation = discretisation = Discretisation(problem, self.operator, grid)
        self._periodic = problem.conditions.periodic
        ends = zip(grid.nodes, self._periodic, strict=True)
        counts = [nodes - around for nodes, around in ends]  # of the nodes with an equation
        wide = tuple(slice(-1, nodes + 1) for nodes in counts)
        self._wide = discretisation.equations(wide)
        self._part = tuple(slice(0, nodes) for nodes in counts)
        self._equations = self._wide.part(*tuple(slice(1, nodes + 1) for nodes in counts))
        self._outline = discretisation.values(problem)
        self._problem, self._number = problem, number
        b = discretisation.right_hand_side(problem, self._outline, wide, self._wide)
        inner = (slice(1, -1),) * len(counts)
        self._b = b[number % len(b)][inner]

    @cached_property
    def matrix(self) -> scipy.sparse.csr_array:
        """``h^2 A``, of ``(ny + 1) (nx + 1)`` rows, row by row from the bottom; a pair of sides is one."""
        return self._wide.conductances.matrix(self._periodic)

    @property
    def right_hand_side(self) -> np.ndarray:
        """``b``, of all nodes; without any given value it is made compatible."""
        b = self._b.copy()
        if self._discretisation.floating:
            volumes = self._equations.volumes
            b -= b.sum() / volumes.sum() * volumes
            b[~self._equations.active] = 0.0
        return b.ravel()

    def field(self, u: np.ndarray) -> np.ndarray:
        """Return the field ``(ny + 1, nx + 1)`` of a solution: with given values, or mean zero."""
        field = u.reshape(self._b.shape).copy()
        if self._discretisation.floating:
            volumes = self._equations.volumes
            field -= (field * volumes).sum() / volumes.sum()
        outlines = self._equations.outlines
        if outlines is not None:
            field[~outlines.reported] = np.nan
        if not self._discretisation.floating:
            place, values = self._discretisation.given(
                self._problem, self._outline, self._part, outlines
            )
            field[place] = values[self._number % len(values)]
        return np.pad(field, [(0, int(around)) for around in self._periodic], mode="wrap")
