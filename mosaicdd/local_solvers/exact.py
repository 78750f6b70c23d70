"""The exact local solver: of constant coefficients a dense operator on all subdomains, of fields multigrid."""

from functools import lru_cache
from typing import Any, Unpack

import numpy as np

from mosaicdd.grid.partition import NodeBoxes
from mosaicdd.lattice.axes import times
from mosaicdd.lattice.grid import Grid
from mosaicdd.lattice.lattice import fits
from mosaicdd.lattice.subdomain import Subdomain
from mosaicdd.local_solvers.bound import BoundSolver, Plan, SharedSolver
from mosaicdd.local_solvers.plans import linear_plan
from mosaicdd.local_solvers.source import GridSource, Source
from mosaicdd.problems.discretisation.discrete import DirichletSystem
from mosaicdd.problems.discretisation.discretisation import Discretisation
from mosaicdd.problems.discretisation.nonlinear_discretisation import NonlinearDiscretisation
from mosaicdd.problems.discretisation.separable import Ends, separable_ends
from mosaicdd.problems.operators.elliptic import EllipticOperator
from mosaicdd.problems.operators.medium import Medium, medium_of
from mosaicdd.problems.operators.nonlinear import Nonlinear
from mosaicdd.problems.problem import Problem
from mosaicdd.tensors import Tensors
from mosaicdd.unsupported import Unsupported

MULTIGRID = 110
"""Bytes for each node at least: couplings, levels, and the vectors of one iteration."""
PER_PROBLEM = 16
"""Bytes for each node of each of several problems: its field, and what is kept until that is handed out."""
WAVES = 64
"""Bytes for each node where coefficients are numbers: heights of waves, eigenvalues, right-hand side and residual."""
EQUATIONS_IN_SPACE = 70
"""More of them in boxes where sides are natural or periodic, or cells no multiples: the equations of all nodes."""
_FEWEST = {False: 4, True: 8}
"""Nodes of a box along each axis, by whether nodes are coupled across cells."""
_MANY = 16
"""The same of large grids, whose boxes are counted one by one where a shape is shared out evenly."""
_DIRECTED = {2: 70, 3: 110}
"""More of them with a velocity, by axes: couplings and weights differ in both directions."""
_IN_SPACE = {True: 800, False: 1600}
"""Bytes for each node of Newton's steps in boxes, by whether the derivative is symmetric; most are those of flows."""


class SolverOfMedia(BoundSolver):
    """The equation on the whole grid, whose coefficients are those of a medium.

    Attributes
    ----------
    operator
        The medium, or what has conductances as one; or what is not linear, whose derivative is one.
    source
        Of the problem, which may be zero.
    discretisation
        Of the problem; None where values are given on all sides of a rectangle.
    planned
        What was planned for a medium on a partition, by whoever solves.
    """

    name = "exact"
    exact = True
    one_by_one = True
    source: GridSource

    def __init__(self, operator: Any, source: GridSource, discretisation: Any = None):
        self.operator, self.source = operator, source
        self.discretisation = discretisation
        self.planned: dict[tuple[Any, ...], Any] = {}

    def boxes(self, grid: Grid, periodic: tuple[bool, ...]) -> NodeBoxes:
        """Return boxes of nodes that are as wide as the ghost nodes of a sweep; larger ones where there are many."""
        return _boxes(self.operator, grid, periodic)

    def bytes_per_node(self, itemsize: int, problems: int, *, certified: bool) -> float:
        """Return what multigrid takes, and each of several problems: its source or start, and its field."""
        directed = 0 if self.operator.self_adjoint else _DIRECTED[len(self.source.grid.shape)]
        return MULTIGRID + directed + PER_PROBLEM * problems


class MediumSolver(SolverOfMedia):
    """That of a linear equation, by multigrid."""

    method = "multigrid"


class SineSolver(MediumSolver):
    """That of a linear equation which is the same at all nodes of a rectangle or box, by transforms.

    ``ends``: of the axes, see `separable_ends`.
    """

    method = "sines"

    def __init__(self, medium: MediumSolver, ends: Ends):
        super().__init__(medium.operator, medium.source, medium.discretisation)
        self.ends = ends

    def bytes_per_node(self, itemsize: int, problems: int, *, certified: bool) -> float:
        """Return what transforms take, and each of several problems."""
        in_space = len(self.source.grid.shape) == 3 and self.discretisation is not None
        return WAVES + EQUATIONS_IN_SPACE * in_space + PER_PROBLEM * problems


