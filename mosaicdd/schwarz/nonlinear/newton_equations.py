"""What Newton's method solves, on a rank's part of the grid: residuals, and linear problems for changes.

Values lie in wide arrays (`FieldShare`). On a rectangle with given values on all sides, `RectangleEquations`;
everywhere else `OutlineEquations`, whose steps are linear problems with the same faces, volumes and active nodes.
"""

from typing import NamedTuple, Protocol

import numpy as np

from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.condensed_solver import CondensedSolver
from mosaicdd.local_solvers.source import Source
from mosaicdd.problems.discretisation.linear_step import LinearStep
from mosaicdd.problems.discretisation.nonlinear_equations import NonlinearData, NonlinearEquations
from mosaicdd.problems.domain import Domain
from mosaicdd.problems.fields.fields import Part
from mosaicdd.problems.operators.conductances import Conductances
from mosaicdd.problems.operators.nonlinear_part import Linearised, NonlinearPart
from mosaicdd.problems.problem import Problem
from mosaicdd.problems.sides.boundary import Boundary, edges_of
from mosaicdd.schwarz.field_share import FieldShare

_AROUND = [(i, j) for i in range(3) for j in range(3)]  # from the lower left


class LinearForm(NamedTuple):
    """What residuals are measured by, at the wide nodes; zero where there is no unknown.

    Parameters
    ----------
    right
        The right-hand side without the source.
    constant
        What the operator makes of 1 at all unknowns.
    weights
        What rows count in norms.
    """

    right: np.ndarray
    constant: np.ndarray
    weights: np.ndarray | float


class NewtonEquations(Protocol):
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

    def residual(self, u: np.ndarray) -> np.ndarray:
        """Return the residual times the squared spacing; zero where there is no unknown."""
        ...

    def linear_form(self, u: np.ndarray) -> "LinearForm":
        """Return the equation linearised at values, but for its operator."""
        ...

    def diagonal(self, u: np.ndarray) -> np.ndarray:
        """Return that of the derivative at values, zero where there is no unknown."""
        ...

    def linearised(self, u: np.ndarray) -> CondensedSolver:
        """Return the solver of linear problems for changes of values."""
        ...

    def load(self, linear: CondensedSolver, force: np.ndarray) -> None:
        """Give such a solver a right-hand side, at all wide nodes."""
        ...

    def begun(self, u: np.ndarray) -> np.ndarray:
        """Return values with those that are given, from which an iteration begins; in place."""
        ...

    def completed(self, u: np.ndarray, *, beyond: bool = False) -> np.ndarray:
        """Return values as a field has them; ``beyond`` natural outlines, too, where asked for."""
        ...


class RectangleEquations:
    """On a rectangle with values on all sides, at whose edge the lattice ends.

    Parameters
    ----------
    operator
        On the nodes that ``place`` holds.
    f
        The source there, None for zero.
    """

    def __init__(
        self,
        operator: NonlinearPart,
        place: FieldShare,
        subdomain: Subdomain,
        boundary: Boundary,
        f: np.ndarray | None,
    ):
        self._operator, self._place, self._subdomain = operator, place, subdomain
        self._boundary = boundary
        self.self_adjoint = operator.self_adjoint
        self.source: np.ndarray | float = 0.0
        if f is not None:
            self.source = operator.grid.spacing**2 * f
            self._clear_edges(self.source)

    def residual(self, u: np.ndarray) -> np.ndarray:
        """Return the residual times the squared spacing; zero on the edge."""
        r = np.zeros_like(u)
        r[1:-1, 1:-1] = self._operator.residual(u)
        r -= self.source
        self._clear_edges(r)
        return r

    def linear_form(self, u: np.ndarray) -> LinearForm:
        """Return the equation linearised at values."""
        right, constant, ones = np.zeros_like(u), np.zeros_like(u), np.ones_like(u)
        self._clear_edges(ones)
        right[1:-1, 1:-1] = self._operator.product(
            u, u - self._boundary.impose(np.zeros_like(u), self._place.wide)
        )
        right[1:-1, 1:-1] -= self._operator.residual(u)
        constant[1:-1, 1:-1] = self._operator.product(u, ones)
        for values in (right, constant):
            self._clear_edges(values)
        return LinearForm(right, constant, 1.0)

    def diagonal(self, u: np.ndarray) -> np.ndarray:
        """Return that of the derivative at values, zero on the edge."""
        diagonal = self.derivative(u, self._place.wide).diagonal()
        self._clear_edges(diagonal)
        return diagonal

    def derivative(self, u: np.ndarray, part: Part) -> Conductances:
        """Return the derivative between the nodes of a part."""
        return self._operator.derivative(u, part)

    def linearised(self, u: np.ndarray) -> CondensedSolver:
        """Return the solver of linear problems for changes of values."""
        grid = self._operator.grid
        source = Source(_without_source(grid), grid, self._subdomain)
        return CondensedSolver(Linearised(self._operator, u), self._subdomain, source)

    def load(self, linear: CondensedSolver, force: np.ndarray) -> None:
        """Give such a solver a right-hand side, at all wide nodes."""
        grid = self._operator.grid
        f = self._place.as_field(force / grid.spacing**2)
        linear.source.update(_without_source(grid).with_fields(f=f))

    def begun(self, u: np.ndarray) -> np.ndarray:
        """Return values with those that are given, in place."""
        return self._boundary.impose(u, self._place.wide)

    def completed(self, u: np.ndarray, *, beyond: bool = False) -> np.ndarray:
        """Return values as a field has them."""
        return u

    def _clear_edges(self, u: np.ndarray) -> None:
        """Write zeros to the edge of the domain."""
        for _, _, there in edges_of(self._place.wide, self._operator.grid.nodes):
            u[there] = 0.0


