"""Nonlinear equations on a rank's part of the grid: residuals, linear equations for changes, initial guesses.

Values lie in wide arrays (`GhostNodes`). On a rectangle with given values on all sides unknowns are the nodes inside;
everywhere else steps are linear problems with the same faces, volumes and active nodes.

Initial guesses are the harmonic surface over the conditions on the sides, or the solution on a coarser
grid, which begins with that on another (nested iteration). From there Newton's method takes two or three steps on any grid, however many it would
take from the harmonic surface. Every rank solves the whole of a coarser problem alone: of few nodes, that takes less
than to tell each other.
"""

import abc
import dataclasses
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from mosaicdd.axes import Slices, within
from mosaicdd.discretisation.coarser import coarser, extrapolated, refined_at
from mosaicdd.discretisation.node_equations import LinearStep
from mosaicdd.discretisation.nonlinear_equations import NonlinearEquations
from mosaicdd.discretisation.system import NonlinearSystem, nonlinear_system
from mosaicdd.grid.ghosts import GhostNodes
from mosaicdd.grid.grid import Grid
from mosaicdd.grid.partition import Partition
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.jacobian import NotEllipticError
from mosaicdd.problems.operators.nonlinear_part import Linearised, NonlinearPart
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary, edges_of
from mosaicdd.solvers.base_engine import engine_of
from mosaicdd.solvers.settings import SolveSettings


class LinearForm(NamedTuple):
    """A linearised equation, by which residuals are measured, at the wide nodes; zero without an unknown."""

    right: np.ndarray  # the right-hand side without the source
    constant: np.ndarray  # what the operator makes of 1 at all unknowns
    weights: np.ndarray | float  # what rows count in norms


ChangeEquations = tuple[Linearised | LinearStep, LinearStep | None]
"""Operator and discretisation of the equations for changes; without the latter where all sides have given values."""


class NewtonEquations(abc.ABC):
    """The equations of one problem.

    Attributes
    ----------
    self_adjoint
        Whether their derivative is.
    source
        Times the squared spacing and the volumes, at the wide nodes; or zero.
    """

    self_adjoint: bool
    source: np.ndarray | float

    def __init__(self, place: GhostNodes, solver: NonlinearSystem):
        self._place, self._grid = place, place.grid
        self.self_adjoint = solver.operator.self_adjoint

    @abc.abstractmethod
    def residual(self, u: np.ndarray) -> np.ndarray:
        """Return the residual times the squared spacing; zero where there is no unknown."""

    @abc.abstractmethod
    def linear_form(self, u: np.ndarray, residual: np.ndarray) -> LinearForm:
        """Return the equation linearised at values, of which this is the residual, but for its operator."""

    @abc.abstractmethod
    def derivative(self, u: np.ndarray, part: Part, dtype: type = np.float64) -> Conductances:
        """Return the derivative between the nodes of a part, in numbers of a type.

        `NotEllipticError` if it is that of no elliptic equation.
        """

    @abc.abstractmethod
    def cleared(self, values: np.ndarray) -> np.ndarray:
        """Return wide values, zero where there is no unknown; in place."""

    def diagonal(self, u: np.ndarray) -> np.ndarray:
        """Return the diagonal of the derivative at values, zero where there is no unknown."""
        return self.cleared(self.derivative(u, self._place.ghosted).diagonal())

    @abc.abstractmethod
    def linearised(self, u: np.ndarray, *, transposed: bool = False) -> ChangeEquations:
        """Return the linear equations for changes of values, or the transposed ones: operator and discretisation."""

    @abc.abstractmethod
    def begun(self, u: np.ndarray) -> np.ndarray:
        """Return values with those that are given, from which an iteration begins; all ranks together."""

    @abc.abstractmethod
    def completed(self, u: np.ndarray, *, beyond: bool = False) -> np.ndarray:
        """Return values as a field has them; ``beyond`` natural outlines, too, where asked for."""


def equations_of(
    solver: NonlinearSystem, place: GhostNodes
) -> Callable[[int, Boundary], NewtonEquations]:
    """Sample an operator on a rank's part of the grid; return what makes the equations of each problem of it.

    It takes which of several problems it is, and the values on its edges.
    """
    if solver.discretisation is None:
        operator = solver.operator.on(place.grid, place.ghosted)
        return partial(_OnRectangle, place, solver, operator)
    return partial(
        _OnOutlines, place, solver, NonlinearEquations(solver.discretisation, place.ghosted)
    )