class NewtonSolver(SolverOfMedia):
    """That of an equation that is not linear, by Newton's method on the whole grid."""

    linear = False
    method = "newton"
    source_ghosts = 12  # as many as Newton's method holds of values, and one more

    def bytes_per_node(self, itemsize: int, problems: int, *, certified: bool) -> float:
        """Return what a step takes: in space with the flows, a number for each of six sides, and their places."""
        if len(self.source.grid.shape) == 2:
            return super().bytes_per_node(itemsize, problems, certified=certified)
        return _IN_SPACE[self.operator.self_adjoint] + 16 * problems


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

    def bind(self, problem: Problem, grid: Grid) -> BoundSolver:
        """Return the solver for a problem's operator and source on a grid."""
        subdomain, operator = self._subdomain(grid), problem.operator
        if isinstance(operator, Nonlinear):
            return self.newton(problem, grid)
        if not isinstance(operator, EllipticOperator) or _strongly_anisotropic(operator):
            return self._linear(problem, grid)
        if not (self._shared and problem.plain and fits(grid, subdomain)):
            return self._linear(problem, grid)
        source = None if problem.source is None else Source(problem, grid, subdomain)
        return ExactSolver(operator, subdomain, source)

    def _linear(self, problem: Problem, grid: Grid) -> MediumSolver:
        """Return the solver by transforms where there is one, else by multigrid."""
        medium, ends = self.medium(problem, grid), separable_ends(problem)
        return medium if ends is None else SineSolver(medium, ends)

    def medium(self, problem: Problem, grid: Grid) -> MediumSolver:
        """Return the solver by multigrid, which solves any linear problem."""
        if values_given(problem):
            _require_inner_nodes(grid)
            return MediumSolver(self._medium(problem), GridSource(problem, grid))
        return self.of_flows(problem, grid)

    def of_flows(self, problem: Problem, grid: Grid) -> MediumSolver:
        """Return the solver of any linear problem by sums of flows, whatever its sides are."""
        _require_even(problem, grid)
        medium = self._medium(problem)
        flows = Discretisation(problem, medium, grid)
        return MediumSolver(medium, GridSource(problem, grid), flows)

    def newton(self, problem: Problem, grid: Grid) -> NewtonSolver:
        """Return the solver by Newton's method, for an equation that is not linear."""
        operator = problem.operator
        if not isinstance(operator, Nonlinear):
            raise TypeError(f"{problem.equation.name} is linear")
        _require_even(problem, grid)
        source = GridSource(problem, grid)
        if problem.plain and not operator.by_flows:
            _require_inner_nodes(grid)
            return NewtonSolver(operator, source)
        return NewtonSolver(operator, source, NonlinearDiscretisation(problem, grid))

    def _medium(self, problem: Problem) -> Medium:
        cells = f"the cells are no multiples of {self.cells // 2}"
        return medium_of(problem.operator, problem.hindrance or cells)

    def _subdomain(self, grid: Grid) -> Subdomain:
        cells = self.cells if len(grid.shape) == 2 else self.cells // 2
        return Subdomain(cells, cells * grid.spacing, len(grid.shape))


def values_given(problem: Problem) -> bool:
    """Say whether the unknowns of a linear problem are the nodes inside a rectangle or box."""
    return problem.plain and not _is_mixed(problem.operator)


def _require_inner_nodes(grid: Grid) -> None:
    if min(grid.shape) < 2:
        raise ValueError("the values of all nodes are given; take 2 cells or more per axis")


def _require_even(problem: Problem, grid: Grid) -> None:
    """Raise `Unsupported` if nodes are coupled across cells, and there is an odd number between periodic sides."""
    wraps = zip(grid.shape, problem.conditions.periodic, strict=True)
    if _is_mixed(problem.operator) and any(around and cells % 2 for cells, around in wraps):
        raise Unsupported(
            "with a mixed derivative, axy, or bilinear elements periodic sides have even numbers of cells between them, "
            f"here there are {times(grid.shape)} cells: give one more or one less"
        )


def nodes_of_media(problem: Problem, grid: Grid) -> NodeBoxes:
    """Return the boxes of nodes that ranks get whole, without evaluating anything."""
    return _boxes(problem.operator, grid, problem.conditions.periodic)


def _boxes(operator: Any, grid: Grid, periodic: tuple[bool, ...]) -> NodeBoxes:
    size = _MANY if min(grid.shape) >= _MANY**2 else _FEWEST[_is_mixed(operator)]
    return NodeBoxes.of_size(grid, periodic, size)


def _is_mixed(operator: EllipticOperator | Medium | Nonlinear) -> bool:
    """Say whether an operator couples nodes across cells, as one with a mixed derivative does."""
    if isinstance(operator, Nonlinear):
        return not operator.one_by_one
    return operator.couples_corners


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