class OutlineEquations:
    """On any domain.

    Parameters
    ----------
    equations
        At the nodes that are held here.
    problem, number
        What is given, and of which of several problems.
    data
        The same at the nodes that are held here.
    """

    def __init__(
        self,
        equations: NonlinearEquations,
        place: FieldShare,
        subdomain: Subdomain,
        problem: Problem,
        number: int,
        data: NonlinearData,
    ):
        self._equations, self._place, self._subdomain = equations, place, subdomain
        self._problem, self._number = problem, number
        self._data = data
        self.self_adjoint = equations.operator.self_adjoint
        self.source: np.ndarray | float = equations.scattered(self._data.source)

    def residual(self, u: np.ndarray) -> np.ndarray:
        """Return the residual times the squared spacing; zero where there is no unknown."""
        return self._equations.residual(u, self._data)

    def linear_form(self, u: np.ndarray) -> LinearForm:
        """Return the equation linearised at values."""
        right, active = -self.residual(u) - self.source, self._equations.active
        derivative, weights = self._equations.weighed_derivative(u, self._data)
        conductances = derivative.conductances
        right[1:-1, 1:-1] += conductances.apply(np.where(active, u, 0.0))
        right, constant = (
            np.where(active, values, 0.0) for values in (right, conductances.reaction)
        )
        return LinearForm(right, constant, weights.every(active.shape))

    def diagonal(self, u: np.ndarray) -> np.ndarray:
        """Return that of the derivative at values, zero where there is no unknown."""
        conductances = self._equations.derivative(u, self._data).conductances
        return np.where(self._equations.active, conductances.diagonal(), 0.0)

    def linearised(self, u: np.ndarray) -> CondensedSolver:
        """Return the solver of linear problems for changes of values."""
        grid = self._equations.grid
        step = LinearStep(
            self._equations.derivative(u, self._data),
            self._equations.part,
            self_adjoint=self.self_adjoint,
            rounds=self._equations.rounds,
            periods=self._equations.periods,
        )
        source = Source(_without_source(grid), grid, self._subdomain)
        return CondensedSolver(step, self._subdomain, source, step)

    def load(self, linear: CondensedSolver, force: np.ndarray) -> None:
        """Give such a solver a right-hand side, at all wide nodes."""
        step = linear.discretisation
        if not isinstance(step, LinearStep):
            raise TypeError("the solver is of another kind of problem")
        step.force = force

    def begun(self, u: np.ndarray) -> np.ndarray:
        """Return values, zero where there is no unknown; all ranks together.

        Unknowns beyond a natural outline, which have no value in a field, get the mean of those around.
        """
        active = self._equations.active
        y, x = np.nonzero(active & np.isnan(u))
        if len(y):
            around = np.stack(
                [np.pad(u, 1, constant_values=np.nan)[y + i, x + j] for i, j in _AROUND]
            )
            u[y, x] = np.nanmean(around, axis=0)
        return self._place.widened(self._place.owned(np.where(active, u, 0.0)))

    def completed(self, u: np.ndarray, *, beyond: bool = False) -> np.ndarray:
        """Return values as a field has them: with those given, outside NaN."""
        return self._equations.completed(u, self._problem, self._number, beyond=beyond)


def _without_source(grid: Grid) -> Problem:
    return Problem(Domain(grid.shape, grid.spacing), "poisson")