class _OnRectangle(NewtonEquations):
    """On a rectangle with values on all sides."""

    def __init__(
        self,
        place: GhostNodes,
        solver: NonlinearSystem,
        operator: NonlinearPart,
        number: int,
        boundary: Boundary,
    ):
        super().__init__(place, solver)
        self._operator, self._boundary = operator, boundary
        self._edges = [there for _, _, there in edges_of(place.ghosted, self._grid.nodes)]
        self.source = 0.0
        f = solver.source.problem.source_at(self._grid, place.ghosted)
        if f is not None:
            self.source = self.cleared(self._grid.spacing**2 * f[number % len(f)])

    def residual(self, u: np.ndarray) -> np.ndarray:
        r = np.zeros_like(u)
        r[_inside(u)] = self._operator.residual(u)
        r -= self.source
        return self.cleared(r)

    def linear_form(self, u: np.ndarray, residual: np.ndarray) -> LinearForm:
        right, constant = -residual - self.source, np.zeros_like(u)
        free = u - self._boundary.impose(np.zeros_like(u), self._place.ghosted)
        changes = free, self.cleared(np.ones_like(u))
        linear, constant[_inside(u)] = self._operator.products(u, changes)
        right[_inside(u)] += linear
        return LinearForm(self.cleared(right), self.cleared(constant), 1.0)

    def derivative(self, u: np.ndarray, part: Part, dtype: type = np.float64) -> Conductances:
        return self._operator.derivative(u, part, dtype)

    def cleared(self, values: np.ndarray) -> np.ndarray:
        for there in self._edges:
            values[there] = 0.0
        return values

    def linearised(self, u: np.ndarray, *, transposed: bool = False) -> ChangeEquations:
        return Linearised(self._operator, u, transposed=transposed), None

    def begun(self, u: np.ndarray) -> np.ndarray:
        return self._boundary.impose(u, self._place.ghosted)

    def completed(self, u: np.ndarray, *, beyond: bool = False) -> np.ndarray:
        return u


class _OnOutlines(NewtonEquations):
    """On any domain."""

    def __init__(
        self,
        place: GhostNodes,
        solver: NonlinearSystem,
        equations: NonlinearEquations,
        number: int,
        boundary: Boundary,
    ):
        super().__init__(place, solver)
        self._equations = equations
        self._problem, self._number = solver.source.problem, number
        self._data = equations.data(self._problem, number)
        self.source = equations.scattered(self._data.source)

    def residual(self, u: np.ndarray) -> np.ndarray:
        return self._equations.residual(u, self._data)

    def linear_form(self, u: np.ndarray, residual: np.ndarray) -> LinearForm:
        right, active = -residual - self.source, self._equations.active
        derivative, weights = self._equations.weighed_derivative(u, self._data)
        conductances = derivative.conductances
        # Nodes on natural sides are unknowns, too.
        right += conductances.of_all(np.where(active, u, 0.0)) + conductances.reaction * u
        constant = self.cleared(conductances.reaction.copy())
        return LinearForm(self.cleared(right), constant, weights.every(active.shape))

    def derivative(self, u: np.ndarray, part: Part, dtype: type = np.float64) -> Conductances:
        whole = self._equations.derivative(u, self._data).conductances
        return whole.part(*within(part, self._place.ghosted)).each(lambda k: k.astype(dtype))

    def cleared(self, values: np.ndarray) -> np.ndarray:
        values[~self._equations.active] = 0.0
        return values

    def linearised(self, u: np.ndarray, *, transposed: bool = False) -> ChangeEquations:
        derivative = self._equations.derivative(u, self._data)
        if transposed:
            other = derivative.conductances.transposed()
            derivative = dataclasses.replace(derivative, conductances=other)
        step = LinearStep(
            derivative,
            self._equations.part,
            self_adjoint=self.self_adjoint,
            periods=self._equations.periods,
        )
        return step, step

    def begun(self, u: np.ndarray) -> np.ndarray:
        active = self._equations.active
        # Unknowns beyond a natural outline, which have no value in a field, get the mean of those around.
        places = np.argwhere(active & np.isnan(u))
        if len(places):
            padded = np.pad(u, 1, constant_values=np.nan)
            steps = itertools.product(range(3), repeat=u.ndim)
            around = np.stack([padded[tuple((places + step).T)] for step in steps])
            u[tuple(places.T)] = np.nanmean(around, axis=0)
        return self._place.with_ghosts(self._place.without_ghosts(np.where(active, u, 0.0)))

    def completed(self, u: np.ndarray, *, beyond: bool = False) -> np.ndarray:
        return self._equations.completed(u, self._problem, self._number, beyond=beyond)


def _inside(u: np.ndarray) -> Part:
    return (slice(1, -1),) * u.ndim


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
